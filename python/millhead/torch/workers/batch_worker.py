"""What a worker process does: seed, fetch, collate, send.

The order of steps is torch's (DESIGN's "same stream"): seed ``random``, torch and numpy from the
base seed and the worker's number, run ``worker_init_fn``, then whole batches, samples in order,
collate after the last sample.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import os
import pickle
import random
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._utils import ExceptionWrapper  # what torch's own workers send; tested in test_errors
from torch.utils.data._utils import signal_handling
from torch.utils.data._utils import worker as torch_worker

from millhead import _core
from millhead.torch.iterators.failed_samples import Tolerance
from millhead.torch.iterators.fetch import Fetcher, Stream, in_short, length
from millhead.torch.resume.restore import Restore, state_of
from millhead.torch.resume.rng_state import RngState
from millhead.torch.workers import native_pools, pickled_batch, thread_caps
from millhead.torch.workers.memory_limit import MemoryLimit
from millhead.torch.workers.processes import Descriptor
from millhead.watching.fetch_times import Counts, FetchPlan

#: Signals on which a worker's Python stack goes to its stderr, and to the file it was given.
SHOW_STACK = signal.SIGRTMIN + 9
DUMP_STACK = signal.SIGRTMIN + 10


@dataclass
class Job:
    """What is the user's: this is pickled, and once only."""

    dataset: Any
    collate_fn: Callable[[Any], Any]
    worker_init_fn: Callable[[int], None] | None


@dataclass
class WorkerPlan:
    """All else that a worker is given when it starts."""

    role: type[BatchWorker]
    number: int
    workers: int
    depth: int
    iterable: bool
    auto_collation: bool
    drop_last: bool
    base_seed: int
    snapshot_rng: bool
    tolerance: Tolerance | None
    maps: tuple[int, int]
    affinity: frozenset[int] | None
    caps: thread_caps.Caps
    #: dispatch="sample": the generators to seed, and how far apart positions are.
    rng: tuple[str, ...] = ()
    stride: int = 1
    #: Control block, batches, spill memory, events, the trainer's process, a file for stacks; with a
    #: limit on its memory also one for notes. Opened when it is started.
    descriptors: tuple[Descriptor, ...] = ()
    #: Where a resumed epoch begins, for this worker.
    restore: Restore | None = None
    #: How the worker came to be, in the words of ``stats()["start"]``; told when it is started.
    start: str = ""
    #: Where a watched worker writes its events.
    watch: FetchPlan | None = None
    #: Most bytes of its own, and whether it is ended where a batch takes more.
    memory: int | None = None
    guarded: bool = False
    #: Of a worker in another's place: what that one had counted.
    counts: Counts | None = None

    @property
    def trainer(self) -> Descriptor:
        """A handle to the trainer's process."""
        return self.descriptors[4]


def prepare_to_fork() -> None:
    """Find what every worker needs to know: once, not in each."""
    _has_accelerator()
    native_pools.look()


@functools.cache
def _has_accelerator() -> bool:
    try:
        return torch.accelerator.current_accelerator() is not None
    except RuntimeError:  # torch 2.6: none is there
        return False


def _seed_torch(seed: int) -> None:
    if not _has_accelerator():
        # All that torch.manual_seed does where torch was built for the CPU alone; it would also
        # note a stack trace for each device that might appear, in milliseconds.
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def _seed(plan: WorkerPlan) -> int:
    seed = plan.base_seed + plan.number
    random.seed(seed)
    _seed_torch(seed)
    try:
        import numpy
    except ImportError:
        return seed
    # Private, but it *is* the contract: numpy's seed in a worker is this hash of the base seed.
    state = torch_worker._generate_state(plan.base_seed, plan.number)  # type: ignore[no-untyped-call]
    numpy.random.seed(state)
    return seed


