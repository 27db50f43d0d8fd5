"""The worker processes of an iterator: how they are started, what they do, how they end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from millhead import _core
from millhead._stack_memory import StackMemory
from millhead.torch.iterators.fetch import in_short
from millhead.torch.loader_stats import SAY_AFTER_S, Stats
from millhead.torch.start.starting import start_workers
from millhead.torch.start.template import reap_retired
from millhead.torch.workers.batch_worker import DUMP_STACK, Job, WorkerPlan
from millhead.torch.workers.processes import (
    Descriptor,
    Worker,
    describe_exit,
    end_all,
    hint_for_exit,
)
from millhead.torch.workers.replacement import Replacements, WorkersLostError

if TYPE_CHECKING:
    from millhead.torch.loader import Engine


@dataclass(eq=False)
class WorkerGroup:
    """The workers of an iterator, which it must not know: a cycle would keep them alive."""

    engine: Engine
    consumer_end: _core.ConsumerEnd
    job: Job
    context: Any
    timeout: float
    stats: Stats
    #: Whether the workers stay for other epochs.
    persists: bool
    handles: list[Worker] = field(default_factory=list)
    #: Puts others in the place of workers with too much memory; None: there is no limit.
    replacements: Replacements | None = None
    later: float = 0.0  # a new worker has as long as any, from when it was started
    threads_at_start: int = 1
    _plan: WorkerPlan = field(init=False)  # of any worker

    def __post_init__(self) -> None:
        self._stacks = StackMemory("millhead-stacks")

    def start(self, plans: list[WorkerPlan]) -> None:
        """Start a worker for each plan."""
        trainer = _core.process_open(os.getpid())
        try:
            self._plan = plans[0]
            for plan in plans:
                plan.descriptors = self.descriptors(plan.number, trainer)
            if self.replacements is not None:
                self.replacements.plans = [replace(plan) for plan in plans]
            self.threads_at_start = len(os.listdir("/proc/self/task"))
            self.stats.start, started = start_workers(
                self.engine, self.context, self.job, plans, self.timeout
            )
            self.handles.extend(started)
        finally:
            os.close(trainer)

    def descriptors(self, number: int, trainer: int) -> tuple[Descriptor, ...]:
        """What a worker is given; see WorkerPlan."""
        fds = [*self.consumer_end.fds(number), trainer, self._stacks.fileno()]
        if self.replacements is not None:
            fds.append(self.replacements.notes[number])
        return tuple(Descriptor(fd) for fd in fds)

    def deadline(self) -> float:
        """Until when a batch may be waited for from now on without a word."""
        return time.monotonic() + (self.timeout if self.timeout > 0 else SAY_AFTER_S)

    def views(self) -> list[dict[str, Any]]:
        """What each worker says about itself."""
        return [self.consumer_end.view(number) for number in range(len(self.handles))]

    def dead(self) -> list[int]:
        """Workers that ended and should not have."""
        dead = [number for number, worker in enumerate(self.handles) if worker.ended()]
        # In this order: one that left for its memory has said so before it ended.
        if self.replacements is not None and self.replacements.look(self):
            dead = [number for number in dead if self.handles[number].ended()]
        return dead

    def end(self, patience: float) -> None:
        """Wait for workers that were told to stop; after ``patience`` seconds, make them."""
        left = [] if self.replacements is None else self.replacements.processes()
        try:
            end_all([*self.handles, *left], patience)
        finally:
            self.consumer_end.close()
            self._stacks.close()
            if self.replacements is not None:
                self.replacements.close()
            reap_retired(patience=0.2)  # perhaps these were the last workers of one

    # --- in words ---

    def stack_of(self, worker: int) -> str:
        """The Python stack of a worker, or why it cannot be had."""
        handle, view = self.handles[worker], self.consumer_end.view(worker)
        if handle.is_stopped():
            return f"Its process is stopped: kill -CONT {handle.pid} lets it go on."
        if view["state"] == "starting":
            return "It has not begun to work: its dataset may still be loading."
        text = self._stacks.after(lambda: handle.send_signal(DUMP_STACK))
        return f"Its Python stack:\n{text}" if text else "It does not answer: no stack."

    def doing(self, worker: int) -> str:
        """What a worker is or was doing."""
        view = self.consumer_end.view(worker)
        handle = self.handles[worker]
        # It tells its own once it has started.
        pid = view["pid"] or (handle.pid if handle.begun() else "none yet")
        text = f"worker {worker} (pid {pid})"
        index, offset = view["index"], view["offset"]
        if index is None or view["state"] == "starting":
            return f"{text}, {view['state']}"
        what = "item" if self._plan.iterable else "sample index"
        if not self._plan.auto_collation:
            return f"{text}, {view['state']}, {what} {index!r}"
        with contextlib.suppress(Exception):  # an index of the user's own kind
            numbers = list(index)
            if view["state"] != "fetching":
                return f"{text}, {view['state']} the batch of {what} {in_short(numbers)}"
            index = numbers[offset]
        return f"{text}, {view['state']}, {what} {index!r} (number {offset} of its batch)"

    def loss(self, dead: list[int]) -> WorkersLostError:
        """All that is known about workers that ended."""
        refusal = self.handles[dead[0]].refusal()
        if refusal is not None:
            text = (
                f"DataLoader worker {dead[0]} could not be forked ({refusal}): use fewer workers, "
                "or have the limits on processes (ulimit -u, the container's) and memory raised"
            )
        else:
            text = self._obituary([number for number in dead if self.handles[number].begun()])
        return WorkersLostError(text, self._killed(dead))

    def _killed(self, dead: list[int]) -> RuntimeError | None:
        """The signal that ended a worker in the words of torch, which programs match on."""
        for worker in (self.handles[number] for number in dead):
            if worker.begun() and (code := worker.exitcode or 0) < 0:
                name = signal.strsignal(-code)
                return RuntimeError(
                    f"DataLoader worker (pid {worker.pid}) is killed by signal: {name}. "
                )
        return None

    def _imports_main(self, worker: int) -> bool:
        """Whether a worker is one of those that import the program, and still does."""
        starting = self.consumer_end.view(worker)["state"] == "starting"
        return starting and self.stats.start in ("spawn", "forkserver", "template")

    def _obituary(self, dead: list[int]) -> str:
        pids = ", ".join(str(self.handles[number].pid) for number in dead)
        first = self.handles[dead[0]]
        first.join(1.0)
        return (
            f"DataLoader worker (pid(s) {pids}) exited unexpectedly: "
            f"{describe_exit(first.exitcode)} ({self.doing(dead[0])}): "
            f"{hint_for_exit(first.exitcode, self._imports_main(dead[0]))}"
        )
