"""timer - what StepTimer costs a step: 10 ms steps with five phases, timed and not, interleaved.

    .venv/bin/python bench/timer.py [--steps N] [--rounds R] [--step-ms MS]

A step sleeps until a fixed moment after its beginning, as a loop waits for a device, and what matters
is the processor time it takes besides. Reported: CPU time and wall time a step, medians over rounds,
and what the timer adds as a share of the step.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from millhead import StepTimer

PHASES = ("data", "forward", "backward", "update", "waiting")
Phases = Callable[[str], AbstractContextManager[None]]


def steps(count: int, step_s: float, phase: Phases, end: Callable[[], object]) -> None:
    """A loop of steps whose phases each sleep for their part."""
    for _ in range(count):
        for name in PHASES:
            with phase(name):
                time.sleep(step_s / len(PHASES))
        end()


@contextlib.contextmanager
def arm(name: str) -> Iterator[tuple[Phases, Callable[[], object]]]:
    """What a loop enters for a phase, and calls at the end of a step."""
    if name == "bare":
        nothing = contextlib.nullcontext()
        yield (lambda _: nothing), (lambda: None)
    elif name == "timer":
        timer = StepTimer(quiet=True)
        yield timer, timer.step
    else:
        with (
            tempfile.TemporaryDirectory(prefix="millhead-bench-") as run,
            StepTimer(quiet=True, run=run) as timer,
        ):
            yield timer, timer.step


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=50, help="in a block")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--step-ms", type=float, default=10.0)
    options = parser.parse_args()
    arms = ("bare", "timer", "timer and events")
    cpu: dict[str, list[float]] = {name: [] for name in arms}
    wall: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(options.rounds):
        for name in arms:
            with arm(name) as (phase, end):
                before = time.thread_time(), time.perf_counter()
                steps(options.steps, options.step_ms / 1000, phase, end)
                cpu[name].append((time.thread_time() - before[0]) / options.steps)
                wall[name].append((time.perf_counter() - before[1]) / options.steps)
    print(f"| {options.step_ms:g} ms steps | CPU a step | wall a step | added CPU | added wall |")
    print("|---|---|---|---|---|")
    for name in arms:
        added = [
            statistics.median(a - b for a, b in zip(kind[name], kind["bare"], strict=True))
            / (options.step_ms / 1000)
            for kind in (cpu, wall)
        ]
        print(
            f"| {name} | {1e6 * statistics.median(cpu[name]):.0f} us "
            f"| {1e3 * statistics.median(wall[name]):.3f} ms "
            f"| {added[0]:.2%} | {added[1]:.2%} |"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
