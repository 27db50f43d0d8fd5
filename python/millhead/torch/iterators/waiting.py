"""Waiting for a batch: meanwhile signals, workers and the clock are looked at."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millhead.torch.iterators.pin_thread import SLICE_NS, Taken
from millhead.torch.loader_stats import SAY_AFTER_S, advise

if TYPE_CHECKING:
    from millhead.torch.iterators.turns import BatchTasks
    from millhead.torch.iterators.worker_group import WorkerGroup


@dataclass(eq=False)
class Waiting:
    """Takes batches from ``outlet`` that have not come yet.

    ``grace_ns``: how long a batch may still be under way from a worker that has ended.
    """

    outlet: Any
    tasks: BatchTasks
    workers: WorkerGroup
    grace_ns: int

    def take(self, due: int, first: bool) -> Taken:
        """The batch of a task; ``first``: of the epoch. Raises WorkersLostError where it will not
        come."""
        self.tasks.hurry(due, self.workers.handles)
        taken: Taken = self._wait(functools.partial(self.outlet.take, due), due, first)
        return taken

    def any_ready(self, due: int, first: bool) -> int:
        """The first task whose batch is there; ``due`` is the oldest."""
        return int(self._wait(self.outlet.ready, due, first))

    def _wait(self, ask: Callable[[int], Any], due: int, first: bool) -> Any:
        """What ``ask(timeout_ns)`` gives once it gives something."""
        deadline = self.workers.deadline()
        while (found := ask(self._slice_ns())) is None:
            if dead := self.workers.dead():
                found = ask(self.grace_ns)  # sent before it died?
                if found is None:
                    raise self.workers.loss(dead)
                break
            self._look_at_clock(due, deadline, first)
        return found

    def _slice_ns(self) -> int:
        """A short timeout= shortens it."""
        timeout = self.workers.timeout
        return int(min(SLICE_NS, timeout * 1e9)) if timeout > 0 else SLICE_NS

    def _look_at_clock(self, due: int, deadline: float, first: bool) -> None:
        """After a slice without a result: is it too late?"""
        workers = self.workers
        if time.monotonic() < max(deadline, workers.later):
            return
        worker = self.tasks.culprit(due, workers)
        doing = workers.doing(worker)
        if workers.timeout > 0:
            raise RuntimeError(
                f"DataLoader timed out after {workers.timeout} seconds: {doing}\n"
                f"{workers.stack_of(worker)}"
            )
        threads = workers.threads_at_start
        if workers.stats.start == "fork" and first and threads > 1:
            doing += (
                f"; it was forked from a process of {threads} threads, and may wait "
                "for a lock one of them held: try multiprocessing_context='forkserver'"
            )
        advise(
            "long-wait",
            f"no batch for {SAY_AFTER_S:.0f} s ({doing}): still waiting; set timeout= to raise "
            "instead",
        )
