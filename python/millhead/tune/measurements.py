"""What `millhead tune` chooses from, and what it knows of it: settings, their limits, their trials."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

#: torch's default, and where the search begins.
PREFETCH = 2
#: What else is worth a try; more batches in reserve than that cover nothing but a pause.
PREFETCHES = (2, 4, 8, 16)
#: What a costlier setting must gain, as a share, to be worth it.
WORTH = 0.05
#: Training that waits less than this share of the time is kept busy.
SATURATED = 0.02
#: By how much two runs of the same differ (a standard deviation), until repeats show it; and how
#: many repeats that belief is worth.
USUAL_NOISE, BELIEF = 0.03, 4
#: The largest error bar of a difference that is taken for an excuse to stay with fewer workers.
NOISY = 0.1


@dataclass(frozen=True)
class Setting:
    """One point of the search."""

    batch_size: int
    workers: int = 0
    prefetch: int = PREFETCH
    dispatch: str = "batch"
    in_order: bool = True
    #: Threads that native code may use in each worker.
    threads: int = 1

    @property
    def name(self) -> str:
        """Of its directory and its line of the table."""
        parts = [f"w{self.workers}", f"b{self.batch_size}"]
        parts += [f"p{self.prefetch}"] if self.prefetch != PREFETCH else []
        parts += ["by-sample"] if self.dispatch == "sample" else []
        parts += ["any-order"] if not self.in_order else []
        parts += [f"t{self.threads}"] if self.threads > 1 else []
        return "-".join(parts)

    def given(self, name: str, loader: str = "millhead") -> dict[str, Any]:
        """The configuration as a file has it. What is a default anyway is left out."""
        entry: dict[str, Any] = {
            "name": name,
            "loader": loader,
            "batch_size": self.batch_size,
            "num_workers": self.workers,
        }
        if self.workers:
            entry |= {"prefetch_factor": self.prefetch, "persistent_workers": True}
        if self.dispatch != "batch":
            entry["dispatch"] = self.dispatch
        if not self.in_order:
            entry["in_order"] = False
        if self.threads > 1:
            entry["worker_threads"] = self.threads
        return entry

    @property
    def cost(self) -> tuple[Any, ...]:
        """What it takes from the machine and the user: among equals the least wins."""
        return (
            self.workers * self.threads,
            not self.in_order,
            self.dispatch != "batch",
            self.prefetch,
            self.batch_size,
        )


@dataclass(frozen=True)
class Limits:
    """What a setting must keep to."""

    batch_sizes: tuple[int, ...]
    most_workers: int
    cpus: int
    memory: int
    #: The dataset reads through a library with threads of its own.
    streams: bool = False
    loader: str = "millhead"

    def ladder(self) -> list[int]:
        """Numbers of workers worth telling apart: steps of a third or less, the CPUs and the limit
        among them."""
        steps = {0, self.most_workers, min(self.cpus, self.most_workers)}
        at = 1
        while at < self.most_workers:
            steps.add(at)
            at += max(1, at // 3)
        return sorted(steps)


@dataclass(frozen=True)
class Trial:
    """One measured run of a setting."""

    #: Samples a second, start-up left out.
    rate: float
    #: Share of the time in which training waited for a batch.
    wait_share: float
    #: Most memory of the process and its workers, shared pages shared out.
    memory: int
    #: The verdict's; None where there is none.
    cause: str | None = None
    #: How much of the memory was the workers'.
    workers_memory: int = 0


class Measurements:
    """All that was tried, and what follows from it."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.tried: dict[Setting, list[Trial]] = {}
        #: Settings that did not work or did not fit, and why.
        self.refused: dict[Setting, str] = {}
        #: The newest run of each setting, also of those that took too much.
        self.sizes: dict[Setting, Trial] = {}
        #: Whether the replay has held so far; where it has not, it is no reason to repeat runs.
        self.predictable = True

    def rate(self, setting: Setting) -> float:
        """Samples a second, the mean of its runs."""
        return statistics.fmean(trial.rate for trial in self.tried[setting])

    def wait_share(self, setting: Setting) -> float:
        """Share of the time in which training waited."""
        return statistics.fmean(trial.wait_share for trial in self.tried[setting])

    def saturated(self, setting: Setting) -> bool:
        """Whether a batch is loaded in less time than it is processed."""
        return self.wait_share(setting) <= SATURATED

    def noise(self) -> float:
        """By how much runs of the same setting differ: a standard deviation, as a share."""
        squares, freedom = BELIEF * USUAL_NOISE**2, float(BELIEF)
        for setting, trials in self.tried.items():
            mean = self.rate(setting)
            squares += sum((trial.rate / mean - 1) ** 2 for trial in trials)
            freedom += len(trials) - 1
        return math.sqrt(squares / freedom)

    def bar(self, one: Setting, other: Setting) -> float:
        """The error bar of the ratio of their rates: two standard errors."""
        runs = sum(1 / len(self.tried[setting]) for setting in (one, other))
        return 2 * self.noise() * math.sqrt(runs)

    def gap(self, one: Setting, other: Setting) -> float:
        """By how much one is faster than the other, as a share."""
        return self.rate(one) / self.rate(other) - 1

    def fastest(self) -> Setting:
        """The highest rate that was seen."""
        return max(self.tried, key=self.rate)

    def cheapest(self) -> Setting:
        """The one that takes least from the machine."""
        return min(self.tried, key=lambda setting: setting.cost)

    def best(self) -> Setting:
        """The cheapest that is as fast as the fastest, within what is worth it and noise.

        A large error bar excuses only so much, unless nothing at all stands out of it: then it is
        the cheapest of all.
        """
        top, least = self.fastest(), self.cheapest()
        if self.gap(top, least) <= self.bar(top, least):
            return least
        alike = [
            one
            for one in self.tried
            if self.gap(top, one) <= max(WORTH, min(NOISY, self.bar(top, one)))
        ]
        return min(alike, key=lambda setting: setting.cost)

    def memory_of(self, setting: Setting) -> float:
        """What it may take. Two numbers of workers show what one more takes. One number does not:
        what a worker shares cannot be told from what is its own, so all of it counts."""
        sizes = ((one.workers, trial) for one, trial in self.sizes.items() if one.workers)
        seen = sorted(sizes, key=lambda pair: pair[0])
        if not seen or setting.workers == 0:
            return 0.0
        (few, less), (many, most) = seen[0], seen[-1]
        if few == many:
            each = most.workers_memory / many
        else:
            each = max(0.0, (most.memory - less.memory) / (many - few))
        deeper = max(1.0, setting.prefetch / PREFETCH)
        return most.memory + each * (setting.workers * deeper - many)

    def is_noisier(self) -> bool:
        """Whether something seems faster than the cheapest, and nothing is beyond the noise."""
        top, least = self.fastest(), self.cheapest()
        return WORTH < self.gap(top, least) <= self.bar(top, least)

    def why_stopped(self) -> str:
        """The rule that ended the search, with its numbers."""
        best = self.best()
        share = self.wait_share(best)
        if self.is_noisier():
            top = self.fastest()
            return (
                f"noisier than any difference: {top.name} measures {self.gap(top, best):+.0%}, and "
                f"the error bar is {self.bar(top, best):.0%}; the fewest workers win"
            )
        if self.saturated(best):
            return (
                "saturated: a batch is loaded in less time than it is processed (training waits "
                f"{share:.1%} of the time)"
            )
        above = [one for one in self.refused if one.workers > best.workers]
        if above:
            nearest = min(above, key=lambda one: one.workers)
            many = f"{nearest.workers} worker{'s' if nearest.workers > 1 else ''}"
            return f"{many} cannot be had: {self.refused[nearest]}"
        if best.workers == self.limits.most_workers:
            return f"the limit of {best.workers} workers is reached (training waits {share:.0%})"
        crowded = [one for one in self.tried if one.workers > best.workers > 0]
        if not self.predictable and crowded:
            worst = min(crowded, key=self.rate)
            if self.gap(worst, best) < -max(WORTH, self.bar(worst, best)):
                return (
                    f"more workers are in each other's way: {worst.name} gives "
                    f"{self.gap(worst, best):+.0%} ±{self.bar(worst, best):.0%}"
                )
        if best.workers == 0:
            return "workers do not help here: none is faster beyond noise" + self._next_best(best)
        return (
            f"diminishing returns: another step gains less than {WORTH:.0%} or the noise"
            + self._next_best(best)
        )

    def _next_best(self, best: Setting) -> str:
        others = [one for one in self.tried if one != best]
        if not others:
            return ""
        top = max(others, key=self.rate)
        return f" ({top.name} gives {self.gap(top, best):+.0%} ±{self.bar(top, best):.0%})"
