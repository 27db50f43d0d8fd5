"""Timing of what makes batches: in a worker, or in the consumer where there is none.

The dataset is not wrapped where the user could see it: what is asked for samples is a stand-in that
only the fetching code holds. No random number is drawn.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.util import Finalize
from typing import Any

from millhead import _core
from millhead.watching import hot_code
from millhead.watching.event_files import EventLog

#: What a watched worker has counted: epochs, batches of this one, items of its stream.
Counts = tuple[int, int, int]


@dataclass(frozen=True)
class FetchPlan:
    """What a worker has to know to write its events."""

    path: str
    loader: int
    epoch: int

    def open(self, worker: int, counts: Counts | None = None) -> Fetches:
        """For this process. ``counts``: of the worker in whose place it is."""
        fetches = Fetches(EventLog(self.path), self.loader, self.epoch, worker)
        if counts is not None:
            fetches.times.epoch, fetches.times.nth, fetches.times.items = counts
        if worker >= 0:  # nobody tells a worker that it ends
            Finalize(fetches, _flush, args=(weakref.ref(fetches),), exitpriority=100)
        return fetches


def _flush(fetches: weakref.ref[Fetches]) -> None:
    """At the end of the process; nothing for those that are gone before."""
    if (alive := fetches()) is not None:
        alive.flush()


class Fetches:
    """Writes ``fetch``, ``sample`` and ``collate`` for the batches of one worker (-1: none).

    ``time`` makes a batch; meanwhile, what asks for samples asks what ``timed`` gives, and calls
    ``fetched(samples)`` when they are there.
    """

    def __init__(self, log: EventLog, loader: int, epoch: int, worker: int) -> None:
        self._log = log
        self.times = _core.Fetches(loader, epoch, worker, hot_code.start_probe())
        self.fetched, self.next_epoch = self.times.fetched, self.times.next_epoch
        self._hot = hot_code.start()
        self._place = (loader, worker)

    def timed(self, source: Any) -> Any:
        """What stands for a dataset, or for its iterator, where samples are asked for."""
        return _core.Timed(source, self.times)

    def time(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do the work that makes one batch."""
        self.times.begin()
        try:
            made = work(*arguments)
        except StopIteration:
            raise  # the end of a stream is no batch
        except BaseException:
            self._log.write(self.times.failed())
            raise
        if lines := self.times.done():
            self._log.write(lines)
            if self._hot is not None and (hot := self._hot.lines(*self._place)):
                self._log.write(hot)
        return made

    def flush(self) -> None:
        """Write what was held back."""
        if lines := self.times.rest():
            self._log.write(lines)
        if self._hot is not None and (hot := self._hot.lines(*self._place, at_once=True)):
            self._log.write(hot)

    def counts(self) -> Counts:
        """Where its events are."""
        return self.times.epoch, self.times.nth, self.times.items


# --- torch's own workers ---


def time_fetcher(fetcher: Any, fetches: Fetches) -> None:
    """Have one of torch's fetchers tell what it does; all it does stays torch's."""
    fetch, collate = type(fetcher).fetch, fetcher.collate_fn
    myself = weakref.ref(fetcher)  # a cycle would keep the user's generator from being closed
    batched = fetcher.auto_collation
    if hasattr(fetcher, "dataset_iter"):
        fetcher.dataset_iter = fetches.timed(fetcher.dataset_iter)
    else:
        fetcher.dataset = fetches.timed(fetcher.dataset)

    def timed_collate(data: Any) -> Any:
        fetches.fetched(len(data) if batched and hasattr(data, "__len__") else 1)
        return collate(data)

    def fetch_named(index: Any) -> Any:
        try:
            return fetch(myself(), index)
        except BaseException as error:
            _name_sample(error)
            raise

    fetcher.collate_fn = timed_collate
    fetcher.fetch = functools.partial(fetches.time, fetch_named)


def _name_sample(error: BaseException) -> None:
    """Note which sample raised: torch's fetcher has its index in a variable, and tells nobody."""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        torchs = frame.f_globals.get("__name__") == "torch.utils.data._utils.fetch"
        if torchs and "idx" in frame.f_locals:
            error.add_note(f"millhead: sample index {frame.f_locals['idx']!r}")
            return
        trace = trace.tb_next


class WorkerInit:
    """A ``worker_init_fn`` that calls the user's, then has the worker's fetchers timed."""

    def __init__(self, users: Callable[[int], None] | None, plan: FetchPlan) -> None:
        self.users = users
        self.plan = plan

    def __call__(self, worker: int) -> None:
        if self.users is not None:
            self.users(worker)
        _time_worker(self.plan.open(worker))


def unwrapped(
    init: Callable[[int], None] | None,
) -> tuple[Callable[[int], None] | None, FetchPlan | None]:
    """The user's ``worker_init_fn``, and what watching put round it."""
    return (init.users, init.plan) if isinstance(init, WorkerInit) else (init, None)


def _time_worker(fetches: Fetches) -> None:
    # Private, but where every worker of torch's gets its fetcher from: a new one for each epoch.
    from torch.utils.data import _DatasetKind, get_worker_info

    create = _DatasetKind.create_fetcher
    fetchers = 0

    def create_timed(kind: Any, dataset: Any, *rest: Any) -> Any:
        nonlocal fetchers
        fetcher = create(kind, dataset, *rest)  # type: ignore[no-untyped-call]
        info = get_worker_info()
        if info is not None and dataset is info.dataset:  # not of a loader inside the dataset
            if fetchers:
                fetches.next_epoch()
            fetchers += 1
            time_fetcher(fetcher, fetches)
        return fetcher

    _DatasetKind.create_fetcher = staticmethod(create_timed)  # type: ignore[method-assign]
