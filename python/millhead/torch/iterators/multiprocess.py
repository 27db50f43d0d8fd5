"""The iterator with workers: torch's order of events, millhead's memory and queues."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import time
import weakref
from typing import TYPE_CHECKING, Any, NoReturn

from torch.utils.data import _utils as torch_utils
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _DatasetKind,
    _MultiProcessingDataLoaderIter,
)

from millhead import _core
from millhead.torch.iterators.batch_schema import Learner
from millhead.torch.iterators.failed_samples import tolerance_of
from millhead.torch.iterators.fetch import length
from millhead.torch.iterators.inline import Profiled, advise_to_hook
from millhead.torch.iterators.pin_thread import SLICE_NS, Pinner, Taken
from millhead.torch.iterators.turns import BatchTasks
from millhead.torch.iterators.waiting import Waiting
from millhead.torch.iterators.worker_counts import WorkerCounts
from millhead.torch.iterators.worker_group import WorkerGroup
from millhead.torch.loader_stats import EpochLine
from millhead.torch.resume.progress import Progress
from millhead.torch.start.machine_limits import affinity_of_process, check_descriptors
from millhead.torch.workers import thread_caps
from millhead.torch.workers.batch_worker import BatchWorker, Job, WorkerPlan
from millhead.torch.workers.oversubscription import check_cluster, check_workers
from millhead.torch.workers.replacement import Replacements, WorkersLostError, limit_of
from millhead.watching.fetch_times import unwrapped

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from millhead.torch.loader import Keeper

#: The batch of an epoch at which the workers' threads are looked at; they are at its end, too.
CHECK_THREADS_AT = 256


class MultiprocessIter(Profiled, _MultiProcessingDataLoaderIter):
    """Workers, fed and read through shared memory."""

    _tasks_class = BatchTasks
    _from_worker = -1  # who made the batch that came last

    def __init__(self, loader: DataLoader[Any], keeper: Keeper) -> None:
        began = time.perf_counter_ns()
        self._shutdown = True  # until there is something to shut down
        self._pid = os.getpid()
        self._belong_to(loader, keeper)
        with self._progress.replaying(loader):
            # Not _MultiProcessingDataLoaderIter's: it would start torch's own workers and queues.
            _BaseDataLoaderIter.__init__(self, loader)
            self._set_up(loader, keeper, began)
            self._stats.setup_ns = time.perf_counter_ns() - began
            self._progress.forget_seed(loader)
            self._reset(loader, first_iter=True)
        self._drop(0 if self._progress.resume is None else self._progress.resume.since)

    def _set_up(self, loader: DataLoader[Any], keeper: Keeper, began_ns: int) -> None:
        """Everything but the tasks."""
        self._base_seed: int = self._progress.agree_on_seed(int(self._base_seed))
        self._profile_name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        self._prefetch_factor = loader.prefetch_factor
        self._in_order = loader.in_order
        if self._prefetch_factor <= 0:
            raise AssertionError(
                "prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter"
            )
        self._worker_init_fn, self._watch_plan = unwrapped(loader.worker_init_fn)
        assert keeper._engine is not None
        self._engine = keeper._engine
        self._iterable = self._dataset_kind == _DatasetKind.Iterable
        self._tasks = self._tasks_class(
            self._num_workers,
            self._prefetch_factor,
            self._in_order,
            self._iterable,
            self._auto_collation,
            loader.batch_size or 1,
        )
        self._failure: WorkersLostError | None = None
        self._limit = keeper.limit_batches
        self._prefetch_epoch = keeper.prefetch_epoch
        #: The next epoch, where it has begun: its progress, indices and turn.
        self._ahead: tuple[Progress, Any, Any] | None = None
        self._pinner: Pinner | None = None
        #: Whether workers may have states to save: generators, or hooks of the dataset.
        self._snapshots = self._tasks.brings_states and (self._progress.stateful or self._iterable)
        self._tolerance = tolerance_of(loader, keeper, self._base_seed)
        limit = limit_of(keeper.worker_memory, self._num_workers)
        check_descriptors(self._num_workers, 0 if limit is None else 1)
        check_workers(self._num_workers)
        self._open(loader, began_ns)
        try:
            if limit is not None:
                self._group.replacements = Replacements(limit, self._num_workers)
            self._learner = Learner(self._engine, self._consumer_end, self._tasks.under_way)
            self._start_workers(keeper, limit)
            self._connect()
        except BaseException:
            self._shutdown_workers()
            raise

    # --- starting ---

    def _open(self, loader: DataLoader[Any], began_ns: int) -> None:
        """The memory shared with workers, and what will start them."""
        self._meter = self._stats.meter
        if self._pin_memory:
            # The thread that pins waits for batches, not the consumer: no wait of the consumer's.
            self._meter = self._stats.sample_meter = _core.Meter()
        self._consumer_end = self._tasks.open(self._engine.pool, self._meter)
        self._group = WorkerGroup(
            self._engine,
            self._consumer_end,
            Job(self._dataset, self._collate_fn, self._worker_init_fn),
            loader.multiprocessing_context,
            self._timeout,
            self._stats,
            self._persistent_workers,
        )
        self._workers: list[Any] = self._group.handles  # torch's name for them
        self._counts = WorkerCounts(self._stats, self._tasks, self._group, began_ns)
        self._engine.under_way += self._tasks.under_way
        _live.add(self)
        self._shutdown = False

    def _start_workers(self, keeper: Keeper, limit: int | None) -> None:
        began_ns = time.perf_counter_ns()
        caps = thread_caps.decide(keeper.worker_threads)
        check_cluster(caps.cluster)
        plans = self._plans(keeper, caps, limit)
        self._restore(plans)
        self._group.start(plans)
        self._counts.started(caps, began_ns)

    def _plans(self, keeper: Keeper, caps: thread_caps.Caps, limit: int | None) -> list[WorkerPlan]:
        affinity = affinity_of_process()
        return [
            WorkerPlan(
                role=BatchWorker,
                number=number,
                workers=self._num_workers,
                depth=self._tasks.depth,
                iterable=self._iterable,
                auto_collation=self._auto_collation,
                drop_last=self._drop_last,
                base_seed=self._base_seed,
                snapshot_rng=keeper.snapshot_rng,
                tolerance=self._tolerance,
                maps=self._consumer_end.maps(number),
                affinity=affinity,
                caps=caps,
                memory=limit,
                guarded=limit is not None and not self._iterable,
                watch=self._watch_plan,
            )
            for number in range(self._num_workers)
        ]

    def _restore(self, plans: list[WorkerPlan]) -> None:
        """Tell the workers of a resumed epoch where to begin."""
        resume = self._progress.resume
        if resume is None:
            return
        skipped = 0
        for plan, restore in itertools.zip_longest(plans, resume.restores):
            seed = resume.seed_of(plan.number, self._iterable)
            plan.base_seed = plan.base_seed if seed is None else seed
            plan.restore = restore
            skipped += 0 if restore is None else restore.skip
        advise_to_hook(skipped)

    def _connect(self) -> None:
        """Where batches are taken from: the consumer end, or what pins them on the way."""
        self._outlet: Any = self._tasks.outlet(self._learner, self._meter)
        if self._pin_memory:
            unpack = self._tasks.unpack
            self._outlet = self._pinner = Pinner(self._outlet, self._in_order, unpack)
        grace_ns = 0 if self._pinner is None else SLICE_NS
        self._waiting = Waiting(self._outlet, self._tasks, self._group, grace_ns)

    # --- an epoch ---

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        """Begin an epoch: torch's ``__iter__`` calls this on a persistent iterator."""
        keeper, tasks = self._keeper(), self._tasks
        assert keeper is not None
        if not first_iter:
            # What was prefetched and not asked for is finished and dropped, as in torch: the
            # workers' generators have moved on by exactly that much.
            self._counts.next_epoch()
            while tasks.pending:
                self._take_next()
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            if not first_iter:
                self._progress = self._next_progress(loader, keeper)
            self._reset_sampler(loader, first_iter)
            turn = self._new_turn(loader)
        else:
            before = self._progress
            self._progress, self._sampler_iter, turn = ahead
            self._progress.adopt_workers(before)  # as it turned out
        progress = self._progress.install(keeper)
        tasks.begin(turn, progress)
        self._num_yielded = progress.yielded
        self._holes = 0  # tasks that could not be put
        self._first = True
        self._epoch = EpochLine(self._stats, progress, loader, keeper)
        for _ in range(tasks.under_way - len(tasks.pending)):
            self._try_put_index()

    def _next_progress(self, loader: DataLoader[Any], keeper: Keeper) -> Progress:
        """For another epoch of the same workers."""
        self._consumer_end.new_epoch()
        progress = Progress(loader, keeper, again=True)
        progress.base_seed = self._progress.base_seed
        progress.adopt_workers(self._progress)
        return progress

    def _reset_sampler(self, loader: DataLoader[Any], first_iter: bool) -> None:
        """Begin to ask for indices."""
        _BaseDataLoaderIter._reset(self, loader, first_iter)
        self._sampler_iter = self._progress.ask_again(self._sampler_iter)

    def _new_turn(self, loader: DataLoader[Any]) -> Any:
        return self._tasks.new_turn(self._progress)

    def _drop(self, count: int) -> None:
        """Fetch again and drop what was consumed after the workers' states were saved."""
        for _ in range(count):
            with contextlib.suppress(Exception):  # it was raised, and the run went on
                self._next_data()
        self._num_yielded = self._progress.yielded

    # --- one batch ---

    def _next_data(self) -> Any:
        if self._failure is not None:
            raise RuntimeError(self._failure.text) from self._failure.cause
        while self._holes:
            self._holes -= 1
            self._try_put_index()
        tasks = self._tasks
        while tasks.pending:
            worker, place, (kind, payload, samples, _) = self._take_next()
            if kind != _core.END:
                self._from_worker = worker
                # The parts of an iterable dataset have no common order to be ahead in.
                progress = self._progress
                progress.done(progress.consumed if self._iterable else place)
                return self._deliver(kind, payload, samples)
            # As in torch, it ends once: what it was asked for beyond that is not asked of others.
            if worker not in tasks.ended:
                tasks.ended.add(worker)
                self._try_put_index()
        if not self._progress.finished and (error := tasks.untold()) is not None:
            self._stats.errors_raised += 1
            error.reraise()
        self._end_epoch()
        raise StopIteration

    def _end_epoch(self) -> None:
        under_way = self._epoch is not None
        super()._end_epoch()
        if under_way:
            self._counts.check_threads()
        if not self._persistent_workers:
            self._shutdown_workers()

    def _take_next(self) -> tuple[int, int, Taken]:
        """What is due, or where order does not matter the first to come: the task, its batch's
        place in the epoch, and the result."""
        tasks, group, pinned = self._tasks, self._group, self._pinner is not None
        first = self._num_yielded == 0
        try:
            if group.replacements is not None:
                group.replacements.look(group)
            if pinned:
                self._stats.meter.begin_wait()
            due = tasks.pending[0]
            if not self._in_order:
                due = self._waiting.any_ready(due, first)
            taken: Taken | None = self._outlet.take(due, 0)
            if taken is None:
                taken = self._waiting.take(due, first)
        except WorkersLostError as lost:
            self._give_up(lost)
        if pinned:
            self._stats.meter.end_wait()
        place = tasks.done(due)
        ended = taken[0] == _core.END
        if self._snapshots or ended:
            self._progress.worker_done(due, taken[3], ended)
        return due, place, taken

    def _deliver(self, kind: int, payload: Any, samples: int) -> Any:
        """A batch for the consumer, and another task for the workers."""
        tasks, stats = self._tasks, self._stats
        try:
            if kind == _core.SLOT:
                self._learner.strangers = 0
            elif self._pinner is None:
                payload = tasks.unpack(kind, payload)
        finally:  # a batch that cannot be unpickled is lost, but not its place in the pipeline
            self._try_put_index()
            if tasks.brings_states:
                self._progress.next_worker = tasks.pending[0] if tasks.pending else 0
        if kind == _core.ERROR:
            stats.errors_raised += 1
            payload.reraise()
        stats.batch("slot" if kind == _core.SLOT else "general", samples)
        if self._first:
            self._first = False
            self._counts.first_batch()
        elif self._num_yielded == CHECK_THREADS_AT:  # an epoch may be long
            self._counts.check_threads()
        if self._tolerance is not None:
            self._counts.bring_faults()
        self._progress.delivered()
        return payload

    def _try_put_index(self) -> None:
        progress, tasks = self._progress, self._tasks
        under_way = progress.consumed + len(progress.ahead) + len(tasks.pending)
        if self._limit is not None and under_way >= self._limit:
            return self._begin_ahead()
        worker = tasks.next_worker()
        if worker is None:
            return None
        turn = tasks.turn
        try:
            index = next(self._sampler_iter)
            while turn.asked in progress.ahead:  # consumed before this epoch was resumed
                samples = length(index) if self._auto_collation else 1
                progress.sampler.asked(samples)
                turn.advance(samples)
                index = next(self._sampler_iter)
        except StopIteration:
            return self._begin_ahead()
        return self._put(worker, index, progress, turn)

    def _put(self, worker: int, index: Any, progress: Progress, turn: Any) -> None:
        samples = 1
        if self._auto_collation:
            samples = len(index) if type(index) is list else length(index)
        progress.sampler.asked(samples)
        wants_state = self._snapshots and progress.snapshot_due(turn.asked)
        try:
            due = self._tasks.put(worker, index, samples, turn, wants_state)
        except BaseException:
            self._holes += 1  # an index that cannot be pickled: its place waits for the next one
            raise
        if self._pinner is not None:
            self._pinner.expect(due)

    def _begin_ahead(self) -> None:
        """Where asked to, let workers that have no more to do in this epoch begin the next. Its
        batches go to the workers they would go to anyhow."""
        loader, keeper = self._millhead_loader(), self._keeper()
        if not self._prefetch_epoch or loader is None or keeper is None:
            return
        if self._ahead is None:
            progress = self._next_progress(loader, keeper)
            self._progress.next_rng = progress.rng_state
            turn = self._tasks.new_turn(progress)
            self._ahead = progress, iter(self._index_sampler), turn
        progress, indices, turn = self._ahead
        while (worker := self._tasks.next_ahead(turn)) is not None:
            if self._limit is not None and turn.asked >= self._limit:
                return
            try:
                index = next(indices)
            except StopIteration:
                return
            self._put(worker, index, progress, turn)

    # --- ending ---

    def note_state(self) -> None:
        """The loader's state knows already: each batch brought it along."""

    def _give_up(self, lost: WorkersLostError) -> NoReturn:
        """End the workers; this iterator has nothing else to say from now on."""
        self._failure = lost.with_traceback(None)  # which holds this iterator
        loader = self._millhead_loader()
        if loader is not None and loader._iterator is self:
            loader._iterator = None  # the next epoch starts afresh
        self._shutdown_workers()
        if lost.cause is not None and not isinstance(lost.cause, Exception):
            raise lost.cause  # Ctrl-C
        raise RuntimeError(lost.text) from lost.cause

    def _shutdown_workers(self, patience: float = torch_utils.MP_STATUS_CHECK_INTERVAL) -> None:
        if self._shutdown or torch_utils is None or torch_utils.python_exit_status is not False:
            return  # nothing to do, or the interpreter is going: the workers see that themselves
        if self._pid != os.getpid():
            return  # a copy of the iterator in a forked child: the workers are not its own
        self._counts.end()
        self._shutdown = True
        self._engine.under_way -= self._tasks.under_way
        self._tasks.pending.clear()
        _live.discard(self)
        self._consumer_end.stop()
        try:
            if self._pinner is not None:
                self._pinner.close()
        finally:
            self._group.end(patience)


#: Iterators with workers, to be ended before the interpreter is.
_live: weakref.WeakSet[MultiprocessIter] = weakref.WeakSet()


@atexit.register
def _end_at_exit() -> None:
    """End the workers before multiprocessing tries: it joins a stopped one for ever."""
    for iterator in list(_live):
        iterator._shutdown_workers(patience=0.5)
