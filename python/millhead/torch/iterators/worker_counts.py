"""What an iterator counts of its workers, and what it advises about them."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from millhead import Advice
from millhead.torch.loader_stats import Stats, advise
from millhead.torch.workers import thread_caps
from millhead.torch.workers.dask_modes import streaming_of
from millhead.torch.workers.oversubscription import check_threads

if TYPE_CHECKING:
    from millhead.torch.iterators.turns import BatchTasks
    from millhead.torch.iterators.worker_group import WorkerGroup


class WorkerCounts:
    """Brings what workers and their rings count to the loader's numbers."""

    def __init__(self, stats: Stats, tasks: BatchTasks, group: WorkerGroup, began_ns: int) -> None:
        self._stats = stats
        self._tasks = tasks
        self._group = group
        self._made_ns = self._began_ns = began_ns  # the iterator, and its epoch
        self._pid = os.getpid()
        self._rings = (0, 0, 0, 0)  # what is counted of them
        self._faults = (0, 0)  # samples skipped and replaced, likewise
        stats.sources.add(self)

    def started(self, caps: thread_caps.Caps, since_ns: int) -> None:
        """All workers were started, which began then."""
        stats = self._stats
        self._limit = caps.limit
        self._streaming = streaming_of(caps.limit, caps.cluster, caps.chosen, stats.start)
        stats.streams(self._streaming, self._tasks.workers)
        stats.starts += 1
        if stats.start == "template":
            self._advise_to_persist(time.perf_counter_ns() - since_ns)

    def next_epoch(self) -> None:
        """Workers that persist begin another epoch."""
        self._began_ns = time.perf_counter_ns()

    def first_batch(self) -> None:
        """The first batch of the epoch is there."""
        stats = self._stats
        stats.first_batch_ns = time.perf_counter_ns() - self._began_ns
        if stats.start not in ("fork", "template"):  # new interpreters start on their own time
            busy = max(view["busy_ns"] for view in self._group.views())
            with contextlib.suppress(Advice):  # as an error it would lose the batch
                self._advise_to_persist(max(stats.first_batch_ns - busy, 0))

    def _advise_to_persist(self, start_ns: int) -> None:
        stats = self._stats
        if self._group.persists or stats.epochs < 1 or stats.starts < 2:
            return
        advise(
            "restarts",
            f"starting {self._tasks.workers} workers took {start_ns / 1e9:.2f} s for this epoch, "
            f"and will in every other (start: {stats.start}): persistent_workers=True keeps them",
        )

    def check_threads(self) -> None:
        """See whether workers keep too many threads running."""
        check_threads(self._group.views(), self._limit, self._streaming)

    def bring_faults(self) -> None:
        """Add what workers skipped and replaced."""
        skipped, replaced, first = self._tasks.faults()
        self._stats.add_faults(skipped - self._faults[0], replaced - self._faults[1], first)
        self._faults = (skipped, replaced)

    def bring(self) -> None:
        """Add all else that was counted since the last time; nothing in a forked child."""
        if self._pid != os.getpid():
            return
        stats, rings, views = self._stats, self._group.consumer_end.counts(), self._group.views()
        stats.add_counts(rings, self._rings)
        self._rings = rings
        stats.threads_seen = max(stats.threads_seen, sum(view["threads"] for view in views))
        elapsed_ns = max(time.perf_counter_ns() - self._made_ns, 1)
        stats.workers_busy = [min(1.0, view["busy_ns"] / elapsed_ns) for view in views]

    def end(self) -> None:
        """The last time."""
        if len(self._group.handles) == self._tasks.workers:  # else they did not all start
            self.bring()
        self._stats.sources.discard(self)
