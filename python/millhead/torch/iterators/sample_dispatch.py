"""The iterators of ``dispatch="sample"``: any worker takes any samples of any batch.

Batches are posted on a board that all workers read (src/workers/board.h). Whoever is free takes the
next few samples of the oldest batch and writes them into their rows of that batch's slot. What a
sample draws from the global generators depends on its position alone (position_rng.py), so the batches are
the same for any number of workers, none included.

Where a run does not fit into the slot (strings, ragged samples, no schema yet) its samples come
here as they are, and the batch is collated here. Where only some runs of a batch do, or they differ
in type, the batch is fetched once more, for all its samples to come here: they are keyed by their
position, so they are the same again. In every case the batch is default_collate of all its samples
in their order, however it was split.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import default_collate
from torch.utils.data.dataloader import _BaseDataLoaderIter

from millhead import _core
from millhead.torch.iterators.batch_schema import Learner
from millhead.torch.iterators.fetch import KeyedFetcher, as_list
from millhead.torch.iterators.inline import InlineIter
from millhead.torch.iterators.multiprocess import MultiprocessIter
from millhead.torch.iterators.pin_thread import Raised, Taken
from millhead.torch.iterators.turns import BatchTasks, dump_index
from millhead.torch.iterators.worker_group import WorkerGroup
from millhead.torch.ranks.batch_size import sampler_rank
from millhead.torch.resume.progress import Progress
from millhead.torch.workers import pickled_batch, thread_caps
from millhead.torch.workers.batch_worker import WorkerPlan
from millhead.torch.workers.position_rng import (
    Generators,
    batch_key,
    check_names,
    epoch_key,
)
from millhead.torch.workers.processes import Worker
from millhead.torch.workers.sample_worker import Part, SampleWorker

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from millhead.torch.loader import Keeper

#: Results a worker can leave beyond one for each batch under way, while the consumer is away.
SPARE_RESULTS = 16

#: After a batch that had to be fetched twice, at most so many are not tried in slots.
LONGEST_PENALTY = 1024


class Course:
    """An epoch's positions: what seeds its samples and batches.

    Positions are global: rank r of R takes r, r + R, r + 2 R, ... as DistributedSampler deals them
    out, so that ranks do not repeat each other's random numbers.
    """

    def __init__(self, loader: DataLoader[Any], progress: Progress, base_seed: int) -> None:
        self.key = epoch_key(base_seed, progress.epoch)
        self.rank, self.ranks = sampler_rank(loader) or (0, 1)
        self.asked, self._sample = progress.consumed, progress.skipped_samples
        #: Samples that all ranks have consumed, where the sampler deals out what remains.
        self._begin = progress.sampler.position()

    @property
    def sample(self) -> int:
        """The position of the next batch's first sample."""
        return self._begin + self.rank + self.ranks * self._sample

    def advance(self, samples: int) -> None:
        """A batch was asked for."""
        self.asked += 1
        self._sample += samples


def collate(samples: list[Any]) -> Any:
    """default_collate, in C where it can be."""
    batch = _core.collate_uniform(samples)
    return batch if batch is not NotImplemented else default_collate(samples)


class SampleSingleIter(InlineIter):
    """No worker: the same batches, in the caller, whose generators stay as they are."""

    _fetcher_class = KeyedFetcher
    _collate_in_c = staticmethod(_core.collate_uniform)

    _fetcher: KeyedFetcher

    def __init__(self, loader: DataLoader[Any], keeper: Keeper) -> None:
        super().__init__(loader, keeper)
        self._native = False
        self._course = Course(loader, self._progress, self._base_seed)
        self._fetcher.generators = Generators(check_names(keeper.rng))
        self._fetcher.key, self._fetcher.stride = self._course.key, self._course.ranks
        if (tolerance := self._fetcher.tolerance) is not None:
            tolerance.seed, tolerance.stride = self._course.key, self._course.ranks

    def _load_in_python(self, index: Any, samples: Any) -> Any:
        fetcher, course, numbers = self._fetcher, self._course, as_list(index)
        batch_number, self._first = course.asked, course.sample
        course.advance(len(numbers))
        while self._passed:
            course.advance(self._passed.pop(0))
        with fetcher.generators.borrowed():
            samples = self._fetch(numbers)
            fetcher.generators.seed(batch_key(course.key, batch_number))
            path, batch = fetcher.collate(samples)
        self._stats.batch(path, len(samples))
        self._stats.meter.end_wait()
        return batch


@dataclass
class Batch:
    """A batch on the board."""

    numbers: list[Any]
    number: int  # in the epoch
    sample: int  # the position of its first sample
    key: int  # of its epoch
    parts: list[Part] = field(default_factory=list)
    marks: int = 0

    def fatal(self) -> Part | None:
        """The part with the exception that ends the batch: the lowest one's."""
        return min((p for p in self.parts if p.fatal), key=lambda p: p.first, default=None)

    def is_torn(self) -> bool:
        """Whether neither the slot nor the parts have all samples in one kind."""
        known = sum(p.count for p in self.parts if p.samples is not None or p.kept == 0)
        return bool(self.marks & _core.UNLIKE) or (
            bool(self.marks & _core.APART) and known < len(self.numbers)
        )

    def samples(self) -> list[Any]:
        """All samples, of a batch that is not in its slot."""
        parts = sorted((p for p in self.parts if p.samples is not None), key=lambda p: p.first)
        return [sample for part in parts for sample in part.samples or ()]

    def void_rows(self) -> set[int]:
        """Rows of the slot that no sample was written to."""
        return {
            row
            for part in self.parts
            if part.faults is not None
            for row in range(part.first + part.kept, part.first + part.count)
        }


