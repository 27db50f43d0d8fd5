"""From rounds to figures: per-round ratios, their median, a bootstrap interval and a verdict."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

RESAMPLES = 4000
STEAL_LIMIT = 0.01
SWITCH_FACTOR, SWITCH_FLOOR = 10, 100
HALF_WIDTH_LIMIT = 0.03


@dataclass(frozen=True)
class Block:
    """One arm's block in one round.

    ``samples`` and ``amount`` are samples or calls and seconds; for memory, workers and GB.
    """

    amount: float
    samples: int
    cpu_s: float
    switches: int
    figures: dict[str, float] = field(default_factory=dict)
    digests: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        """Samples per second, or what stands for that; more is better."""
        return self.samples / self.amount


@dataclass(frozen=True)
class Round:
    """One block of every arm, and the share of time the hypervisor took meanwhile."""

    blocks: dict[str, Block]
    steal: float


@dataclass(frozen=True)
class Ratio:
    """A median of per-round ratios and its 95 % interval."""

    median: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the interval, as a share of the median."""
        return (self.high - self.low) / 2 / self.median


def quiet(rounds: Sequence[Round]) -> list[Round]:
    """Leave out rounds with steal, or with an arm switched out far more often than usual."""
    kept = [r for r in rounds if r.steal <= STEAL_LIMIT]
    if not kept:
        return []
    usual = {arm: statistics.median(r.blocks[arm].switches for r in kept) for arm in kept[0].blocks}
    return [
        r
        for r in kept
        if all(
            block.switches <= max(SWITCH_FACTOR * usual[arm], SWITCH_FLOOR)
            for arm, block in r.blocks.items()
        )
    ]


def compare(rounds: Sequence[Round], arm: str, base: str, seed: int = 0) -> Ratio:
    """The ratio of two arms' rates, paired by round."""
    ratios = [r.blocks[arm].rate / r.blocks[base].rate for r in rounds]
    generator = random.Random(seed)
    medians = sorted(
        statistics.median(generator.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES)
    )
    low, high = medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]
    return Ratio(statistics.median(ratios), low, high)


def spread(again: Ratio) -> float:
    """The A/A spread: how far from 1 the interval of the same arm against itself reaches."""
    return max(abs(again.low - 1), abs(again.high - 1))


def verdict(ratio: Ratio, aa_spread: float | None, words: tuple[str, str]) -> str:
    """Read a ratio to torch in words. A difference under twice the A/A spread is none."""
    margin = 2 * (aa_spread or 0.0)
    if ratio.low > 1 and ratio.median > 1 + margin:
        return f"{words[0]} than torch"
    if ratio.high < 1 and ratio.median < 1 - margin:
        return f"{words[1]} than torch"
    if ratio.half_width > HALF_WIDTH_LIMIT:
        return "unsettled (interval wider than ±3 %)"
    return "equal to torch"
