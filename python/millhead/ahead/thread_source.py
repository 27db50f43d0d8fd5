"""Items made ahead by a thread of this process."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from millhead.ahead.making import Maker
from millhead.watching.fetch_times import FetchPlan

#: How long ``close`` waits for an item that is being made. What takes longer ends by itself: a thread
#: cannot be stopped, and the program must not hang because of it.
PATIENCE_S = 5.0


class _Shelf:
    """What lies between the thread and the loop. Both hold it; the thread does not hold the loop's
    side, so that one that is forgotten is closed."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.ready: deque[tuple[str, Any]] = deque()
        self.changed = threading.Condition()
        self.closed = False

    def put(self, what: str, value: Any) -> bool:
        """Where there is room; False: nobody wants it any more."""
        with self.changed:
            if not self.closed:
                self.ready.append((what, value))
                self.changed.notify_all()
            return not self.closed

    def wait_for_room(self) -> bool:
        """An item is made only when there is a place for it: n are ahead, and none besides."""
        with self.changed:
            while len(self.ready) >= self.n and not self.closed:
                self.changed.wait()
            return not self.closed

    def take(self) -> tuple[str, Any]:
        """Waits for an item. An interrupt gets through: nothing is taken then."""
        with self.changed:
            while not self.ready and not self.closed:
                self.changed.wait()
            found = self.ready.popleft() if self.ready else ("end", None)
            self.changed.notify_all()
            return found

    def close(self) -> None:
        """Nobody puts and nobody takes any more."""
        with self.changed:
            self.closed = True
            self.ready.clear()
            self.changed.notify_all()


class ThreadSource:
    """The loop's side."""

    def __init__(self, iterable: Any, n: int, plan: FetchPlan | None) -> None:
        self._shelf = _Shelf(n)
        self._ended = False
        self._thread = threading.Thread(
            target=_run, args=(iterable, plan, self._shelf), name="millhead-prefetch", daemon=True
        )
        self._thread.start()

    def take(self) -> Any:
        """As :class:`Source` says."""
        what, value = ("end", None) if self._ended else self._shelf.take()
        if what == "item":
            return value
        if isinstance(value, BaseException):
            try:
                raise value
            finally:
                del value  # else this frame and the exception would keep each other alive
        self._ended = True
        raise StopIteration

    def close(self) -> None:
        """As :class:`Source` says."""
        self._ended = True
        self._shelf.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(PATIENCE_S)


def _run(iterable: Any, plan: FetchPlan | None, shelf: _Shelf) -> None:
    maker = Maker(iterable, plan)
    try:
        while shelf.wait_for_room():
            try:
                wanted = shelf.put("item", maker.make())
            except StopIteration:
                shelf.put("end", None)
                break
            except BaseException as error:  # noqa: BLE001 - it is the loop's
                wanted = shelf.put("error", error)
            if not wanted:
                break
    finally:
        maker.close()
