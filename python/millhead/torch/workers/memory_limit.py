"""A worker's own side of ``worker_memory=``: how it sees that it has too much, and what it leaves.

Between two batches it collects garbage when it is over the first mark, and if that does not help it
leaves: whoever takes its place goes on from the states of the generators and hooks that it wrote
down. Within a batch a thread of the C core looks (src/workers/guard.h) and ends the process over the
second mark; the batch is then made again from what was written down before it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import struct
import time
from typing import TYPE_CHECKING, Any

from millhead.torch.resume.restore import Restore
from millhead.torch.resume.rng_state import RngState

if TYPE_CHECKING:
    from millhead.torch.workers.batch_worker import BatchWorker

#: Of the limit: a worker with more leaves between batches, and is ended in the middle of one.
LEAVE_AT = 0.80
END_AT = 0.95
#: What may go into writing down how batches begin, some 50 us for each: so much of the time, and so
#: many seconds besides.
_SHARE = 0.01
_BESIDES_S = 0.05

_LENGTH = struct.Struct("<Q")


def write_note(file: int, what: Any) -> None:
    """Leave something for the trainer, in memory that outlives this process."""
    data = pickle.dumps(what, 5)
    view = memoryview(_LENGTH.pack(len(data)) + data)
    at = 0
    while at < len(view):
        at += os.pwrite(file, view[at:], at)


def read_note(file: int) -> Any:
    """What was left; None: nothing."""
    head = os.pread(file, _LENGTH.size, 0)
    length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
    data = b""
    while len(data) < length:
        more = os.pread(file, length - len(data), _LENGTH.size + len(data))
        if not more:
            return None
        data += more
    return pickle.loads(data) if length else None


def wipe_note(file: int) -> None:
    """Leave nothing."""
    os.pwrite(file, bytes(_LENGTH.size), 0)


class MemoryLimit:
    """The limit on the memory of this process, from when it has started."""

    def __init__(self, worker: BatchWorker) -> None:
        plan = worker.plan
        assert plan.memory is not None
        self._worker = worker
        self._file = plan.descriptors[6].fd
        self._most = int(plan.memory * LEAVE_AT)
        self._guarded = plan.guarded
        self._stays = False
        self._noted = False
        self._began = time.monotonic()
        self._spent = 0.0
        wipe_note(self._file)
        used = worker.worker_end.own_memory(self._most, True)
        if used:
            self._stay(used, "it needs that before it has fetched anything")
        elif self._guarded:
            worker.worker_end.guard(int(plan.memory * END_AT))

    def begin(self) -> None:
        """A batch is in hand. Note what it begins with, for whoever may have to make it again."""
        if not self._guarded or self._stays:
            return
        if self._noted:  # that was another batch's
            wipe_note(self._file)
            self._noted = False
        began = time.thread_time()  # others' turns on a busy CPU are not our cost
        state, counts = None, self._worker.counts()
        if self._spent <= (time.monotonic() - self._began) * _SHARE + _BESIDES_S:
            with contextlib.suppress(Exception):  # the user's hooks; nobody has asked for them
                state = self._state()
        if state is not None or counts is not None:
            with contextlib.suppress(Exception):  # what hooks gave cannot be pickled
                write_note(self._file, (state, counts))
                self._noted = True
        self._spent += time.thread_time() - began
        self._worker.worker_end.enter()

    def leaves(self) -> bool:
        """After a batch: whether this process has too much memory, and has handed over."""
        worker_end = self._worker.worker_end
        if self._stays or not worker_end.own_memory(self._most):
            return False
        gc.collect()
        worker_end.give_back()
        used = worker_end.own_memory(self._most, True)
        if not used or self._has_nothing_to_do():
            return False
        try:
            why_not = self._hand_over()
        except Exception as error:  # noqa: BLE001 - of the user's hooks
            why_not = f"its state cannot be saved: {type(error).__name__}"
        if why_not is not None:
            self._stay(used, why_not)
            return False
        worker_end.over_limit(True, used)
        return True

    def _has_nothing_to_do(self) -> bool:
        """Whether the stream of samples has ended: what it is still asked for is to say so."""
        stream = self._worker.fetcher.stream
        return stream is not None and stream.ended

    def _state(self) -> Restore:
        dataset, iterator = self._worker.hooks()
        return Restore(dataset, iterator, RngState.now().text)

    def _hand_over(self) -> str | None:
        """Write down what another process goes on from; or why none can."""
        state = self._state()
        if self._worker.fetcher.stream is not None and not state.hooked:
            return "an iterable dataset without state_dict() and load_state_dict() cannot be moved"
        write_note(self._file, (state, self._worker.counts()))
        return None

    def _stay(self, used: int, why: str) -> None:
        self._stays = True
        write_note(self._file, why)
        self._worker.worker_end.over_limit(False, used)
