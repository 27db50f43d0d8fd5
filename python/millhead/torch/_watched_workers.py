"""millhead's own workers, watched: the same work, and events of how long it took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch._utils import ExceptionWrapper

from millhead._fetches import Fetches, FetchPlan, WorkerInit
from millhead.torch._run import SampleWorker
from millhead.torch.fetch import length
from millhead.torch.worker import BatchWorker, Counts, Job, WorkerPlan

InitFn = Callable[[int], None] | None


def unwrapped(init: InitFn) -> tuple[InitFn, FetchPlan | None]:
    """The user's ``worker_init_fn``, and what watching put round it."""
    return (init.users, init.plan) if isinstance(init, WorkerInit) else (init, None)


def watched_plans(plans: list[WorkerPlan], watch: FetchPlan) -> list[WorkerPlan]:
    """The same workers, watched."""
    return [replace(plan, role=_ROLES[plan.role], watch=watch) for plan in plans]


class WatchedWorker(BatchWorker):
    """Times whole batches."""

    fetches: Fetches | None = None  # until it has started

    def __init__(self, plan: WorkerPlan, job: Job) -> None:
        super().__init__(plan, job)
        self.auto_collation = plan.auto_collation

    def start(self) -> ExceptionWrapper | None:
        """Also open the log: after the user's own code, which may want the signal we use."""
        failed = super().start()
        assert self.plan.watch is not None
        self.fetches = self.plan.watch.open(self.plan.number)
        if self.plan.counts is not None:
            times = self.fetches.times
            times.epoch, times.nth, times.items = self.plan.counts
        return failed

    def counts(self) -> Counts | None:
        """Where its events are."""
        if self.fetches is None:
            return None
        times = self.fetches.times
        return times.epoch, times.nth, times.items

    def open_dataset(self) -> None:
        """Also count the epoch."""
        if self.fetches is not None:
            self.fetches.next_epoch()
        super().open_dataset()

    def source(self, samples: Any) -> Any:
        """What times each sample."""
        return samples if self.fetches is None else self.fetches.timed(samples)

    def timed(self, work: Callable[[], None]) -> None:
        """Do the work of one batch."""
        fetches = self.fetches
        assert fetches is not None
        fetches.begin()
        try:
            work()
        except BaseException as error:
            fetches.failed(error)
            raise
        if lines := fetches.done():
            fetches.keep(lines)

    def fetch(self, index: Any) -> Any:
        """Also note when all samples are there."""
        samples = super().fetch(index)
        assert self.fetches is not None
        self.fetches.fetched(length(samples) if self.auto_collation else 1)
        return samples

    def work(self, index: Any) -> None:
        """One batch."""
        self.timed(lambda: super(WatchedWorker, self).work(index))


class WatchedSampleWorker(WatchedWorker, SampleWorker):
    """Times runs of samples: each counts as a batch of this worker's."""

    def fetch_some(self, numbers: list[Any], first: int, samples: list[Any]) -> None:
        """Also note when all samples are there."""
        super().fetch_some(numbers, first, samples)
        assert self.fetches is not None
        self.fetches.fetched(len(samples))

    def work_run(self) -> None:
        """One run."""
        self.timed(super().work_run)


_ROLES: dict[type[BatchWorker], type[BatchWorker]] = {
    BatchWorker: WatchedWorker,
    SampleWorker: WatchedSampleWorker,
}
