"""The producer's side of a prefetcher, in a thread or a process: makes items and times each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millhead.watching.fetch_times import Fetches, FetchPlan


class Maker:
    """Makes items in the thread that made this."""

    def __init__(self, iterable: Any, plan: FetchPlan | None) -> None:
        self._iterable = iterable
        self._iterator: Iterator[Any] | None = None
        self._fetches: Fetches | None = None if plan is None else plan.open(0)

    def make(self) -> Any:
        """The next item; StopIteration at the end, and whatever making it raises."""
        if self._fetches is None:
            return self._next()
        return self._fetches.time(self._timed)

    def _next(self) -> Any:
        if self._iterator is None:  # here, not in the constructor: it may fail like an item
            given = self._iterable
            self._iterator = iter(given if hasattr(given, "__iter__") else given())
        return next(self._iterator)

    def _timed(self) -> Any:
        assert self._fetches is not None
        item = self._next()
        self._fetches.fetched(1)
        return item

    def close(self) -> None:
        """Writes what was held back, and closes a generator that is not at its end."""
        if self._fetches is not None:
            self._fetches.flush()
        iterator, self._iterator = self._iterator, None
        # One that was given as such is the user's: it may go on with it.
        if iterator is not None and iterator is not self._iterable:
            close = getattr(iterator, "close", None)
            if close is not None:
                close()
