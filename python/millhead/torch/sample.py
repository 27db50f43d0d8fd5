"""The iterators of ``dispatch="sample"``: any worker takes any samples of any batch.

Batches are posted on a board that all workers read (src/workers/board.h). Whoever is free takes the
next few samples of the oldest batch and writes them into their rows of that batch's slot. What a
sample draws from the global generators depends on its position alone (_rng.py), so the batches are
the same for any number of workers, none included.

Where a run does not fit into the slot (strings, ragged samples, no schema yet) its samples come
here as they are, and the batch is collated here. Where only some runs of a batch do, or they differ
in type, the batch is fetched once more, for all its samples to come here: they are keyed by their
position, so they are the same again. In every case the batch is default_collate of all its samples
in their order, however it was split.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import default_collate
from torch.utils.data.dataloader import _BaseDataLoaderIter

from millhead import Advice, _core
from millhead.torch import _general
from millhead.torch._batch_size import dealt_to
from millhead.torch._pin import Raised, Taken
from millhead.torch._rng import Generators, batch_key, check_names, epoch_key, sample_key
from millhead.torch._run import Part, SampleWorker
from millhead.torch.fetch import as_list
from millhead.torch.iterator import SingleIter
from millhead.torch.multi import MultiIter, dump_index
from millhead.torch.resume import Progress
from millhead.torch.worker import WorkerPlan

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
        self.rank, self.ranks = dealt_to(loader) or (0, 1)
        self._batch, self._sample = progress.consumed, progress.skipped_samples
        #: Samples that all ranks have consumed, where the sampler deals out what remains.
        self._begin = progress.sampler_position()

    def advance(self, samples: int) -> tuple[int, int]:
        """The next batch: its number, and the position of its first sample."""
        here = self._batch, self._begin + self.rank + self.ranks * self._sample
        self._batch += 1
        self._sample += samples
        return here


def collate(samples: list[Any]) -> tuple[bool, Any]:
    """default_collate; whether C could do it, and the batch."""
    batch = _core.collate_uniform(samples)
    return (True, batch) if batch is not NotImplemented else (False, default_collate(samples))


class SampleSingleIter(SingleIter):
    """No worker: the same batches, in the caller, whose generators stay as they are."""

    def __init__(self, loader: DataLoader[Any], keeper: Keeper) -> None:
        super().__init__(loader, keeper)
        self._native = False
        self._generators = Generators(check_names(keeper.rng))
        self._course = Course(loader, self._progress, self._base_seed)
        if self._tolerance is not None:
            self._tolerance.seed, self._tolerance.stride = self._course.key, self._course.ranks

    def _load_in_python(self, index: Any, samples: Any) -> Any:
        numbers = as_list(index)
        batch_number, self._first = self._course.advance(len(numbers))
        while self._passed:
            self._course.advance(self._passed.pop(0))
        with self._generators.borrowed():
            samples = self._fetch_keyed(numbers)
            self._generators.seed(batch_key(self._course.key, batch_number))
            in_c, batch = collate(samples)
        self._stats.batch("slot" if in_c else "general", len(samples))
        self._stats.meter.end_wait()
        return batch

    def _fetch_keyed(self, numbers: list[Any]) -> list[Any]:
        if self._tolerance is not None:
            samples: list[Any] = self._fetch_tolerantly(self._tolerance, numbers)
            return samples
        samples = []
        try:
            self._fetch_some(numbers, 0, samples)
        except Exception as error:
            self._note_sample(error, numbers[len(samples) :])
            raise
        return samples

    def _fetch_some(self, numbers: list[Any], first: int, samples: list[Any]) -> None:
        course, meter, dataset = self._course, self._stats.meter, self._source(self._dataset)
        for offset, number in enumerate(numbers, first):
            self._generators.seed(sample_key(course.key, self._first + course.ranks * offset))
            _core.fetch(dataset, [number], samples, meter)


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
    """Puts batches on the board and together again: a channel whose workers are batches.

    ``take`` and ``ready`` are a Channel's, with a batch's position where a Channel has a worker's
    number. ``learn()`` gives the function that is told of every batch that did not come by its
    slot, or None once nobody listens.
    """

    def __init__(
        self,
        channel: _core.Channel,
        meter: _core.Meter,
        generators: Generators,
        learn: Callable[[], Callable[[Any], None] | None],
    ) -> None:
        self._channel = channel
        self._meter = meter
        self._generators = generators
        self._learn = learn
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
        self._channel.post(position, batch.numbers, count, batch.sample, batch.key, slot, again)

    # --- as a channel ---

    def ready(self, timeout_ns: int) -> int | None:
        """The position of a batch that is whole, or None."""
        self._drain()
        while not self._ready:
            if not self._receive(timeout_ns):
                return None
        return self._ready[0]

    def take(self, position: int, timeout_ns: int) -> Taken | None:
        """A Channel's answer, or None where it is not whole in time."""
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
        worker = self._channel.ready(timeout_ns)
        received = None if worker is None else self._channel.receive(worker)
        if received is None:
            return False
        position, kind, said = received
        if kind == _core.PART:
            parts = self._failed_starts if position is None else self._open[position].parts
            parts.append(_general.loads(said))
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
        self._channel.drop(position)
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
                self._channel.drop(position)
            return _core.ERROR, fatal.error, 0, None
        self._count_faults(batch)
        if in_slot:
            self._penalty //= 2
            whole = self._channel.build(position)
            if void:
                rows = [row for row in range(len(batch.numbers)) if row not in void]
                whole = without_rows(whole, rows)
            return _core.SLOT, whole, left, None
        if batch.numbers:
            self._channel.drop(position)
        return _core.GENERAL, self._collate(batch), left, None

    def _collate(self, batch: Batch) -> Any:
        samples = batch.samples()
        if _core.collate_untouched():
            _, whole = collate(samples)  # draws no random numbers
        else:
            with self._generators.borrowed():
                self._generators.seed(batch_key(batch.key, batch.number))
                _, whole = collate(samples)
        learn = self._learn()
        if learn is not None:
            learn(whole)
        return whole

    def _count_faults(self, batch: Batch) -> None:
        skipped, replaced, first = self.faults
        for part in sorted(batch.parts, key=lambda part: part.first):
            if part.faults is not None:
                skipped += part.faults.skipped
                replaced += part.faults.replaced
                first = first or part.faults.first
        self.faults = (skipped, replaced, first)


