"""The iterator with workers: torch's order of events, millhead's memory and queues."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import pickle
import signal
import time
import weakref
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from torch.utils.data import _utils as torch_utils
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _DatasetKind,
    _MultiProcessingDataLoaderIter,
)

from millhead import Advice, _core
from millhead.torch import _general, _threads
from millhead.torch._crowding import check_cluster, check_threads, check_workers
from millhead.torch._dask import streaming_of
from millhead.torch._faults import Tolerance, choices_of
from millhead.torch._limits import affinity_of_process, check_descriptors
from millhead.torch._pin import Pinner, Taken
from millhead.torch._replace import Replacements, limit_of
from millhead.torch._start import start_workers
from millhead.torch._stats import SAY_AFTER_S, EpochLine, advise
from millhead.torch._template import reap_retired
from millhead.torch._watched_workers import unwrapped, watched_plans
from millhead.torch._workers import Descriptor, Worker, describe_exit, end_all, hint_for_exit
from millhead.torch.fetch import length
from millhead.torch.iterator import Profiled, advise_to_hook
from millhead.torch.resume import Progress
from millhead.torch.worker import DUMP_STACK, BatchWorker, Job, WorkerPlan

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from millhead.torch.loader import Keeper

#: Slots beyond the batches under way: `for b in loader` holds one while it asks for the next.
SPARE_SLOTS = 3
#: Places in the rings of all workers of an iterable dataset: some 16 KB of each are used.
RING_PLACES = 8192
#: How long to wait for a result before looking at signals, workers and the clock.
SLICE_NS = 100_000_000
#: The batch of an epoch at which the workers' threads are looked at; they are at its end, too.
CHECK_THREADS_AT = 256


@dataclass(frozen=True)
class Schema:
    """What batches look like: their structure with None for each leaf, and the bytes they take."""

    structure: Any
    pickled: bytes
    slot_bytes: int


class Turn:
    """Whose turn it is in an epoch, and which tasks are under way."""

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


class MultiIter(Profiled, _MultiProcessingDataLoaderIter):
    """Workers, fed and read through shared memory."""

    def __init__(self, loader: DataLoader[Any], keeper: Keeper) -> None:
        began = time.perf_counter_ns()
        self._shutdown = True  # until there is something to shut down
        self._pid = os.getpid()
        self._workers: list[Worker] = []  # type: ignore[assignment]
        self._keeper = weakref.ref(keeper)  # a loader is its own: it must not be kept alive
        self._progress = Progress(loader, keeper).install(keeper)
        with self._progress.replaying(loader):
            # Not _MultiProcessingDataLoaderIter's: it would start torch's own workers and queues.
            _BaseDataLoaderIter.__init__(self, loader)
            self._set_up(loader, keeper)
            self._stats.setup_ns = time.perf_counter_ns() - began
            self._began_ns = began
            self._progress.forget_seed(loader)
            self._reset(loader, first_iter=True)
        self._drop(0 if self._progress.resume is None else self._progress.resume.since)

    def _set_up(self, loader: DataLoader[Any], keeper: Keeper) -> None:
        """Everything but the tasks."""
        self._base_seed: int = self._progress.agree_on_seed(int(self._base_seed))
        self._profile_name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        self._millhead_loader = weakref.ref(loader)
        self._prefetch_factor = loader.prefetch_factor
        self._in_order = loader.in_order
        if self._prefetch_factor <= 0:
            raise AssertionError(
                "prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter"
            )
        self._worker_init_fn, self._watch_plan = unwrapped(loader.worker_init_fn)
        self._stats = keeper._stats
        assert keeper._engine is not None
        self._engine = keeper._engine
        self._under_way = self._num_workers * self._prefetch_factor
        self._position = 0  # of the next task; never reused, so a late result cannot be mistaken
        self._strangers = 0  # batches in a row that looked unlike the schema
        self._failure: str | None = None
        self._failure_cause: BaseException | None = None
        self._counted = (0, 0, 0, 0)
        self._tasks = [0] * self._num_workers
        self._pending: deque[int] = deque()  # workers, in the order their batches are due
        self._limit = keeper.limit_batches
        self._prefetch_epoch = keeper.prefetch_epoch
        self._worker_threads = keeper.worker_threads
        #: The next epoch, where it has begun: its progress, indices and turn.
        self._ahead: tuple[Progress, Any, Turn] | None = None
        self._pinner: Pinner | None = None
        #: Where batches are taken from: the channel, or what pins them on the way.
        self._outlet: Any
        self._iterable = self._dataset_kind == _DatasetKind.Iterable
        self._items = loader.batch_size or 1
        self._drawn = [0] * self._num_workers  # items asked of each worker's stream
        #: Whether workers may have states to save: generators, or hooks of the dataset.
        self._snapshot_rng = keeper.snapshot_rng
        self._snapshots = self._progress.stateful or self._iterable
        #: What deals with samples that raise an exception; None: they are the caller's to see.
        self._tolerance: Tolerance | None = None
        if keeper.on_error != "raise":
            self._tolerance = Tolerance(keeper.on_error, choices_of(loader), self._base_seed)
        self._faults = (0, 0)  # samples skipped and replaced, of those the channel counted
        limit = limit_of(keeper.worker_memory, self._num_workers)
        #: Puts others in the place of workers with too much memory; None: there is no limit.
        self._replacements: Replacements | None = None
        self._later = 0.0  # a new worker has as long as any, from when it was started
        check_descriptors(self._num_workers, 0 if limit is None else 1)
        check_workers(self._num_workers)
        self._open_channel()
        self._started = time.monotonic()
        self._shutdown = False
        try:
            if limit is not None:
                context = loader.multiprocessing_context
                self._replacements = Replacements(limit, self._num_workers, context)
            if self._engine.schema is not None:
                self._use_schema(self._engine.schema)
            self._start_workers(loader)
            if self._pin_memory:
                outlet: Any = self._outlet
                self._outlet = self._pinner = Pinner(
                    outlet, self._in_order, weakref.WeakMethod(self._unpack)
                )
        except BaseException:
            self._shutdown_workers()
            raise

    # --- starting ---

    def _open_channel(self) -> None:
        meter = self._stats.meter
        if self._pin_memory:
            # The thread that pins waits for batches, not the consumer: no wait of the consumer's.
            meter = self._stats.sample_meter = _core.Meter()
        self._channel = self._make_channel(meter)
        self._outlet = self._make_outlet(meter)
        self._stacks = os.fdopen(os.memfd_create("millhead-stacks"), "rb")
        self._engine.under_way += self._under_way
        self._stats.sources.add(self)
        _live.add(self)

    def _make_channel(self, meter: _core.Meter) -> _core.Channel:
        self._depth = self._ring_depth()
        return _core.Channel(
            self._engine.pool, self._num_workers, self._depth, self._under_way, dump_index, meter
        )

    def _ring_depth(self) -> int:
        """The most tasks one worker may have."""
        depth: int = self._prefetch_factor
        if self._iterable:
            # When the streams of the others have ended, all that are under way are the last one's.
            depth = min(self._under_way, max(depth, RING_PLACES // self._num_workers))
        return depth

    def _make_outlet(self, meter: _core.Meter) -> Any:
        return self._channel

    def _start_workers(self, loader: DataLoader[Any]) -> None:
        began = time.perf_counter()
        job = Job(self._dataset, self._collate_fn, self._worker_init_fn)
        trainer = _core.process_open(os.getpid())
        try:
            affinity = affinity_of_process()
            self._caps = _threads.decide(self._worker_threads)
            check_cluster(self._caps.cluster)
            plans = [self._plan(number, trainer, affinity) for number in range(self._num_workers)]
            self._restore(plans)
            if self._watch_plan is not None:
                plans = watched_plans(plans, self._watch_plan)
            if self._replacements is not None:
                self._replacements.remember([replace(plan) for plan in plans])
            self._threads_at_start = len(os.listdir("/proc/self/task"))
            self._stats.start, started = start_workers(
                self._engine, loader.multiprocessing_context, job, plans, self._timeout
            )
            self._workers.extend(started)
        finally:
            os.close(trainer)
        caps = self._caps
        self._streaming = streaming_of(caps.limit, caps.cluster, caps.chosen, self._stats.start)
        self._stats.streams(self._streaming, self._num_workers)
        self._stats.starts += 1
        if self._stats.start == "template":
            self._advise_to_persist(time.perf_counter() - began)

    def _advise_to_persist(self, seconds: float) -> None:
        stats = self._stats
        if (
            stats.start == "fork"
            or self._persistent_workers
            or stats.epochs < 1
            or stats.starts < 2
        ):
            return
        advise(
            "restarts",
            f"starting {self._num_workers} workers took {seconds:.2f} s for this epoch, and will for "
            f"every other (start: {stats.start}): persistent_workers=True keeps them",
        )

    def _descriptors(self, number: int, trainer: int) -> tuple[Descriptor, ...]:
        fds = [*self._channel.fds(number), trainer, self._stacks.fileno()]
        if self._replacements is not None:
            fds.append(self._replacements.note(number))
        return tuple(Descriptor(fd) for fd in fds)

    def _plan(self, number: int, trainer: int, affinity: frozenset[int] | None) -> WorkerPlan:
        limit = None if self._replacements is None else self._replacements.limit
        return WorkerPlan(
            role=BatchWorker,
            number=number,
            workers=self._num_workers,
            depth=self._depth,
            iterable=self._iterable,
            auto_collation=self._auto_collation,
            drop_last=self._drop_last,
            base_seed=self._base_seed,
            snapshot_rng=self._snapshot_rng,
            tolerance=self._tolerance,
            rng=(),
            stride=1,
            maps=self._channel.maps(number),
            affinity=affinity,
            caps=self._caps,
            crash_point=os.environ.get("MILLHEAD_TEST_WORKER_CRASH"),
            descriptors=self._descriptors(number, trainer),
            memory=limit,
            guarded=limit is not None and not self._iterable,
        )

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

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        """Begin an epoch: torch's ``__iter__`` calls this on a persistent iterator."""
        keeper = self._keeper()
        assert keeper is not None
        if not first_iter:
            # What was prefetched and not asked for is finished and dropped, as in torch: the
            # workers' generators have moved on by exactly that much.
            while self._pending:
                self._take_next()
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            if not first_iter:
                self._progress = self._next_progress(loader, keeper)
            self._reset_sampler(loader, first_iter)
            self._turn = Turn(self._progress, self._num_workers, self._items)
        else:
            before = self._progress
            self._progress, self._sampler_iter, self._turn = ahead
            self._progress.carry_over(before)  # as it turned out
        progress = self._progress.install(keeper)
        self._num_yielded = progress.yielded
        self._pending = self._turn.pending
        self._drawn = [worker.batches * self._items for worker in progress.workers]
        #: Workers whose stream has ended.
        self._ended = {n for n, worker in enumerate(progress.workers) if worker.ended}
        self._holes = 0  # tasks that could not be put
        self._first = True
        self._epoch: EpochLine | None = EpochLine(self._stats, progress, loader, keeper)
        for _ in range(self._under_way - len(self._pending)):
            self._try_put_index()

    def _next_progress(self, loader: DataLoader[Any], keeper: Keeper) -> Progress:
        """For another epoch of the same workers."""
        self._channel.new_epoch()
        progress = Progress(loader, keeper, again=True)
        progress.base_seed = self._progress.base_seed
        progress.carry_over(self._progress)
        return progress

    def _drop(self, count: int) -> None:
        """Fetch again and drop what was consumed after the workers' states were saved."""
        for _ in range(count):
            with contextlib.suppress(Exception):  # it was raised, and the run went on
                self._next_data()
        self._num_yielded = self._progress.yielded

    def _reset_sampler(self, loader: DataLoader[Any], first_iter: bool) -> None:
        """Begin to ask for indices."""
        _BaseDataLoaderIter._reset(self, loader, first_iter)
        self._sampler_iter = self._progress.ask_again(self._sampler_iter)

    # --- one batch ---

    def _next_data(self) -> Any:
        if self._failure is not None:
            raise RuntimeError(self._failure) from self._failure_cause
        while self._holes:
            self._holes -= 1
            self._try_put_index()
        while self._pending:
            worker, (kind, payload, samples, _) = self._take_next()
            place = self._place_of(worker)
            if kind != _core.END:
                # The parts of an iterable dataset have no common order to be ahead in.
                progress = self._progress
                progress.done(progress.consumed if self._iterable else place)
                return self._deliver(kind, payload, samples)
            # As in torch, it ends once: what it was asked for beyond that is not asked of others.
            if worker not in self._ended:
                self._ended.add(worker)
                self._try_put_index()
        self._progress.finished = True
        if self._epoch is not None:
            self._epoch.end()
            self._epoch = None
            check_threads(self._views(), self._caps.limit, self._streaming)
        if not self._persistent_workers:
            self._shutdown_workers()
        raise StopIteration

    def _place_of(self, worker: int) -> int:
        """Which batch of the epoch it is that was taken from a worker."""
        return self._turn.places[worker].popleft()

    def _due_worker(self) -> int:
        """Where the next batch comes from."""
        return self._pending[0] if self._pending else 0

    def _deliver(self, kind: int, payload: Any, samples: int) -> Any:
        """A batch for the consumer, and another task for the workers."""
        try:
            if kind == _core.SLOT:
                self._strangers = 0
            elif self._pinner is None:
                payload = self._unpack(kind, payload)
        finally:  # a batch that cannot be unpickled is lost, but not its place in the pipeline
            self._try_put_index()
            self._progress.next_worker = self._due_worker()
        stats = self._stats
        if kind == _core.ERROR:
            stats.errors_raised += 1
            payload.reraise()
        stats.batch("slot" if kind == _core.SLOT else "general", samples)
        if self._first:
            self._first = False
            stats.first_batch_ns = time.perf_counter_ns() - self._began_ns
            if stats.start not in ("fork", "template"):  # new interpreters start on their own time
                busy = max(view["busy_ns"] for view in self._views())
                with contextlib.suppress(Advice):  # as an error it would lose the batch
                    self._advise_to_persist(max(stats.first_batch_ns - busy, 0) / 1e9)
        elif self._num_yielded == CHECK_THREADS_AT:  # an epoch may be long
            check_threads(self._views(), self._caps.limit, self._streaming)
        if self._tolerance is not None:
            self._count_faults()
        self._progress.delivered()
        return payload

    def _count_faults(self) -> None:
        """Bring what workers skipped and replaced to the loader's count."""
        skipped, replaced, first = self._seen_faults()
        self._stats.add_faults(skipped - self._faults[0], replaced - self._faults[1], first)
        self._faults = (skipped, replaced)

    def _seen_faults(self) -> tuple[int, int, str]:
        """Samples skipped and replaced since the workers started, and the first, in words."""
        return self._channel.faults()

    def _try_put_index(self) -> None:
        progress, turn = self._progress, self._turn
        under_way = progress.consumed + len(progress.ahead) + len(turn.pending)
        if self._limit is not None and under_way >= self._limit:
            return self._begin_ahead()
        worker = self._next_worker()
        if worker is None:
            return None
        try:
            index = next(self._sampler_iter)
            while turn.asked in progress.ahead:  # consumed before this epoch was resumed
                samples = length(index) if self._auto_collation else 1
                progress.put(samples)
                turn.asked, turn.sample = turn.asked + 1, turn.sample + samples
                index = next(self._sampler_iter)
        except StopIteration:
            return self._begin_ahead()
        return self._put(worker, index, progress, turn)

    def _put(self, worker: int, index: Any, progress: Progress, turn: Turn) -> None:
        samples = length(index) if self._auto_collation else 1
        progress.put(samples)
        wants_state = self._snapshots and progress.snapshot_due(turn.asked)
        if self._iterable:  # no index says which samples: number them as the worker will
            first = self._drawn[worker]
            index = range(first, first + samples) if self._auto_collation else first
            self._drawn[worker] += samples
        try:
            self._channel.put(worker, self._position, index, samples, turn.sample, wants_state)
        except BaseException:
            self._holes += 1  # an index that cannot be pickled: its place waits for the next one
            raise
        self._position += 1
        self._tasks[worker] += 1
        turn.sample += samples
        turn.places[worker].append(turn.asked)
        turn.asked += 1
        turn.pending.append(worker)
        if self._pinner is not None:
            self._pinner.expect(worker)

    def _begin_ahead(self) -> None:
        """Where asked to, let workers that have no more to do in this epoch begin the next. Its
        batches go to the workers they would go to anyhow."""
        loader, keeper = self._millhead_loader(), self._keeper()
        if not self._prefetch_epoch or loader is None or keeper is None:
            return
        if self._ahead is None:
            progress = self._next_progress(loader, keeper)
            self._progress.next_moment = progress.moment
            turn = Turn(progress, self._num_workers, self._items)
            self._ahead = progress, iter(self._index_sampler), turn
        progress, indices, turn = self._ahead
        while self._tasks[worker := turn.asked % self._num_workers] < self._prefetch_factor:
            if self._limit is not None and turn.asked >= self._limit:
                return
            try:
                index = next(indices)
            except StopIteration:
                return
            self._put(worker, index, progress, turn)

    def _next_worker(self) -> int | None:
        """The next one in turn that goes on and has room for a task."""
        room = self._depth
        if not self._in_order:
            going_on = max(self._num_workers - len(self._ended), 1)
            room = min(room, self._under_way // going_on)
        for _ in range(self._num_workers):
            worker = next(self._turn.cycle)
            if worker not in self._ended and self._tasks[worker] < room:
                return worker
        return None

    def _unpack(self, kind: int, payload: Any) -> Any:
        if kind == _core.LOST:
            raise payload
        if kind == _core.ERROR:
            return pickle.loads(payload[0])
        if kind != _core.GENERAL:
            return payload
        batch = _general.loads(payload)
        with contextlib.suppress(Advice):  # where warnings are errors, the batch matters more
            self._learn(batch)
        return batch

    # --- the schema ---

    def _learn(self, batch: Any) -> None:
        """Let a batch of the general path teach what the next ones look like."""
        schema = self._engine.schema
        found = self._channel.measure(batch)
        if found is None:
            return
        structure, size = found
        if schema is not None and not self._channel.same_structure(structure):
            self._strangers += 1
            if self._strangers < 2 * self._under_way:
                return
        elif schema is not None:
            if size <= schema.slot_bytes:
                return
            size += size // 4  # sizes vary: leave room, so as not to learn again too soon
        self._strangers = 0
        schema = Schema(structure, pickle.dumps(structure, 5), size)
        if self._use_schema(schema):
            self._engine.schema = schema

    def _use_schema(self, schema: Schema) -> bool:
        slots = self._engine.under_way + SPARE_SLOTS
        try:
            self._channel.set_schema(schema.structure, schema.pickled, schema.slot_bytes, slots)
        except MemoryError as error:
            advise(
                "no-slots",
                f"no shared memory for batches of {schema.slot_bytes} bytes ({error}): they take "
                "the slower general path; raise memory=, or use fewer workers, a smaller "
                "prefetch_factor or smaller batches",
            )
            return False
        return True

    # --- waiting ---

    def _take_next(self) -> tuple[int, Taken]:
        """The batch that is due, or where order does not matter the first to come."""
        if self._replacements is not None:
            self._replacements.look(self)
        if self._pinner is not None:
            self._stats.meter.begin_wait()
        worker = self._pending[0] if self._in_order else self._any_ready()
        taken = self._take(worker)
        if self._pinner is not None:
            self._stats.meter.end_wait()
        self._pending.remove(worker)  # the first one, when in order
        self._has_taken(worker, taken)
        return worker, taken

    def _has_taken(self, worker: int, taken: Taken) -> None:
        ended = taken[0] == _core.END
        self._tasks[worker] -= 1
        if self._snapshots or ended:
            self._progress.worker_done(worker, taken[3], ended)

    def _hurry(self, worker: int) -> None:
        """The batch of this worker is waited for."""
        if worker != 0:  # the first has a head start anyway
            self._workers[worker].hurry()

    def _culprit(self, due: int) -> int:
        """The worker to ask about what is due from ``due``."""
        return due

    def _any_ready(self) -> int:
        deadline = self._deadline()
        while (worker := self._outlet.ready(self._slice())) is None:
            if dead := self._dead():
                worker = self._outlet.ready(self._grace())  # sent before it died?
                if worker is not None:
                    break
                self._fail(dead)
            self._look_at_clock(self._pending[0], deadline)
        return int(worker)

    def _take(self, worker: int) -> Taken:
        taken: Taken | None = self._outlet.take(worker, 0)
        if taken is None:
            self._hurry(worker)
            deadline = self._deadline()
            while (taken := self._outlet.take(worker, self._slice())) is None:
                if dead := self._dead():
                    taken = self._outlet.take(worker, self._grace())  # sent before it died?
                    if taken is not None:
                        break
                    self._fail(dead)
                self._look_at_clock(worker, deadline)
        return taken

    def _grace(self) -> int:
        """How long a batch may still be under way from a worker that has ended."""
        return 0 if self._pinner is None else SLICE_NS

    def _deadline(self) -> float:
        return time.monotonic() + (self._timeout if self._timeout > 0 else SAY_AFTER_S)

    def _slice(self) -> int:
        """How long to wait before looking up, in nanoseconds; a short timeout= shortens it."""
        return int(min(SLICE_NS, self._timeout * 1e9)) if self._timeout > 0 else SLICE_NS

    def _dead(self) -> list[int]:
        dead = [number for number, worker in enumerate(self._workers) if worker.ended()]
        # In this order: one that left for its memory has said so before it ended.
        if self._replacements is not None and self._replacements.look(self):
            dead = [number for number in dead if self._workers[number].ended()]
        return dead

    def _look_at_clock(self, worker: int, deadline: float) -> None:
        """After a slice without a result: is it too late?"""
        if time.monotonic() < max(deadline, self._later):
            return
        worker = self._culprit(worker)
        doing = self._doing(worker)
        if self._timeout > 0:
            raise RuntimeError(
                f"DataLoader timed out after {self._timeout} seconds: {doing}\n"
                f"{self._stack_of(worker)}"
            )
        if self._stats.start == "fork" and not self._num_yielded and self._threads_at_start > 1:
            doing += (
                f"; it was forked from a process of {self._threads_at_start} threads, and may wait "
                "for a lock one of them held: try multiprocessing_context='forkserver'"
            )
        advise(
            "long-wait",
            f"no batch for {SAY_AFTER_S:.0f} s ({doing}): still waiting; set timeout= to raise "
            "instead",
        )

    def _stack_of(self, worker: int) -> str:
        """The Python stack of a worker, or why it cannot be had."""
        handle, view = self._workers[worker], self._channel.view(worker)
        if handle.is_stopped():
            return f"Its process is stopped: kill -CONT {handle.pid} lets it go on."
        if view["state"] == "starting":
            return "It has not begun to work: its dataset may still be loading."
        self._stacks.seek(0)
        os.ftruncate(self._stacks.fileno(), 0)
        handle.send_signal(DUMP_STACK)
        deadline = time.monotonic() + 1.0
        size = 0
        while time.monotonic() < deadline:
            time.sleep(0.02)
            before, size = size, os.fstat(self._stacks.fileno()).st_size
            if size and size == before:
                break
        text = os.pread(self._stacks.fileno(), size, 0).decode(errors="replace").strip()
        return f"Its Python stack:\n{text}" if text else "It does not answer: no stack."

    def _doing(self, worker: int) -> str:
        """What a worker is or was doing, in words."""
        view = self._channel.view(worker)
        handle = self._workers[worker]
        # It tells its own once it has started.
        pid = view["pid"] or (handle.pid if handle.begun() else "none yet")
        text = f"worker {worker} (pid {pid})"
        index, offset = view["index"], view["offset"]
        if index is None or view["state"] == "starting":
            return f"{text}, {view['state']}"
        what = "item" if self._iterable else "sample index"
        if not self._auto_collation:
            return f"{text}, {view['state']}, {what} {index!r}"
        with contextlib.suppress(Exception):  # an index of the user's own kind
            numbers = list(index)
            if view["state"] != "fetching":
                some = ", ".join(repr(number) for number in numbers[:8])
                more = ", ..." if len(numbers) > 8 else ""
                return f"{text}, {view['state']} the batch of {what} [{some}{more}]"
            index = numbers[offset]
        return f"{text}, {view['state']}, {what} {index!r} (number {offset} of its batch)"

    def _fail(self, dead: list[int]) -> None:
        """Workers ended that should not have: say all that is known, once and for all."""
        refusal = self._workers[dead[0]].refusal()
        if refusal is not None:
            text = (
                f"DataLoader worker {dead[0]} could not be forked ({refusal}): use fewer workers, "
                "or have the limits on processes (ulimit -u, the container's) and memory raised"
            )
        else:
            text = self._obituary([n for n in dead if self._workers[n].begun()])
        self._give_up(text, self._killed(dead))

    def _give_up(self, text: str, cause: BaseException | None = None) -> NoReturn:
        """End the workers; this iterator has nothing else to say from now on."""
        self._failure, self._failure_cause = text, cause
        loader = self._millhead_loader()
        if loader is not None and loader._iterator is self:
            loader._iterator = None  # the next epoch starts afresh
        self._shutdown_workers()
        if cause is not None and not isinstance(cause, Exception):
            raise cause  # Ctrl-C
        raise RuntimeError(self._failure) from self._failure_cause

    def _killed(self, dead: list[int]) -> RuntimeError | None:
        """The signal that ended a worker in the words of torch, which programs match on."""
        for worker in (self._workers[number] for number in dead):
            if worker.begun() and (code := worker.exitcode or 0) < 0:
                name = signal.strsignal(-code)
                return RuntimeError(
                    f"DataLoader worker (pid {worker.pid}) is killed by signal: {name}. "
                )
        return None

    def _obituary(self, dead: list[int]) -> str:
        pids = ", ".join(str(self._workers[number].pid) for number in dead)
        first = self._workers[dead[0]]
        first.join(1.0)
        return (
            f"DataLoader worker (pid(s) {pids}) exited unexpectedly: "
            f"{describe_exit(first.exitcode)} ({self._doing(dead[0])}): "
            f"{hint_for_exit(first.exitcode)}"
        )

    def note_state(self) -> None:
        """The loader's state knows already: each batch brought it along."""

    # --- ending ---

    def bring_stats(self) -> None:
        """Add this iterator's counts to the loader's."""
        if self._shutdown or self._pid != os.getpid():
            return
        counts = self._channel.counts()
        self._stats.add_counts(counts, self._counted)
        self._counted = counts
        views = self._views()
        seen = sum(view["threads"] for view in views)
        self._stats.threads_seen = max(self._stats.threads_seen, seen)
        elapsed = max(time.monotonic() - self._started, 1e-9) * 1e9
        self._stats.workers_busy = [min(1.0, view["busy_ns"] / elapsed) for view in views]

    def _views(self) -> list[dict[str, Any]]:
        return [self._channel.view(number) for number in range(self._num_workers)]

    def _shutdown_workers(self, patience: float = torch_utils.MP_STATUS_CHECK_INTERVAL) -> None:
        if self._shutdown or torch_utils is None or torch_utils.python_exit_status is not False:
            return  # nothing to do, or the interpreter is going: the workers see that themselves
        if self._pid != os.getpid():
            return  # a copy of the iterator in a forked child: the workers are not its own
        if len(self._workers) == self._num_workers:
            self.bring_stats()
        self._shutdown = True
        self._stats.sources.discard(self)
        self._engine.under_way -= self._under_way
        self._pending.clear()
        self._channel.stop()
        try:
            if self._pinner is not None:
                self._pinner.close()
            left = [] if self._replacements is None else self._replacements.processes()
            end_all([*self._workers, *left], patience)
        finally:
            self._channel.close()
            self._stacks.close()
            if self._replacements is not None:
                self._replacements.close()
            reap_retired(patience=0.2)  # perhaps these were the last workers of one
            _live.discard(self)


#: Iterators with workers, to be ended before the interpreter is.
_live: weakref.WeakSet[MultiIter] = weakref.WeakSet()


@atexit.register
def _end_at_exit() -> None:
    """End the workers before multiprocessing tries: it joins a stopped one for ever."""
    for iterator in list(_live):
        iterator._shutdown_workers(patience=0.5)


def dump_index(index: Any) -> bytes:
    """An index of any kind, for a worker."""
    return pickle.dumps(index, 5)
