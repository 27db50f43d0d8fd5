"""Which rank the others wait for, in which phase, and what it costs: from every rank's step times.

Ranks meet once a step or more often: in a barrier, or in a collective operation somewhere in a phase
(DistributedDataParallel's is in backward). Whoever comes last there was waited for. So time is added
up phase by phase from one meeting to the next. At each phase's end the rank with the most is last;
it is late by what it has more than the rank in the middle. Lateness that a phase adds is charged to
that phase of the last rank.

With barriers there is a meeting after each of data, forward and backward. Without, one collective is
assumed, at the end of backward, and only lateness that is gone there was waited for: ranks that never
wait for each other lose nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

OTHER, WAITING = "other", "waiting"
#: Phases that a barrier follows.
BARRIER_AFTER = ("data", "forward", "backward")

#: A cost below this share of a step is not worth a name.
LEAST_SHARE = 0.02


class RankSteps(NamedTuple):
    """One rank's steps: seconds by phase, phases in the order in which a step goes through them."""

    rank: int
    host: str
    steps: list[dict[str, float]]


Charges = dict[tuple[int, str], float]


def find(everyone: Sequence[RankSteps]) -> dict[str, Any]:
    """The rank that the others wait for most; ``rank`` is None where none stands out.

    All seconds are means over the steps that every rank has.
    """
    count = min(len(each.steps) for each in everyone)
    steps = [
        [each.steps[len(each.steps) - count + nth] for each in everyone] for nth in range(count)
    ]
    charges: Charges = defaultdict(float)
    barriers = any(row.get(WAITING) for step in steps for row in step)
    for before, step in pairwise(steps):
        cycle = _cycle(before, step)
        for stretch in _stretches(list(cycle[0]), barriers):
            _charge(charges, cycle, stretch, met=barriers)
    cycles = max(count - 1, 1)
    lost = [
        sum(charges[nth, name] for name in _names(everyone)) / cycles
        for nth in range(len(everyone))
    ]
    wall = sum(sum(row.values()) for step in steps for row in step) / max(len(everyone) * count, 1)
    report: dict[str, Any] = {
        "steps": count,
        "step_s": wall,
        "barriers": barriers,
        "ranks": [_summary(each, count, lost[nth]) for nth, each in enumerate(everyone)],
    }
    return report | _verdict(everyone, charges, lost, cycles, wall)


def _names(everyone: Sequence[RankSteps]) -> list[str]:
    return list(dict.fromkeys(name for each in everyone for row in each.steps for name in row))


def _cycle(before: list[dict[str, float]], step: list[dict[str, float]]) -> list[dict[str, float]]:
    """Each rank's time from the end of one backward to the end of the next, in order.

    What follows backward in a step belongs to the next meeting. Without a backward, a step it is.
    """
    names = [name for name in dict.fromkeys(name for row in step for name in row) if name != OTHER]
    after = names[names.index("backward") + 1 :] if "backward" in names else []
    first = [*after, OTHER, *(name for name in names if name not in after)]
    return [
        {name: (last if name in after else row).get(name, 0.0) for name in first}
        for last, row in zip(before, step, strict=True)
    ]


def _stretches(names: list[str], barriers: bool) -> list[list[str]]:
    """The phases between one meeting of the ranks and the next."""
    own = [name for name in names if name != WAITING]
    if not barriers:
        return [own]
    stretches: list[list[str]] = [[]]
    for name in own:
        stretches[-1].append(name)
        if name in BARRIER_AFTER:
            stretches.append([])
    return [stretch for stretch in stretches if stretch]


def _charge(
    charges: Charges, cycle: list[dict[str, float]], stretch: list[str], *, met: bool
) -> None:
    """Charges what the last rank is late by; ``met``: surely waited for, and not only perhaps."""
    elapsed = [0.0] * len(cycle)
    late = peak = 0.0
    charged: Charges = defaultdict(float)
    for name in stretch:
        elapsed = [so_far + row[name] for so_far, row in zip(elapsed, cycle, strict=True)]
        last = max(range(len(elapsed)), key=elapsed.__getitem__)
        now = elapsed[last] - _middle(elapsed)
        if now > peak:
            charged[last, name] += now - peak
            peak = now
        late = now
    waited_for = 1.0 if met or not peak else (peak - late) / peak
    for key, seconds in charged.items():
        charges[key] += seconds * waited_for


def _middle(values: Sequence[float]) -> float:
    """The median; of an even number the lower one, so that of two ranks it is the faster."""
    return sorted(values)[(len(values) - 1) // 2]


def _summary(each: RankSteps, count: int, lost: float) -> dict[str, Any]:
    sums: dict[str, float] = defaultdict(float)
    for row in each.steps[len(each.steps) - count :]:
        for name, seconds in row.items():
            sums[name] += seconds / count
    return {"rank": each.rank, "host": each.host, "phases_s": dict(sums), "lost_s": lost}


def _verdict(
    everyone: Sequence[RankSteps],
    charges: Charges,
    lost: list[float],
    cycles: int,
    wall: float,
) -> dict[str, Any]:
    """Names the rank with the highest charge, if it is neither small nor shared by all."""
    worst = max(range(len(lost)), key=lost.__getitem__)
    share = lost[worst] / wall if wall else 0.0
    # Chance makes each rank the last one equally often.
    enough = max(0.1, min(0.75, 2.5 / len(lost)))
    if share < LEAST_SHARE or lost[worst] < enough * sum(lost):
        text = (
            "there is one rank: nobody waits for it"
            if len(lost) == 1
            else f"no rank is waited for more than others in {spell(wall)} a step"
        )
        return {
            "rank": None,
            "host": None,
            "phase": None,
            "lost_s": 0.0,
            "share": 0.0,
            "text": text,
        }
    each = everyone[worst]
    phase = max(_names(everyone), key=lambda name: charges[worst, name])
    doing = {"data": "loads slowest", OTHER: "spends most time outside of phases"}
    text = (
        f"rank {each.rank} on {each.host} {doing.get(phase, f'is slowest in {phase}')}, costing all "
        f"ranks {share:.0%} of the step ({spell(lost[worst])} of {spell(wall)})".replace("%", " %")
    )
    return {
        "rank": each.rank,
        "host": each.host,
        "phase": phase,
        "lost_s": lost[worst],
        "share": share,
        "text": text,
    }


def spell(seconds: float) -> str:
    """A duration as people write it: 1.2 s, 50 ms, 0.3 ms."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.1f} ms"