class BatchWorker:
    """Fetches, collates and sends whole batches."""

    fetcher_class = Fetcher

    def __init__(self, plan: WorkerPlan, job: Job) -> None:
        self.plan = plan
        self.job = job
        self.worker_end = _core.WorkerEnd(
            tuple(descriptor.fd for descriptor in plan.descriptors[:4]),
            plan.maps,
            plan.number,
            plan.depth,
            pickle.loads,
        )
        self.fetcher = self.fetcher_class(
            job.dataset,
            job.collate_fn,
            plan.auto_collation,
            plan.tolerance,
            self.worker_end,
            _core.collate_in_worker,
        )
        self.initialised = False
        #: Says how many batches to draw and drop before the first.
        self.skipping: Restore | None = None
        #: Whether the hooks of the stream were told where to begin.
        self.noted = False
        self.wants_state = False

    def start(self) -> ExceptionWrapper | None:
        """Seeding and the user's worker_init_fn; an exception there is the first batch's."""
        plan, failed = self.plan, None
        thread_caps.cap(plan.caps, plan.start)
        seed = _seed(plan)
        # get_worker_info() reads this; there is no public way to set it.
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=plan.number, num_workers=plan.workers, seed=seed, dataset=self.job.dataset
        )
        try:
            if self.job.worker_init_fn is not None:
                self.job.worker_init_fn(plan.number)
            self.open_dataset()
        except Exception:  # noqa: BLE001 - the user's, and the consumer's to see
            failed = self.wrap()
        if plan.watch is not None:  # after the user's own code, which may want the signal we use
            self.fetcher.observer = plan.watch.open(plan.number, plan.counts)
        return failed

    def open_dataset(self) -> None:
        """Be ready for an epoch: an iterable dataset begins from its start."""
        if self.fetcher.observer is not None:
            self.fetcher.observer.next_epoch()
        self.initialised = False
        self.take_note()
        if self.skipping is not None:  # nothing of the last epoch was left to fetch
            self.skipping.put_generators_back()
        restore, self.plan.restore = self.plan.restore, None
        iterator = None
        if restore is not None:
            iterator = restore.open(self.job.dataset, self.plan.iterable)
        elif self.plan.iterable:
            iterator = iter(self.job.dataset)
        if self.plan.iterable:
            self.fetcher.stream = Stream(iterator, self.plan.drop_last)
            self.skipping = restore if restore is not None and restore.skip else None
            self.noted = (
                restore is not None and restore.leaves_a_note and iterator is not self.job.dataset
            )
        self.initialised = True

    def take_note(self) -> None:
        """Most hooks only note where the next iterator shall begin. Where the last epoch was
        over before a sample was asked for, this one must not begin there."""
        noted, self.noted, stream = self.noted, False, self.fetcher.stream
        if noted and stream is not None and stream.taken == 0:
            before = RngState.now()
            with contextlib.suppress(Exception):  # nobody has asked for it
                next(stream.iterator, None)
            before.put_back()

    def save_state(self) -> None:
        """Let the next result bring the states of hooks and generators along."""
        self.wants_state = False
        hooks = self.hooks()
        if hooks != (None, None) or self.plan.snapshot_rng:
            generators = RngState.now().text if self.plan.snapshot_rng else None
            stream = self.fetcher.stream
            ended = stream is not None and stream.ended
            self.worker_end.save_state(pickle.dumps((*hooks, generators, ended), 5))

    def hooks(self) -> tuple[Any, Any]:
        """The states of the dataset and of its iterator, where they have hooks."""
        stream, dataset = self.fetcher.stream, self.job.dataset
        iterator = None if stream is None else stream.iterator
        dataset = None if iterator is dataset else state_of(dataset)
        return dataset, state_of(iterator)

    def counts(self) -> Counts | None:
        """What another process in this one's place has to know to go on counting."""
        return None if self.fetcher.observer is None else self.fetcher.observer.counts()

    def work(self, index: Any) -> None:
        """Fetch, collate and send one batch."""
        fetcher, worker_end = self.fetcher, self.worker_end
        fetcher.step, fetcher.numbers = "not fetching", []
        if not self.initialised:
            # Torch's class for this: its worker has no fetcher then.
            raise UnboundLocalError("this worker failed to start, so it cannot fetch samples")
        batch = self.gather(index) if fetcher.may_gather else NotImplemented
        if batch is None:
            return
        if batch is NotImplemented:
            samples = self.fetch(index)
            fetcher.step = "collating"
            if fetcher.default_collate:
                if self.wants_state:
                    self.save_state()
                if worker_end.collate(samples):
                    return
            # No slot, perhaps: then into memory of our own. Torch's collate in a worker takes
            # /dev/shm, which may be small.
            worker_end.collating()
            _, batch = fetcher.collate(samples)
            del samples
        if self.wants_state:
            self.save_state()
        if not worker_end.send_batch(batch):
            worker_end.send(False, pickled_batch.dumps(batch))

    def gather(self, index: Any) -> Any:
        """Rows of what is in memory already: None when they are sent, else the batch or
        NotImplemented."""
        columns, rows = self.fetcher.rows(index)
        if columns is None:
            return NotImplemented
        if self.wants_state:
            self.save_state()
        return None if self.worker_end.gather(columns, rows) else _core.gather(columns, rows)

    def fetch(self, index: Any) -> Any:
        """The samples of a batch; the consumer is told how many, and of those that failed."""
        fetcher, worker_end = self.fetcher, self.worker_end
        if self.skipping is not None:
            restore, self.skipping = self.skipping, None
            fetcher.step, fetcher.numbers = "sample", index if fetcher.auto_collation else [index]
            fetcher.skip(restore.skip, lambda: index)
            restore.put_generators_back()
        if fetcher.tolerance is not None:
            fetcher.position = worker_end.sample()
        samples = fetcher.fetch(index)
        if fetcher.auto_collation:
            worker_end.counted(len(samples) if type(samples) is list else length(samples))
        if fetcher.tolerance is not None and (faults := fetcher.faults) is not None:
            worker_end.faults(faults.skipped, faults.replaced, faults.first)
        return samples

    def where(self) -> str:
        """Where an exception came from, in torch's words."""
        return f"in DataLoader worker process {self.plan.number}"

    def wrap(self, error: Any = None) -> ExceptionWrapper:
        """An exception (None: the one being handled), with its traceback as text."""
        return ExceptionWrapper(error, self.where())  # type: ignore[no-untyped-call]

    def survivor(self, wrapper: ExceptionWrapper) -> ExceptionWrapper:
        """The wrapper, changed to RuntimeError where its class does not survive pickling."""
        try:
            pickle.loads(pickle.dumps(wrapper, 5))
        except Exception:  # noqa: BLE001 - whatever the class does
            wrapper.exc_msg = (
                f"{wrapper.exc_type.__name__}, sent as RuntimeError: {wrapper.exc_msg}"
            )
            wrapper.exc_type = RuntimeError
        return wrapper

    def send_error(self, wrapper: ExceptionWrapper) -> None:
        self.worker_end.send(True, [pickle.dumps(self.survivor(wrapper), 5)])

    def place(self) -> str:
        """Where in the batch an exception arose, for its message."""
        fetcher, numbers = self.fetcher, list(self.fetcher.numbers)
        if not numbers:
            return f"{fetcher.step} a batch"
        if fetcher.step == "sample" and fetcher.stream is not None:
            return f"item {fetcher.stream.failed} of worker {self.plan.number}'s iterator"
        if fetcher.step == "sample" and fetcher.failed < len(numbers):
            index = numbers[fetcher.failed]
            return f"sample index {index!r} (number {fetcher.failed} of {len(numbers)})"
        return f"{fetcher.step} the samples with indices {in_short(numbers)}"

    def memory_limit(self, failed_start: ExceptionWrapper | None) -> MemoryLimit | None:
        """What looks at the memory of this process, where there is a limit."""
        return None if self.plan.memory is None or failed_start is not None else MemoryLimit(self)

    def observed(self, work: Callable[..., None]) -> Callable[..., None]:
        """The work on one batch, timed where somebody watches."""
        observer = self.fetcher.observer
        return work if observer is None else functools.partial(observer.time, work)

    def run(self) -> None:
        """Make batches until there are no more to make."""
        failed_start = self.start()
        memory_limit, work = self.memory_limit(failed_start), self.observed(self.work)
        while (task := self.worker_end.next()) is not None:
            index, new_epoch, self.wants_state = task
            try:
                if memory_limit is not None:
                    memory_limit.begin()
                if new_epoch:  # torch makes a new fetcher then, whatever came before
                    self.open_dataset()
                if failed_start is None:
                    work(index)
                else:
                    self.send_error(failed_start)
                    failed_start = None
            except StopIteration:
                if self.plan.iterable:
                    self.end_stream()
                else:
                    self.report()
            except Exception:  # noqa: BLE001 - the user's, and the consumer's to see
                self.report()
            del task, index
            if memory_limit is not None and memory_limit.leaves():
                break

    def end_stream(self) -> None:
        if self.fetcher.stream is not None:
            self.fetcher.stream.ended = True  # whoever raised it: torch asks this worker no more
        self.save_state()  # its last word of this epoch
        self.worker_end.send_end()

    def report(self) -> None:
        """Send the exception being handled, with where it arose."""
        wrapper = self.wrap()
        with contextlib.suppress(Exception):  # one exception is enough to report
            if self.wants_state:
                self.save_state()
        with contextlib.suppress(Exception):  # an index that cannot be shown
            wrapper.exc_msg += f"millhead: {self.place()}\n"
        if "Cannot re-initialize CUDA in forked subprocess" in wrapper.exc_msg:
            wrapper.exc_msg += (
                "millhead: the dataset uses CUDA in a forked worker: return CPU tensors from it, "
                "or pass multiprocessing_context='forkserver'\n"
            )
        self.send_error(wrapper)