def without_rows(batch: Any, rows: list[int]) -> Any:
    """The batch with only these rows of each of its tensors."""
    if isinstance(batch, torch.Tensor):
        return batch[rows]
    if isinstance(batch, dict):
        return {key: without_rows(value, rows) for key, value in batch.items()}
    parts = [without_rows(value, rows) for value in batch]
    return parts if isinstance(batch, list) else type(batch)(*parts)


class Assembler:
    """Puts batches on the board and together again: a consumer end whose workers are batches.

    ``take`` and ``ready`` are a ConsumerEnd's, with a batch's position where a ConsumerEnd has a worker's
    number. ``learner`` sees every batch that did not come by its slot.
    """

    def __init__(
        self,
        consumer_end: _core.ConsumerEnd,
        meter: _core.Meter,
        generators: Generators,
        learner: Learner,
    ) -> None:
        self._consumer_end = consumer_end
        self._meter = meter
        self._generators = generators
        self._learner = learner
        self._open: dict[int, Batch] = {}
        self._ready: deque[int] = deque()  # positions, as they became whole
        self._failed_starts: list[Part] = []  # every later batch ends with the first
        self._told = False  # whether one did
        self._penalty = self._without_slot = 0
        self.faults = (0, 0, "")  # skipped, replaced, the first in words

    def post(self, position: int, batch: Batch) -> None:
        """Let workers take its samples."""
        slot = self._without_slot == 0
        self._without_slot -= not slot
        self._open[position] = batch
        try:
            self._put(position, batch, slot, again=False)
        except BaseException:
            del self._open[position]
            raise

    def _put(self, position: int, batch: Batch, slot: bool, again: bool) -> None:
        if not batch.numbers:  # nothing for anybody to finish
            batch.marks = _core.APART
            self._ready.append(position)
            return
        count = len(batch.numbers)
        self._consumer_end.publish(
            position, batch.numbers, count, batch.sample, batch.key, slot, again
        )

    # --- as a consumer end ---

    def ready(self, timeout_ns: int) -> int | None:
        """The position of a batch that is whole, or None."""
        self._drain()
        while not self._ready:
            if not self._receive(timeout_ns):
                return None
        return self._ready[0]

    def take(self, position: int, timeout_ns: int) -> Taken | None:
        """A ConsumerEnd's answer, or None where it is not whole in time."""
        self._drain()
        while position not in self._ready:
            if not self._receive(timeout_ns):
                return None
        self._ready.remove(position)
        self._meter.end_wait()
        batch = self._open.pop(position)
        batch.parts += self._failed_starts
        self._told = self._told or bool(self._failed_starts)
        return self._assemble(position, batch)

    def untold(self) -> Any:
        """The exception of a worker that did not start, where no batch came after it; else None."""
        self._drain()
        if self._told or not self._failed_starts:
            return None
        self._told = True
        return self._failed_starts[0].error

    def _drain(self) -> None:
        while self._receive(0):
            pass

    def _receive(self, timeout_ns: int) -> bool:
        """One more word from a worker; False when none came in time."""
        worker = self._consumer_end.ready(timeout_ns)
        received = None if worker is None else self._consumer_end.receive(worker)
        if received is None:
            return False
        position, kind, said = received
        if kind == _core.PART:
            parts = self._failed_starts if position is None else self._open[position].parts
            parts.append(pickled_batch.loads(said))
            return True
        assert position is not None
        batch = self._open[position]
        batch.marks = said
        if batch.fatal() is None and batch.is_torn():
            self._fetch_again(position, batch)
        else:
            self._ready.append(position)
        return True

    def _fetch_again(self, position: int, batch: Batch) -> None:
        self._penalty = min(2 * self._penalty + 1, LONGEST_PENALTY)
        self._without_slot = self._penalty
        self._consumer_end.drop(position)
        batch.parts.clear()
        batch.marks = 0
        self._put(position, batch, slot=False, again=True)

    # --- putting together ---

    def _assemble(self, position: int, batch: Batch) -> Taken:
        try:
            return self._finish(position, batch)
        except Exception as error:  # noqa: BLE001 - of collate: the consumer's, in its place
            return _core.ERROR, Raised(error), 0, None

    def _finish(self, position: int, batch: Batch) -> Taken:
        in_slot = not batch.marks
        void = batch.void_rows()
        left = len(batch.numbers) - len(void)
        fatal = batch.fatal()
        if fatal is None and batch.numbers and left == 0:
            fatal = min(batch.parts, key=lambda part: part.first)
        if fatal is not None:
            if batch.numbers:
                self._consumer_end.drop(position)
            return _core.ERROR, fatal.error, 0, None
        self._count_faults(batch)
        if in_slot:
            self._penalty //= 2
            whole = self._consumer_end.build(position)
            if void:
                rows = [row for row in range(len(batch.numbers)) if row not in void]
                whole = without_rows(whole, rows)
            return _core.SLOT, whole, left, None
        if batch.numbers:
            self._consumer_end.drop(position)
        return _core.GENERAL, self._collate(batch), left, None

    def _collate(self, batch: Batch) -> Any:
        samples = batch.samples()
        if _core.collate_untouched():
            whole = collate(samples)  # draws no random numbers
        else:
            with self._generators.borrowed():
                self._generators.seed(batch_key(batch.key, batch.number))
                whole = collate(samples)
        self._learner.learn(whole)
        return whole

    def _count_faults(self, batch: Batch) -> None:
        skipped, replaced, first = self.faults
        for part in sorted(batch.parts, key=lambda part: part.first):
            if part.faults is not None:
                skipped += part.faults.skipped
                replaced += part.faults.replaced
                first = first or part.faults.first
        self.faults = (skipped, replaced, first)


