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
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median_low
from typing import Any, NamedTuple

from millhead._rank_info import process_group

OTHER, WAITING = "other", "waiting"
#: Phases that a barrier follows.
BARRIER_AFTER = ("data", "forward", "backward")

#: A cost below this share of a step is not worth a name, nor is one that came up less often: any
#: process is held up now and then.
LEAST_SHARE, LEAST_TIMES = 0.05, 3


class RankSteps(NamedTuple):
    """One rank's steps: seconds by phase, phases in the order in which a step goes through them."""

    rank: int
    host: str
    steps: list[dict[str, float]]


def gather(own: RankSteps, group: Any) -> list[RankSteps]:
    """Every rank's steps, where there are others."""
    dist = process_group()
    if dist is None:
        return [own]
    gathered: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(gathered, tuple(own), group=group)
    return [RankSteps(*each) for each in gathered]


@dataclass
class Account:
    """What one rank is charged with: seconds of every rank, and in how many steps it stood out."""

    by_phase: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    times: int = 0

    @property
    def lost(self) -> float:
        return sum(self.by_phase.values())


Charges = dict[tuple[int, str], float]


def find(everyone: Sequence[RankSteps]) -> dict[str, Any]:
    """The rank that the others wait for most; ``rank`` is None where none stands out.

    All seconds are means over the steps that every rank has.
    """
    count = min(len(each.steps) for each in everyone)
    steps = [
        [each.steps[len(each.steps) - count + nth] for each in everyone] for nth in range(count)
    ]
    wall = sum(sum(row.values()) for step in steps for row in step) / max(len(everyone) * count, 1)
    barriers = any(row.get(WAITING) for step in steps for row in step)
    accounts = [Account() for _ in everyone]
    for before, step in pairwise(steps):
        cycle = _cycle(before, step)
        charges: Charges = {}
        for stretch in _stretches(list(cycle[0]), barriers):
            charges |= _charge(cycle, stretch, met=barriers)  # no phase is in two stretches
        for nth, account in enumerate(accounts):
            own = {name: s for (rank, name), s in charges.items() if rank == nth}
            account.times += sum(own.values()) >= LEAST_SHARE * wall > 0
            for name, seconds in own.items():
                account.by_phase[name] += seconds
    cycles = max(count - 1, 1)
    ranks = [
        _summary(each, count, account.lost / cycles)
        for each, account in zip(everyone, accounts, strict=True)
    ]
    report = {"steps": count, "step_s": wall, "barriers": barriers, "ranks": ranks}
    return report | _verdict(everyone, accounts, cycles, wall)


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


def _charge(cycle: list[dict[str, float]], stretch: list[str], *, met: bool) -> Charges:
    """What the last ranks are late by, which costs all, by rank and phase; ``met``: surely waited
    for, and not only perhaps."""
    elapsed = [0.0] * len(cycle)
    late = peak = 0.0
    charged: Charges = defaultdict(float)
    for name in stretch:
        elapsed = [so_far + row[name] for so_far, row in zip(elapsed, cycle, strict=True)]
        last = max(range(len(elapsed)), key=elapsed.__getitem__)
        now = elapsed[last] - median_low(elapsed)  # of two ranks the faster is the middle
        if now > peak:
            charged[last, name] += now - peak
            peak = now
        late = now
    waited_for = 1.0 if met or not peak else (peak - late) / peak
    return {key: seconds * waited_for for key, seconds in charged.items()}


def _summary(each: RankSteps, count: int, lost: float) -> dict[str, Any]:
    sums: dict[str, float] = defaultdict(float)
    for row in each.steps[len(each.steps) - count :]:
        for name, seconds in row.items():
            sums[name] += seconds / count
    return {"rank": each.rank, "host": each.host, "phases_s": dict(sums), "lost_s": lost}


def _verdict(
    everyone: Sequence[RankSteps], accounts: list[Account], cycles: int, wall: float
) -> dict[str, Any]:
    """Names the rank with the highest charge, if it is neither small nor shared by all."""
    each, worst = max(zip(everyone, accounts, strict=True), key=lambda pair: pair[1].lost)
    lost = worst.lost / cycles
    share = lost / wall if wall else 0.0
    # Chance makes each rank the last one equally often.
    enough = max(0.1, min(0.75, 2.5 / len(accounts)))
    clear = worst.lost >= enough * sum(account.lost for account in accounts)
    if share < LEAST_SHARE or worst.times < LEAST_TIMES or not clear:
        text = (
            "there is one rank: nobody waits for it"
            if len(accounts) == 1
            else f"no rank is waited for more than others in {spell(wall)} a step"
        )
        nobody = dict.fromkeys(("rank", "host", "phase"))
        return {**nobody, "lost_s": 0.0, "share": 0.0, "text": text}
    phase = max(worst.by_phase, key=worst.by_phase.__getitem__)
    doing = {"data": "loads slowest", OTHER: "spends most time outside of phases"}
    text = (
        f"rank {each.rank} on {each.host} {doing.get(phase, f'is slowest in {phase}')}, costing all "
        f"ranks {share:.0%} of the step ({spell(lost)} of {spell(wall)})".replace("%", " %")
    )
    found = {"rank": each.rank, "host": each.host, "phase": phase}
    return {**found, "lost_s": lost, "share": share, "text": text}


def spell(seconds: float) -> str:
    """A duration as people write it: 1.2 s, 50 ms, 0.3 ms."""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.1f} ms"
