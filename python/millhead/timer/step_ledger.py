"""The steps that have ended: added up, written as events, kept for ``log`` and ``ranks``."""

from __future__ import annotations

import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from millhead.timer.phases import PhaseClock
from millhead.timer.stragglers import OTHER

if TYPE_CHECKING:
    from millhead.watching.recording import Recording

PHASES = ("data", "forward", "backward", "update")
#: What the loop does for the sake of the model; the rest is loading, waiting or its own affair.
TRAINING = ("forward", "backward", "update")
#: Steps that are kept for :meth:`StepTimer.ranks`.
KEPT = 1000
#: Steps are added up, and their events written, when there are this many or this much time has passed.
SETTLE_STEPS, SETTLE_NS = 64, 1_000_000_000


class StepLedger:
    """Adds up a clock's steps, several at a time: not while they are timed."""

    def __init__(self, clock: PhaseClock, recording: Recording | None) -> None:
        self._clock = clock
        #: Where events are written; None: nowhere.
        self.recording = recording
        #: Of the last step, seconds by phase.
        self.last: dict[str, float] = {}
        self.history: deque[dict[str, float]] = deque(maxlen=KEPT)
        #: Takes each step's ns of training; None: nobody watches the loader.
        self.add_training: Callable[[int], object] | None = None
        self._window = StepWindow()
        self._settled_ns = 0  # when steps last were added up
        if recording is not None:
            recording.before_end.append(weakref.WeakMethod(self._write_rest))

    def step_ended(self, now: int) -> None:
        """Add up where it is time to."""
        if (
            len(self._clock.ended) >= SETTLE_STEPS
            or now - self._settled_ns > SETTLE_NS
            or self.add_training is not None
        ):
            self.settle()

    def settle(self) -> None:
        """Add up the steps that have ended, and write their events."""
        lines: list[str] = []
        for step in self._clock.ended:
            sums = step.add_up(None if self.recording is None else lines)
            self.last = {name: ns / 1e9 for name, ns in sums.items()}
            if not step.failed and step.ended > step.began:
                self.history.append(self.last)
                self._window.add(self.last, step.samples, step.tokens)
            if self.add_training is not None:
                self.add_training(sum(sums.get(name, 0) for name in TRAINING))
        self._clock.ended.clear()
        self._settled_ns = time.monotonic_ns()
        self._clock.find_device()  # it may have come into use since
        if self.recording is not None:
            self.recording.log.write("".join(lines))

    def take_window(self) -> StepWindow:
        """The steps since the last time."""
        self.settle()
        window, self._window = self._window, StepWindow()
        return window

    def _write_rest(self) -> None:
        """Where the loop ends without :meth:`StepTimer.close`."""
        if self.recording is not None and self.recording.goes_on() and self._clock.ended:
            self.settle()

    def __del__(self) -> None:
        self._write_rest()


class StepWindow:
    """Sums over the steps since the last line."""

    def __init__(self) -> None:
        self.steps = self.samples = self.tokens = 0
        self.seconds: dict[str, float] = {}

    def add(self, seconds: dict[str, float], samples: int, tokens: int) -> None:
        """A step: its seconds by phase, and what it trained on."""
        self.steps += 1
        self.samples += samples
        self.tokens += tokens
        for name, value in seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value

    def times(self) -> dict[str, float]:
        """In ms a step."""
        names = [*PHASES, *(name for name in self.seconds if name not in (*PHASES, OTHER)), OTHER]
        steps = max(self.steps, 1)
        times = {name: 1000 * self.seconds.get(name, 0.0) / steps for name in names}
        return {"time/total": sum(times.values())} | {f"time/{n}": ms for n, ms in times.items()}

    def rates(self, world: int) -> dict[str, float]:
        """Of all ranks together."""
        seconds = sum(self.seconds.values())
        rates = {}
        for name, count in (("tokens_per_s", self.tokens), ("samples_per_s", self.samples)):
            if count or not self.steps:
                rates[name] = world * count / seconds if seconds else 0.0
        return rates


def device_memory() -> dict[str, float]:
    """In GB; zeros where there is no CUDA device in use."""
    keys = {
        "curr_alloc_gb": "allocated_bytes.all.current",
        "peak_alloc_gb": "allocated_bytes.all.peak",
        "curr_resv_gb": "reserved_bytes.all.current",
        "peak_resv_gb": "reserved_bytes.all.peak",
    }
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return dict.fromkeys(("total_gb", *keys), 0.0)
    stats = torch.cuda.memory_stats()
    total = 1e-9 * torch.cuda.get_device_properties(None).total_memory
    return {"total_gb": total} | {name: 1e-9 * stats[key] for name, key in keys.items()}
