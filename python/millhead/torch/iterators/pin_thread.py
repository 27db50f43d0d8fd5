"""Pinned memory: batches are copied into it ahead of time, on a thread of their own.

Torch owns the pinned memory (its allocator knows when a copy to the device is over); the slot a
batch came in is free again as soon as the batch is pinned.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data._utils.pin_memory import pin_memory

from millhead import _core

if TYPE_CHECKING:
    from millhead.torch.iterators.assembler import Assembler

#: How long to wait for a result before looking up, in nanoseconds.
SLICE_NS = 100_000_000

#: What kind of result, the batch or what it is made from, its samples, the worker's state.
Taken = tuple[int, Any, int, bytes | None]


class Raised:
    """An exception on its way to the consumer, as torch wraps those of workers."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def reraise(self) -> None:
        raise self.error


class Pinner:
    """Stands between a consumer end and its consumer: the same ``take`` and ``ready``, pinned.

    ``unpack(kind, payload)`` gives the batch, or the exception as torch wraps it. It must not keep
    the iterator alive: the thread ends with it.
    """

    def __init__(
        self,
        consumer_end: _core.ConsumerEnd | Assembler,
        in_order: bool,
        unpack: Callable[[int, Any], Any],
    ) -> None:
        self._consumer_end = consumer_end
        self._in_order = in_order
        self._unpack = unpack
        self._due: queue.SimpleQueue[int] = queue.SimpleQueue()  # workers, in the order of tasks
        self._pinned: queue.SimpleQueue[tuple[int, Taken]] = queue.SimpleQueue()
        self._next: tuple[int, Taken] | None = None
        self._stop = threading.Event()
        self._device = torch.accelerator.current_device_index()
        self._thread = threading.Thread(target=self._run, name="millhead-pin", daemon=True)
        self._thread.start()

    def expect(self, worker: int) -> None:
        """A task was put for this worker."""
        self._due.put(worker)

    def ready(self, timeout_ns: int) -> int | None:
        """The worker whose batch is pinned next, or None."""
        if self._next is None:
            try:
                self._next = self._pinned.get(timeout=timeout_ns / 1e9)
            except queue.Empty:
                if not self._thread.is_alive():
                    raise RuntimeError("Pin memory thread exited unexpectedly") from None
                return None
        return self._next[0]

    def take(self, worker: int, timeout_ns: int) -> Taken | None:
        """The next batch, pinned; None when none came in time."""
        if self.ready(timeout_ns) is None:
            return None
        assert self._next is not None
        number, taken = self._next
        assert number == worker
        self._next = None
        return taken

    def close(self) -> None:
        """End the thread; what it has pinned is dropped."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        torch.set_num_threads(1)  # of this thread: the copy must not take all cores
        torch.accelerator.set_device_index(self._device)
        while not self._stop.is_set():
            try:
                worker = self._due.get(timeout=SLICE_NS / 1e9)
            except queue.Empty:
                continue
            done: Taken | None
            try:
                if not self._in_order:
                    worker = self._any_ready()
                done = self._pin(worker)
            except BaseException as error:  # noqa: BLE001 - the consumer's to see, in its place
                done = (_core.ERROR, Raised(error), 0, None)
            if done is not None:
                self._pinned.put((worker, done))

    def _any_ready(self) -> int:
        while not self._stop.is_set():
            worker = self._consumer_end.ready(SLICE_NS)
            if worker is not None:
                return int(worker)
        return 0

    def _pin(self, worker: int) -> Taken | None:
        taken = None
        while taken is None:
            if self._stop.is_set():
                return None
            taken = self._consumer_end.take(worker, SLICE_NS)
        kind, payload, samples, state = taken
        payload = self._unpack(kind, payload)
        if kind in (_core.SLOT, _core.GENERAL):
            try:
                payload = pin_memory(payload, None)  # type: ignore[no-untyped-call]
            except Exception:  # noqa: BLE001 - positional, in torch's words
                kind = _core.ERROR
                where = f"in pin memory thread for device {self._device}"
                payload = ExceptionWrapper(where=where)  # type: ignore[no-untyped-call]
        return kind, payload, samples, state