class SampleIter(MultiIter):
    """Workers that share batches. What MultiIter does for workers, it does here for batches:
    ``_pending`` holds positions."""

    _outlet: Any
    _assembler: Assembler

    def __init__(self, loader: DataLoader[Any], keeper: Keeper) -> None:
        self._rng = check_names(keeper.rng)
        _, self._ranks = dealt_to(loader) or (0, 1)
        if loader.pin_memory and not _core.collate_untouched():
            raise ValueError(
                "dispatch='sample' with pin_memory=True needs torch's default_collate_fn_map as it "
                "is: use dispatch='batch'"
            )
        super().__init__(loader, keeper)

    def _make_channel(self, meter: _core.Meter) -> _core.Channel:
        self._depth = self._under_way + SPARE_RESULTS
        return _core.Channel(
            self._engine.pool,
            self._num_workers,
            self._depth,
            self._under_way,
            dump_index,
            meter,
            board=True,
        )

    def _make_outlet(self, meter: _core.Meter) -> Assembler:
        learn = weakref.WeakMethod(self._learn_quietly)
        self._assembler = Assembler(self._channel, meter, Generators(self._rng), learn)
        return self._assembler

    def _plan(self, number: int, trainer: int, affinity: frozenset[int] | None) -> WorkerPlan:
        plan = super()._plan(number, trainer, affinity)
        return replace(plan, role=SampleWorker, rng=self._rng, stride=self._ranks, guarded=False)

    def _next_progress(self, loader: DataLoader[Any], keeper: Keeper) -> Progress:
        return Progress(loader, keeper)

    def _reset_sampler(self, loader: DataLoader[Any], first_iter: bool) -> None:
        """Each epoch begins in the same way, whoever keeps workers: a sampler, a base seed."""
        if not first_iter:
            _BaseDataLoaderIter._reset(self, loader, first_iter)
            drawn = torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
            self._base_seed = self._progress.agree_on_seed(int(drawn.item()))
        self._sampler_iter = self._progress.ask_again(self._sampler_iter)
        self._course = Course(loader, self._progress, self._base_seed)
        self._places: dict[int, int] = {}

    def _next_data(self) -> Any:
        at_end = not self._pending and not self._holes and not self._progress.finished
        if at_end and self._failure is None:
            error = self._assembler.untold()  # no batch is due: the thread that pins is idle
            if error is not None:
                self._stats.errors_raised += 1
                error.reraise()
        return super()._next_data()

    def _try_put_index(self) -> None:
        progress = self._progress
        under_way = progress.consumed + len(progress.ahead) + len(self._pending)
        full = len(self._pending) >= self._under_way
        if full or (self._limit is not None and under_way >= self._limit):
            return
        number = None
        while number is None or number in progress.ahead:  # consumed before this epoch was resumed
            try:
                numbers = as_list(next(self._sampler_iter))
            except StopIteration:
                return
            progress.put(len(numbers))
            number, sample = self._course.advance(len(numbers))
        try:
            self._assembler.post(self._position, Batch(numbers, number, sample, self._course.key))
        except BaseException:
            self._holes += 1
            raise
        self._places[self._position] = number
        self._pending.append(self._position)
        if self._pinner is not None:
            self._pinner.expect(self._position)
        self._position += 1

    def _place_of(self, position: int) -> int:
        return self._places.pop(position)

    def _due_worker(self) -> int:
        return 0

    def _unpack(self, kind: int, payload: Any) -> Any:
        return payload

    def _learn_quietly(self, batch: Any) -> None:
        with contextlib.suppress(Advice):  # where warnings are errors, the batch matters more
            self._learn(batch)

    def _has_taken(self, position: int, taken: Taken) -> None:
        pass  # nothing is counted by worker

    def _seen_faults(self) -> tuple[int, int, str]:
        return self._assembler.faults

    def _hurry(self, position: int) -> None:
        self._workers[-1].hurry()  # all of them have a part in it

    def _culprit(self, due: int) -> int:
        """Whoever has a sample of the batch that is due; else whoever is at work."""
        views = [self._channel.view(worker) for worker in range(self._num_workers)]
        at_work = [w for w, view in enumerate(views) if view["state"] != "idle"]
        return min(at_work, key=lambda w: views[w]["position"] != due, default=0)
