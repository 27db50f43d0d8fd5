"""Which worker gets which batch, as torch deals them out: in turn, so many ahead."""

from __future__ import annotations

import itertools
import pickle
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from millhead import _core
from millhead.torch.iterators.batch_schema import Learner
from millhead.torch.resume.progress import Progress
from millhead.torch.workers import pickled_batch
from millhead.torch.workers.processes import Worker

if TYPE_CHECKING:
    from millhead.torch.iterators.worker_group import WorkerGroup

#: Places in the rings of all workers of an iterable dataset: some 16 KB of each are used.
RING_PLACES = 8192


class Turn:
    """An epoch: whose turn it is, and which tasks are under way."""

    def __init__(self, progress: Progress, workers: int, items: int) -> None:
        self.asked = progress.consumed  # batches of the epoch
        #: Position in the epoch of the next batch's first sample.
        self.sample = progress.skipped_samples or self.asked * items
        self.pending: deque[int] = deque()  # workers, in the order their batches are due
        #: For each worker the places in the epoch of the batches it was asked for.
        self.places: list[deque[int]] = [deque() for _ in range(workers)]
        self.cycle = itertools.cycle(range(workers))
        for _ in range(progress.next_worker):
            next(self.cycle)

    def advance(self, samples: int) -> None:
        """A batch was asked for."""
        self.asked += 1
        self.sample += samples


@dataclass(eq=False)
class BatchTasks:
    """The tasks of workers that make whole batches. A task is known by its worker's number."""

    #: Whether a worker's results bring the states it was in after them.
    brings_states: ClassVar[bool] = True

    workers: int
    prefetch: int
    in_order: bool
    iterable: bool
    batched: bool
    items: int  # of a batch
    #: Workers whose stream has ended.
    ended: set[int] = field(default_factory=set)
    #: Of the epoch, in the order they are due.
    pending: deque[int] = field(default_factory=deque)
    turn: Any = None

    def __post_init__(self) -> None:
        self.under_way = self.workers * self.prefetch
        #: The most tasks one worker may have.
        self.depth = self.prefetch
        if self.iterable:
            # When the streams of the others have ended, all that are under way are the last one's.
            self.depth = min(self.under_way, max(self.prefetch, RING_PLACES // self.workers))
        self._position = 0  # of the next task; never reused, so a late result cannot be mistaken
        self._counts = [0] * self.workers  # of each worker's tasks
        self._drawn = [0] * self.workers  # items asked of each worker's stream

    def open(self, pool: _core.Pool, meter: _core.Meter) -> _core.ConsumerEnd:
        """The consumer's end of the memory that tasks and results go through."""
        self._consumer_end = _core.ConsumerEnd(
            pool, self.workers, self.depth, self.under_way, dump_index, meter
        )
        return self._consumer_end

    def outlet(self, learner: Learner, meter: _core.Meter) -> Any:
        """Where batches are taken from."""
        self._learner = learner
        return self._consumer_end

    def new_turn(self, progress: Progress) -> Turn:
        """For an epoch that begins."""
        return Turn(progress, self.workers, self.items)

    def begin(self, turn: Any, progress: Progress) -> None:
        """Tasks are this epoch's from now on."""
        self.turn, self.pending = turn, turn.pending
        self._drawn = [worker.batches * self.items for worker in progress.workers]
        self.ended = {n for n, worker in enumerate(progress.workers) if worker.ended}

    def next_worker(self) -> int | None:
        """The next one in turn that goes on and has room for a task."""
        room = self.depth
        if not self.in_order:
            going_on = max(self.workers - len(self.ended), 1)
            room = min(room, self.under_way // going_on)
        for _ in range(self.workers):
            worker = next(self.turn.cycle)
            if worker not in self.ended and self._counts[worker] < room:
                return int(worker)
        return None

    def next_ahead(self, turn: Turn) -> int | None:
        """The same for the epoch that comes, where a worker has no more to do in this one."""
        worker = turn.asked % self.workers
        return worker if self._counts[worker] < self.prefetch else None

    def put(self, worker: int, index: Any, samples: int, turn: Any, wants_state: bool) -> int:
        """Add a task; what it is known by."""
        if self.iterable:  # no index says which samples: number them as the worker will
            first = self._drawn[worker]
            index = range(first, first + samples) if self.batched else first
            self._drawn[worker] += samples
        self._consumer_end.put(worker, self._position, index, samples, turn.sample, wants_state)
        self._position += 1
        self._counts[worker] += 1
        turn.places[worker].append(turn.asked)
        turn.pending.append(worker)
        turn.asked += 1
        turn.sample += samples
        return worker

    def done(self, worker: int) -> int:
        """Its result is there: which batch of the epoch that is."""
        self.pending.remove(worker)  # the first one, when in order
        self._counts[worker] -= 1
        return int(self.turn.places[worker].popleft())

    def unpack(self, kind: int, payload: Any) -> Any:
        """The batch, or the exception as torch wraps it."""
        if kind == _core.LOST:
            raise payload
        if kind == _core.ERROR:
            return pickle.loads(payload[0])
        if kind != _core.GENERAL:
            return payload
        batch = pickled_batch.loads(payload)
        self._learner.learn(batch)
        return batch

    def faults(self) -> tuple[int, int, str]:
        """Samples skipped and replaced since the workers started, and the first, in words."""
        return self._consumer_end.faults()

    def untold(self) -> Any:
        """An exception that belongs to no batch, as torch wraps it; else None."""
        return None

    def hurry(self, worker: int, handles: list[Worker]) -> None:
        """This task is waited for."""
        if worker != 0:  # the first has a head start anyway
            handles[worker].hurry()

    def culprit(self, worker: int, workers: WorkerGroup) -> int:
        """The worker to ask about a task that does not come."""
        return worker


def dump_index(index: Any) -> bytes:
    """An index of any kind, for a worker."""
    return pickle.dumps(index, 5)
