"""The clock of a training step: which phase it is in, and the steps that have ended.

One clock, cut into pieces: at any time exactly one phase, or none ("other"), is charged, so the
phases of a step and "other" add up to the step. A phase inside another interrupts it.

While a step is under way, entering and leaving a phase only appends what the clock shows; several
steps are added up together, later. That keeps the timer out of the way of what it times.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from millhead._rank_info import process_group
from millhead.timer import hang
from millhead.timer.stragglers import BARRIER_AFTER, OTHER, WAITING

#: When a phase was entered (the phase) or left (None).
Change = tuple[int, "Phase | None"]


class Phase:
    """``with phase:`` charges the time inside to it. Made by a :class:`StepTimer`."""

    __slots__ = ("_clock", "label", "name")

    def __init__(self, clock: PhaseClock, name: str) -> None:
        self._clock = clock
        self.name = name
        self.label = json.dumps(name)

    def __enter__(self) -> None:
        clock = self._clock
        clock.changes.append((clock.now(), self))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        clock = self._clock
        if error is not None:  # no waiting for the device: it may be what failed
            clock.changes.append((time.monotonic_ns(), None))
            clock.fail(error)
            return
        clock.changes.append((clock.now(), None))
        if clock.barriers and self.name in BARRIER_AFTER:
            clock.meet()


class Step(NamedTuple):
    """A step that has ended."""

    number: int
    began: int
    ended: int
    changes: list[Change]
    failed: bool
    samples: int
    tokens: int

    def add_up(self, lines: list[str] | None) -> dict[str, int]:
        """Its ns by phase; adds an event for each use of a phase, where there are lines to add to."""
        sums: dict[str, int] = {}
        stack: list[tuple[int, Phase]] = []
        since = self.began
        for ns, phase in self.changes:
            current = stack[-1][1].name if stack else OTHER
            sums[current] = sums.get(current, 0) + ns - since
            since = ns
            if phase is not None:
                stack.append((ns, phase))
            elif stack:  # empty where the step was dropped inside a phase
                entered, left = stack.pop()
                if lines is not None:
                    lines.append(
                        f'{{"event":"phase","t":{entered},"ns":{ns - entered},"name":{left.label},'
                        f'"step":{self.number}}}\n'
                    )
        sums[OTHER] = sums.get(OTHER, 0) + self.ended - since
        return sums


class PhaseClock:
    """The phases of the step under way, and the steps before it that are not yet added up."""

    def __init__(
        self, sync: Callable[[], object] | bool | None, barriers: bool, error_file: str | None
    ) -> None:
        self.barriers = barriers
        self.error_file = error_file
        self.changes: list[Change] = []
        #: Steps so far: all, and those in which a phase raised.
        self.steps = self.partial_steps = 0
        self.ended: list[Step] = []
        self._sync = sync
        self._wait_for_device: Callable[[], object] | None = None
        self._began = 0  # when the step did; 0: when its first phase will
        self.failed = False
        self._phases: dict[str, Phase] = {}

    def phase(self, name: str) -> Phase:
        """The phase of that name, new or not."""
        if name not in self._phases:
            self._phases[name] = Phase(self, name)
        return self._phases[name]

    def now(self) -> int:
        """What the clock shows when the device has done what was queued there."""
        if self._wait_for_device is not None:
            self._wait_for_device()
        return time.monotonic_ns()

    def find_device(self) -> None:
        """See how to wait for the device; never the first to touch one."""
        self._wait_for_device = self._sync if callable(self._sync) else None
        torch = sys.modules.get("torch")
        for kind in ("cuda", "xpu", "mtia") if torch is not None and self._sync is None else ():
            module = getattr(torch, kind, None)
            if module is not None and module.is_initialized():
                self._wait_for_device = module.synchronize
                return

    def fail(self, error: BaseException) -> None:
        """An exception leaves a phase."""
        if isinstance(error, StopIteration):  # the loader has no more: no step began
            self.drop()
            return
        self.failed = True
        if self.error_file and isinstance(error, Exception):
            hang.record(self.error_file, error)

    def meet(self) -> None:
        """Wait for the other ranks."""
        dist = process_group()
        if dist is not None:
            with self.phase(WAITING):
                dist.barrier()

    def end_step(self, samples: int, tokens: int) -> int:
        """End the step under way and begin the next; when that was."""
        now = self.now()
        changes = self.changes
        # a look at the whole list only where it is not in pairs: this runs in every step
        if (len(changes) % 2 or (changes and changes[-1][1] is not None)) and (
            names := under_way(changes)
        ):
            raise RuntimeError(
                f"step() in the phase {names[-1]!r}: leave the phase, then end the step"
            )
        began = self._began or (changes[0][0] if changes else now)
        self.ended.append(Step(self.steps, began, now, changes, self.failed, samples, tokens))
        self.steps += 1
        self.partial_steps += self.failed
        self.drop()
        self._began = now
        return now

    def drop(self) -> None:
        """Forget the step under way; the next begins with its first phase."""
        self.changes = []
        self._began = 0
        self.failed = False

    def restart(self) -> None:
        """What was between two steps until now belongs to none."""
        self._began = self._began and time.monotonic_ns()

    def standstill(self) -> tuple[float, str]:
        """For how many seconds no phase was entered or left, and where; read by another thread."""
        changes = list(self.changes)
        if not changes:
            return 0.0, ""
        where = (under_way(changes) or [OTHER])[-1]
        return (time.monotonic_ns() - changes[-1][0]) / 1e9, f"{where}, step {self.steps}"


def under_way(changes: list[Change]) -> list[str]:
    """Names of the phases that are not left yet, the innermost last."""
    names: list[str] = []
    for _, phase in changes:
        if phase is not None:
            names.append(phase.name)
        elif names:
            names.pop()
    return names
