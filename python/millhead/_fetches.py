"""Timing of what makes batches: in a worker, or in the consumer where there is none.

The dataset is not wrapped where the user could see it: what is asked for samples is a stand-in that
only the fetching code holds. No random number is drawn.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millhead import _core
from millhead._events import EventLog, quoted

#: Samples that take as long have an event of their own.
SLOW_NS = 100_000


@dataclass(frozen=True)
class FetchPlan:
    """What a worker has to know to write its events."""

    path: str
    loader: int
    epoch: int

    def open(self, worker: int) -> Fetches:
        """For this process."""
        return Fetches(EventLog(self.path), self.loader, self.epoch, worker)


class Fetches:
    """Writes ``fetch``, ``sample`` and ``collate`` for the batches of one worker (-1: none).

    Per batch: :meth:`begin`, :meth:`fetched` when the samples are there, :meth:`done`; or
    :meth:`failed` instead of the last.
    """

    def __init__(self, log: EventLog, loader: int, epoch: int, worker: int) -> None:
        self._log = log
        self._clock = _core.Clock()
        self._loader, self._worker = loader, worker
        self._pid = os.getpid()
        self._probing = _core.probe_start()
        self._slow: list[str] = []
        self._samples = -1  # -1: not all are there
        self.begin_epoch(epoch)

    def begin_epoch(self, epoch: int) -> None:
        """Count batches from 0 again."""
        self._epoch = epoch
        self._nth = 0
        self._item = 0  # of a stream

    def next_epoch(self) -> None:
        """The workers go on with another epoch."""
        self.begin_epoch(self._epoch + 1)

    def begin(self) -> None:
        """A batch is asked for."""
        self._slow.clear()
        self._samples = -1
        if self._probing:
            _core.probe_take()
            self._probes = (0, 0)
        self._read_before = self._clock.storage()
        self._began = self._wall, self._cpu, _ = self._clock.read()

    def slow_sample(self, began: int, ns: int, index: Any) -> None:
        """One sample took long."""
        now = time.thread_time_ns()
        # What came since the CPU time was last looked at were short ones: they were not blocked.
        cpu = min(ns, max(0, now - self._cpu - (began - self._wall)))
        self._cpu, self._wall = now, began + ns
        shown = f',"index":{_index(index)}' if type(index) in (int, str) else ""
        self._slow.append(
            f'{{"event":"sample","t":{began},"ns":{ns},"cpu":{cpu}{self._place()}{shown}}}\n'
        )

    def slow_item(self, began: int, ns: int) -> None:
        """One item of a stream took long."""
        self.slow_sample(began, ns, self._item)

    def item(self) -> None:
        """A stream gave another item."""
        self._item += 1

    def fetched(self, samples: int) -> None:
        """All samples are there."""
        self._samples = samples
        self._fetched = self._clock.read()
        read = self._clock.storage()
        self._read = read - self._read_before if read >= 0 else -1
        if self._probing:
            before, new = self._probes, _core.probe_take()
            self._probes = before[0] + new[0], before[1] + new[1]

    def done(self) -> None:
        """The batch is made."""
        if self._samples < 0:  # in one go: there is nothing between
            self.fetched(0)
            self._write("")
        else:
            end = self._clock.read()
            self._write(f'{{"event":"collate",{times(self._fetched, end)}{self._place()}}}\n')
        self._nth += 1

    def failed(self, error: BaseException) -> None:
        """An exception came instead."""
        if isinstance(error, StopIteration):
            return  # the stream's end: no batch
        if self._samples >= 0:
            self._write("")
        self._nth += 1

    def _place(self) -> str:
        return (
            f',"loader":{self._loader},"epoch":{self._epoch},"worker":{self._worker},'
            f'"nth":{self._nth}'
        )

    def _write(self, collate: str) -> None:
        more = ""
        if self._probing:
            more = f',"probes":{self._probes[0]},"native":{self._probes[1]}'
        if self._read >= 0:
            more += f',"read":{self._read}'
        if self._samples:
            more += f',"samples":{self._samples}'
        self._log.write(
            f'{{"event":"fetch",{times(self._began, self._fetched)}{self._place()},'
            f'"pid":{self._pid}{more}}}\n{"".join(self._slow)}{collate}'
        )

    def close(self) -> None:
        """Close the clock's files; the log is whoever's opened it."""
        self._clock.close()


def _index(index: int | str) -> str:
    return str(index) if type(index) is int else quoted(str(index), 100)


#: What a Clock reads: now, time on a CPU, time waiting for one.
Reading = tuple[int, int, int]


def times(began: Reading, ended: Reading) -> str:
    """The keys ``t``, ``ns``, ``cpu`` and, where the kernel tells, ``delay``."""
    text = f'"t":{began[0]},"ns":{ended[0] - began[0]},"cpu":{ended[1] - began[1]}'
    return text if ended[2] < 0 or began[2] < 0 else f'{text},"delay":{ended[2] - began[2]}'


class TimedSamples:
    """Stands for a dataset, or for the iterator of one, where samples are asked for."""

    __slots__ = ("_fetches", "_next", "_source")

    def __init__(self, source: Any, fetches: Fetches) -> None:
        self._source = source
        self._fetches = fetches
        self._next: Callable[[], Any] = getattr(source, "__next__", None)  # type: ignore[assignment]

    def __getitem__(self, index: Any) -> Any:
        began = time.monotonic_ns()
        try:
            return self._source[index]
        finally:
            ns = time.monotonic_ns() - began
            if ns >= SLOW_NS:
                self._fetches.slow_sample(began, ns, index)

    def __iter__(self) -> TimedSamples:
        return self

    def __next__(self) -> Any:
        began = time.monotonic_ns()
        item = self._next()
        ns = time.monotonic_ns() - began
        if ns >= SLOW_NS:
            self._fetches.slow_item(began, ns)
        self._fetches.item()
        return item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


# --- torch's own workers ---


def time_fetcher(fetcher: Any, fetches: Fetches) -> None:
    """Have one of torch's fetchers tell what it does; all it does stays torch's."""
    fetch, collate = type(fetcher).fetch, fetcher.collate_fn
    myself = weakref.ref(fetcher)  # a cycle would keep the user's generator from being closed
    batched = fetcher.auto_collation
    if hasattr(fetcher, "dataset_iter"):
        fetcher.dataset_iter = TimedSamples(fetcher.dataset_iter, fetches)
    else:
        fetcher.dataset = TimedSamples(fetcher.dataset, fetches)

    def timed_collate(data: Any) -> Any:
        fetches.fetched(len(data) if batched and hasattr(data, "__len__") else 1)
        return collate(data)

    def timed_fetch(index: Any) -> Any:
        fetches.begin()
        try:
            batch = fetch(myself(), index)
        except BaseException as error:
            fetches.failed(error)
            raise
        fetches.done()
        return batch

    fetcher.collate_fn, fetcher.fetch = timed_collate, timed_fetch


class WorkerInit:
    """A ``worker_init_fn`` that calls the user's, then has the worker's fetchers timed."""

    def __init__(self, users: Callable[[int], None] | None, plan: FetchPlan) -> None:
        self.users = users
        self.plan = plan

    def __call__(self, worker: int) -> None:
        if self.users is not None:
            self.users(worker)
        _time_worker(self.plan.open(worker))


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