class SampleTasks(BatchTasks):
    """Batches that workers share. A task is known by its position; ``turn`` is a Course."""

    brings_states = False
    rng: tuple[str, ...] = ()

    def open(self, pool: _core.Pool, meter: _core.Meter) -> _core.ConsumerEnd:
        self.depth = self.under_way + SPARE_RESULTS
        self._consumer_end = _core.ConsumerEnd(
            pool, self.workers, self.depth, self.under_way, dump_index, meter, board=True
        )
        return self._consumer_end

    def outlet(self, learner: Learner, meter: _core.Meter) -> Assembler:
        generators = Generators(self.rng)
        self.assembler = Assembler(self._consumer_end, meter, generators, learner)
        return self.assembler

    def begin(self, turn: Course, progress: Progress) -> None:
        self.turn = turn
        self._places: dict[int, int] = {}

    def next_worker(self) -> int | None:
        """Any worker; None: enough batches are under way."""
        return 0 if len(self.pending) < self.under_way else None

    def put(self, worker: int, index: Any, samples: int, turn: Any, wants_state: bool) -> int:
        position, batch = self._position, Batch(index, turn.asked, turn.sample, turn.key)
        turn.advance(samples)
        self.assembler.post(position, batch)
        self._places[position] = batch.number
        self.pending.append(position)
        self._position += 1
        return position

    def done(self, position: int) -> int:
        self.pending.remove(position)
        return self._places.pop(position)

    def unpack(self, kind: int, payload: Any) -> Any:
        """The batch, or its exception, which the assembler has unpacked."""
        return payload

    def faults(self) -> tuple[int, int, str]:
        return self.assembler.faults

    def untold(self) -> Any:
        """The exception of a worker that did not start, where no batch came after it."""
        return self.assembler.untold()  # no batch is due: the thread that pins is idle

    def hurry(self, position: int, handles: list[Worker]) -> None:
        handles[-1].hurry()  # all of them have a part in it

    def culprit(self, position: int, workers: WorkerGroup) -> int:
        """Whoever has a sample of the batch that is due; else whoever is at work."""
        views = workers.views()
        at_work = [w for w, view in enumerate(views) if view["state"] != "idle"]
        return min(at_work, key=lambda w: views[w]["position"] != position, default=0)


class SampleIter(MultiprocessIter):
    """Workers that share batches."""

    _tasks_class = SampleTasks
    _tasks: SampleTasks

    def __init__(self, loader: DataLoader[Any], keeper: Keeper) -> None:
        self._dealt = sampler_rank(loader) or (0, 1)
        if loader.pin_memory and not _core.collate_untouched():
            raise ValueError(
                "dispatch='sample' with pin_memory=True needs torch's default_collate_fn_map as it "
                "is: use dispatch='batch'"
            )
        super().__init__(loader, keeper)

    def _plans(self, keeper: Keeper, caps: thread_caps.Caps, limit: int | None) -> list[WorkerPlan]:
        rng = self._tasks.rng = check_names(keeper.rng)
        _, ranks = self._dealt
        return [
            replace(plan, role=SampleWorker, rng=rng, stride=ranks, guarded=False)
            for plan in super()._plans(keeper, caps, limit)
        ]

    def _next_progress(self, loader: DataLoader[Any], keeper: Keeper) -> Progress:
        return Progress(loader, keeper)

    def _reset_sampler(self, loader: DataLoader[Any], first_iter: bool) -> None:
        """Each epoch begins in the same way, whoever keeps workers: a sampler, a base seed."""
        if not first_iter:
            _BaseDataLoaderIter._reset(self, loader, first_iter)
            drawn = torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
            self._base_seed = self._progress.agree_on_seed(int(drawn.item()))
        self._sampler_iter = map(as_list, self._progress.ask_again(self._sampler_iter))

    def _new_turn(self, loader: DataLoader[Any]) -> Course:
        return Course(loader, self._progress, self._base_seed)