def _dump_stack_on_request(to: int) -> None:
    for number, file in ((SHOW_STACK, sys.stderr), (DUMP_STACK, to)):
        # Chained to a handler of the user's; the default action would end the process.
        chain = signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN, None)
        # Where stderr is no file there is nowhere to dump to.
        with contextlib.suppress(AttributeError, OSError, RuntimeError, ValueError):
            faulthandler.register(number, file=file, chain=chain)


def _new_storage(cls: Any, size: int, *, device: Any = "cpu") -> Any:
    return cls(size, device=device)


def _leave_shared_memory_alone() -> None:
    """Torch's default_collate, in a worker, stacks into a file of /dev/shm, for torch's queues. Ours
    need none, and a container's may be too small for a batch. A private name: test_collate.py fails
    when torch moves it."""
    torch.UntypedStorage._new_shared = classmethod(_new_storage)  # type: ignore[assignment,method-assign]


def run(plan: WorkerPlan, job: Job, watched: bool = False) -> None:
    """A worker process's whole life. ``watched``: it ends with the trainer already."""
    gc.freeze()  # what came by the fork is shared: the collector must not touch, and so copy, it
    try:
        if plan.guarded or not watched:
            _core.exit_with(plan.trainer.fd, plan.guarded)
        if plan.affinity is not None:
            os.sched_setaffinity(0, plan.affinity)
        # Torch's, so that a SIGTERM handler of the trainer's does not run in its workers.
        signal_handling._set_worker_signal_handlers()  # type: ignore[attr-defined]
        _dump_stack_on_request(plan.descriptors[5].fd)
        _leave_shared_memory_alone()
        worker = plan.role(plan, job)
        if not worker.worker_end.stopped():  # next(iter(loader)) is over before most workers begin
            worker.run()
    except KeyboardInterrupt:
        pass  # the trainer gets it too, and says so
