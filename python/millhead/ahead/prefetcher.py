"""``millhead.prefetch``: any iterable, kept a few items ahead of the loop by a thread or a process."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, Self, TypeVar

from millhead import _core
from millhead.watching.fetch_times import FetchPlan

T = TypeVar("T")
MODES = ("thread", "process")


class Source(Protocol):
    """What makes the items of one epoch."""

    def take(self) -> Any:
        """The next item. Raises what making it raised, in its place, and StopIteration at the end."""
        ...

    def close(self) -> None:
        """Ends the thread or process; nothing more is made."""
        ...


class Prefetcher(Generic[T]):
    """An iterable whose items are made ahead; :func:`prefetch` makes one."""

    def __init__(
        self,
        iterable: Iterable[T] | Callable[[], Iterable[T]],
        n: int,
        mode: str,
        context: str | None,
        name: str | None,
    ) -> None:
        self.iterable = iterable
        self.n = n
        self.mode = mode
        self.context = context
        self.name = name
        self._meter = _core.Meter()
        self._epochs = self._batches = 0
        self._current: weakref.ref[Ahead[T]] | None = None

    def __iter__(self) -> Iterator[T]:
        """The next epoch. An iterator that was made before gets no more items."""
        from millhead.watching import prefetchers

        if (watch := prefetchers.watch_of(self)) is not None:
            return prefetchers.iterate(self, watch)
        return self.begin(None)

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]

    def begin(self, plan: FetchPlan | None) -> Ahead[T]:
        """An epoch; ``plan``: where to write what making each item takes."""
        self.close()
        source = _source(self, plan)
        iterator = Ahead(self, source)
        self._current = weakref.ref(iterator)
        self._epochs += 1
        return iterator

    def stats(self, reset: bool = False) -> dict[str, Any]:
        """What the loop waited for so far, or since ``reset=True`` was passed last."""
        report = {
            "version": 1,
            "path": "prefetch",
            "mode": self.mode,
            "prefetch": self.n,
            "epoch": self._epochs,
            "batches": self._batches,
            "wait_ms": self._meter.wait_ms(),
        }
        if reset:
            self._meter.clear()
            self._batches = 0
        return report

    def close(self) -> None:
        """End the thread or process. Another ``iter()`` begins anew."""
        if self._current is not None and (iterator := self._current()) is not None:
            iterator.close()
        self._current = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Ahead(Generic[T]):
    """One epoch of a Prefetcher."""

    def __init__(self, owner: Prefetcher[T], source: Source) -> None:
        self._owner = owner
        self._source = source
        _live.add(self)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        owner = self._owner
        owner._meter.begin_wait()
        try:
            item: T = self._source.take()
        finally:
            owner._meter.end_wait()
        owner._batches += 1
        return item

    def close(self) -> None:
        """End what makes the items."""
        self._source.close()

    def __del__(self) -> None:
        if "_source" in self.__dict__:
            self.close()


_live: weakref.WeakSet[Ahead[Any]] = weakref.WeakSet()


@atexit.register
def _close_at_exit() -> None:
    for iterator in list(_live):
        iterator.close()


def _source(owner: Prefetcher[Any], plan: FetchPlan | None) -> Source:
    if owner.mode == "thread":
        from millhead.ahead.thread_source import ThreadSource

        return ThreadSource(owner.iterable, owner.n, plan)
    from millhead.ahead.process_source import ProcessSource

    return ProcessSource(owner.iterable, owner.n, plan, owner.context)


def prefetch(
    iterable: Iterable[T] | Callable[[], Iterable[T]],
    n: int = 2,
    *,
    mode: str = "thread",
    context: str | None = None,
    name: str | None = None,
) -> Prefetcher[T]:
    """Make the items of any iterable ahead of the loop that uses them, in order.

    For loops without a DataLoader: NumPy or JAX batches, hand-written generators. The loop then waits
    only where making an item takes longer than the step. ``millhead.watch`` and ``millhead doctor``
    see such a loop as they see any loader's.

    Args:
        iterable: what ``for`` takes; or a function without arguments that gives one (a generator
            function, say), which is called for each epoch.
        n: items made ahead, at most.
        mode: ``"thread"`` for work that waits or runs in native code (reading files, decoding, NumPy
            on large arrays); ``"process"`` for work in Python itself, which a thread would take from
            the loop. Items are then pickled; large arrays go through shared memory.
        context: how the process starts: ``"fork"``, ``"spawn"``, ``"forkserver"``; None: as
            multiprocessing does. A generator object can only be forked.
        name: what to call it in the events.

    Raises:
        ValueError: ``n`` is not a whole number of 1 or more, or the mode is unknown.
        TypeError: there is nothing to iterate over.

    What making an item raises is raised in the item's place. Leaving the loop early, ``close()`` and
    the end of the program end the thread or process.

    Example:
        >>> import millhead
        >>> def batches():
        ...     for number in range(3):
        ...         yield number * number  # reading and decoding, say
        >>> list(millhead.prefetch(batches, 2))
        [0, 1, 4]
    """
    if not isinstance(n, int) or n < 1:
        raise ValueError(f"n should be a whole number of 1 or more, but got {n!r}")
    if mode not in MODES:
        raise ValueError(f"mode should be 'thread' or 'process', but got {mode!r}")
    if not callable(iterable) and not hasattr(iterable, "__iter__"):
        raise TypeError(
            f"prefetch takes a loader, another iterable, or a function that makes one, not {iterable!r}"
        )
    return Prefetcher(iterable, n, mode, context, name)
