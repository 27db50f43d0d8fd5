"""The iterators of ``dispatch="sample"``: any worker takes any samples of any batch.

Batches are posted on a board that all workers read (src/workers/board.h). Whoever is free takes the
next few samples of the oldest batch and writes them into their rows of that batch's slot. What a
sample draws from the global generators depends on its position alone (position_rng.py), so the batches are
the same for any number of workers, none included.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from millhead import _core
from millhead.torch.iterators.assembler import Assembler, Batch
from millhead.torch.iterators.batch_schema import Learner
from millhead.torch.iterators.fetch import KeyedFetcher, as_list
from millhead.torch.iterators.inline import InlineIter
from millhead.torch.iterators.multiprocess import MultiprocessIter
from millhead.torch.iterators.turns import BatchTasks, dump_index
from millhead.torch.iterators.worker_group import WorkerGroup
from millhead.torch.ranks.batch_size import sampler_rank
from millhead.torch.resume.progress import Progress
from millhead.torch.workers import thread_caps
from millhead.torch.workers.batch_worker import WorkerPlan
from millhead.torch.workers.position_rng import (
    Generators,
    batch_key,
    check_names,
    epoch_key,
)
from millhead.torch.workers.processes import Worker
from millhead.torch.workers.sample_worker import SampleWorker

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from millhead.torch.loader import Keeper

#: Results a worker can leave beyond one for each batch under way, while the consumer is away.
SPARE_RESULTS = 16


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
