"""The search of `millhead tune`: no clock, no process, only what to measure next and when to stop.

It measures the loader without workers, lets the replay of that run predict what every number of workers
would give, measures the best of them and then its neighbours, up and down, until another step gains
less than noise. Where the prediction fails because workers slow each other down, it halves its way to the
best number instead. Prefetch, dispatch, order and threads follow where the verdict or the replay names them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millhead.tune.measurements import PREFETCHES, SATURATED, WORTH, Limits, Measurements, Setting

if TYPE_CHECKING:
    from millhead.tune.trials import Trials

#: Repeats that a comparison may take, and up to which gap a winner is confirmed by a second run.
MOST_REPEATS, CONFIRM = 3, 0.25
#: By how much a gain may differ from the predicted one, as a share of it, and be no surprise.
BELIEVED = 0.5
#: A neighbour that is predicted to be slower than this is not tried.
HOPELESS = 0.9
#: A number of workers that falls short of its prediction by this share is crowded.
CROWDED = 0.2
#: What a worker may take, until one was measured.
SUPPOSED_WORKER = 100 << 20


class Failed(Exception):
    """A setting could not be measured: why, in one line."""


class NothingFits(Exception):
    """Not even the smallest setting keeps to the limits: why, in one line."""


class Search(Measurements):
    """What to measure next."""

    def __init__(self, measurer: Trials, limits: Limits) -> None:
        super().__init__(limits)
        self.measurer = measurer
        #: Refused settings that were only expected not to fit: later trials may show that they do.
        self.expected: set[Setting] = set()

    def run(self) -> None:
        """Search to the end. Whatever ends it sooner, `best` and `tried` are good."""
        sizes = self.limits.batch_sizes
        start = Setting(batch_size=sizes[0])
        if not self._try(start):
            raise NothingFits(self.refused[start])
        best = self._climb(start)
        best = self._other_ways(best)
        if len(sizes) > 1:
            best = self._other_sizes(best)
        self._confirm()
        self._outlast_noise()

    # ---- trying ----------------------------------------------------------------------------------

    def _try(self, setting: Setting) -> bool:
        """Measure it, if it was not and may fit; whether there are numbers of it."""
        if setting in self.tried:
            return True
        if not self._may_fit(setting):
            return False
        try:
            trial = self.measurer.measure(setting)
        except Failed as failed:
            if not self.tried:
                raise  # not the setting's fault
            self.refused[setting] = str(failed)
            return False
        self.sizes[setting] = trial
        if trial.memory > self.limits.memory:
            self.refused[setting] = f"takes {trial.memory / 1e6:.0f} MB"
            return False
        self.tried[setting] = [trial]
        for one in list(self.expected):
            self._may_fit(one)  # now it is known better
        return True

    def _may_fit(self, setting: Setting) -> bool:
        """Whether it is not known to fail, and not expected to take too much by what is known now."""
        if setting in self.refused and setting not in self.expected:
            return False
        needed = self.memory_of(setting)
        if needed > self.limits.memory:
            self.refused[setting] = f"would take {needed / 1e6:.0f} MB"
            self.expected.add(setting)
            return False
        self.refused.pop(setting, None)
        self.expected.discard(setting)
        return True

    def _again(self, setting: Setting) -> bool:
        """Repeat it; whether that worked."""
        try:
            self.tried[setting].append(self.measurer.measure(setting))
        except Failed:
            return False
        return True

    def _repeat(self, *settings: Setting) -> bool:
        """Run those again that were not repeated enough; False: all were, or one failed."""
        behind = [one for one in settings if len(self.tried[one]) < MOST_REPEATS]
        return bool(behind) and all(self._again(one) for one in behind)

    def _is_faster(self, costly: Setting, cheap: Setting) -> bool:
        """Whether the costlier of two measured settings is worth it, after as many interleaved
        repeats as that takes."""
        while True:
            gap, bar = self.gap(costly, cheap), self.bar(costly, cheap)
            if not self._is_surprise(costly, cheap):
                if gap > max(bar, WORTH):
                    return True
                if gap < WORTH - bar / 2:
                    return False
            if not self._repeat(cheap, costly):
                return False

    def _is_surprise(self, costly: Setting, cheap: Setting) -> bool:
        """Whether single runs differ from what the replay predicts: one of them may be chance."""
        repeated = min(len(self.tried[one]) for one in (costly, cheap)) > 1
        other_size = costly.batch_size != cheap.batch_size  # which the replay knows nothing of
        if repeated or other_size or not self.predictable:
            return False
        expected = self._predicted(costly, cheap) - 1
        allowed = max(self.bar(costly, cheap), BELIEVED * abs(expected))
        return abs(self.gap(costly, cheap) - expected) > allowed

    # ---- workers ---------------------------------------------------------------------------------

    def _climb(self, current: Setting) -> Setting:
        """From a measured setting to the number of workers that is best for it."""
        if self.saturated(current):
            return self._down(current)
        goal = self._jump(current)
        if goal == current:
            return self._down(self._up(goal))
        if self.rate(goal) <= self.rate(current) or self._is_crowded(goal, current):
            return self._around(goal, current)
        return self._down(self._up(goal))

    def _jump(self, current: Setting) -> Setting:
        """To what is predicted to be the best number of workers."""
        steps = [replace(current, workers=step) for step in self.limits.ladder()]
        rates = self.measurer.predict(current, steps)
        goal = next(
            step
            for step, rate in zip(steps, rates, strict=True)
            if rate * (1 + SATURATED) >= max(rates)
        )
        room = self.limits.memory - max(trial.memory for trial in self.tried[current])
        if goal.workers > 1 and current.workers == 0 and goal.workers * SUPPOSED_WORKER > room:
            self._try(replace(current, workers=1))  # what a worker takes, before there are many
        return self._try_most(
            [step for step in steps if current.workers < step.workers <= goal.workers], current
        )

    def _try_most(self, wanted: list[Setting], current: Setting) -> Setting:
        """The most of the wanted workers that can be had; every trial shows better what they take.
        What fails will often fail with somewhat fewer too: then it goes on with half."""
        top = wanted[-1] if wanted else current
        while True:
            goal = next((step for step in reversed(wanted) if self._may_fit(step)), current)
            if goal in self.tried or (self._try(goal) and goal == top):
                return goal
            if goal in self.refused and goal not in self.sizes:
                wanted = [step for step in wanted if step.workers <= goal.workers // 2]

    def _up(self, current: Setting) -> Setting:
        for step in self.limits.ladder():
            more = replace(current, workers=step)
            if step <= current.workers:
                continue
            if self.saturated(current) or not self._try(more) or not self._is_faster(more, current):
                break
            current = more
        return current

    def _down(self, current: Setting) -> Setting:
        for step in reversed(self.limits.ladder()):
            fewer = replace(current, workers=step)
            if step >= current.workers:
                continue
            if fewer not in self.tried and self._predicted(fewer, current) < HOPELESS:
                break
            if not self._try(fewer) or self._is_faster(current, fewer):
                break
            current = fewer
        return current

    def _predicted(self, other: Setting, measured: Setting) -> float:
        """How many times as fast as a measured setting another is by replay."""
        now, then = self.measurer.predict(measured, [measured, other])
        return then / now

    # ---- workers that are in each other's way ----------------------------------------------------

    def _alone(self, other: Setting, start: Setting) -> float:
        """What it would give if its workers were not in each other's way, as none was at the start."""
        return self.rate(start) * self._predicted(other, start)

    def _is_crowded(self, setting: Setting, start: Setting) -> bool:
        """Whether something is shared that has not enough for all, as a disk that seeks or a server
        that limits its clients."""
        return self.rate(setting) < (1 - CROWDED) * self._alone(setting, start)

    def _around(self, goal: Setting, start: Setting) -> Setting:
        """The best number of workers where the replay cannot predict it. Below it they are too few, above
        it they slow each other down: from both ends, then by halves. What matters here is more than
        noise, so nothing is repeated."""
        self.predictable = False
        best = self._doubled(goal) if self.rate(goal) > self.rate(start) else goal
        steps = [one for one in self.limits.ladder() if one > start.workers]
        ladder = [replace(goal, workers=step) for step in steps]
        near = next((one for one in ladder if self._may_do(one, best, start)), None)
        while near is not None and self._try(near):
            best = self._better(near, best)
            near = self._below(best, ladder, start) or self._above(best, ladder, start)
        return self._better(best, start)

    def _may_do(self, fewer: Setting, best: Setting, start: Setting) -> bool:
        """Whether so few could be as fast: if none was in the way of another, and if each got no less
        done than with fewer still."""
        bound = self._alone(fewer, start)
        for other in self.tried:
            alike = other == replace(fewer, workers=other.workers)
            if alike and start.workers < other.workers < fewer.workers:
                bound = min(bound, self.rate(other) * fewer.workers / other.workers)
        return bound >= HOPELESS * self.rate(best)

    def _better(self, one: Setting, other: Setting) -> Setting:
        cheap, costly = sorted((one, other), key=lambda setting: setting.cost)
        return costly if self.gap(costly, cheap) > WORTH else cheap

    def _doubled(self, current: Setting) -> Setting:
        """Twice as many, and again, while that gains: single steps would drown in noise."""
        ladder, most = self.limits.ladder(), self.limits.most_workers
        while current.workers < most and not self.saturated(current):
            twice = next((step for step in ladder if step >= 2 * current.workers), most)
            more = replace(current, workers=twice)
            if not self._try(more) or self._better(more, current) == current:
                break
            current = more
        return current

    def _below(self, best: Setting, steps: list[Setting], start: Setting) -> Setting | None:
        """Halfway down to the next that was measured, if so few may do, and that does not already."""
        gap: list[Setting] = []
        for step in reversed([one for one in steps if one.workers < best.workers]):
            if step in self.tried and self.gap(best, step) < WORTH:
                return None
            if step in self.tried or step in self.refused:
                break
            if self._may_do(step, best, start):
                gap.append(step)
        return gap[len(gap) // 2] if gap else None

    def _above(self, best: Setting, steps: list[Setting], start: Setting) -> Setting | None:
        """Halfway up to the next that was measured, if the best are not in each other's way yet."""
        if self.saturated(best) or self._is_crowded(best, start):
            return None
        gap: list[Setting] = []
        for step in [one for one in steps if one.workers > best.workers]:
            if step in self.tried or step in self.refused:
                break
            gap.append(step)
        return gap[len(gap) // 2] if gap else None

    # ---- the rest --------------------------------------------------------------------------------

    def _other_ways(self, best: Setting) -> Setting:
        """More in reserve, another dispatch or order, threads: where something speaks for them."""
        if best.workers == 0:
            return best
        for way in self._ways(best):
            other = replace(best, **way)
            if self.saturated(best):
                break
            if self._try(other) and self._is_faster(other, best):
                best = other
        if best.dispatch == "sample" or not best.in_order:
            best = self._down(self._up(best))  # they need other numbers of workers
        return best

    def _ways(self, best: Setting) -> Iterator[dict[str, Any]]:
        rates = self.measurer.predict(best, [replace(best, prefetch=one) for one in PREFETCHES])
        for depth, rate in zip(PREFETCHES, rates, strict=True):
            if rate > (1 + WORTH) * rates[0] and rate * (1 + SATURATED) >= max(rates):
                yield {"prefetch": depth}
                break
        causes = {trial.cause for trials in self.tried.values() for trial in trials}
        ours = self.limits.loader == "millhead"
        if "tail-bound" in causes:
            if ours:
                yield {"dispatch": "sample"}
            yield {"in_order": False}
        if self.limits.streams and ours:
            yield {"threads": max(2, self.limits.cpus // best.workers)}

    def _other_sizes(self, best: Setting) -> Setting:
        """The next larger batches, or the next smaller ones, while they give more samples."""
        sizes = sorted(self.limits.batch_sizes)
        at = sizes.index(best.batch_size)
        for direction in (sizes[at + 1 :], sizes[:at][::-1]):
            for size in direction:
                other = replace(best, batch_size=size)
                if not self._try(other):
                    break
                other = self._climb(other)  # larger batches take more workers to load in time
                if not self._is_faster(other, best):
                    break
                best = other
        return best

    def _confirm(self) -> None:
        """Repeat the best and its nearest rival once more where they are close: by chance?"""
        best = self.best()
        rivals = [one for one in self.tried if one != best]
        if not rivals:
            return
        rival = min(rivals, key=lambda one: abs(self.gap(one, best)))
        if self.wait_share(best) > SATURATED and abs(self.gap(rival, best)) < CONFIRM:
            for setting in (best, rival):
                if len(self.tried[setting]) < 2 and not self._again(setting):
                    return
            cheap, costly = sorted((best, rival), key=lambda one: one.cost)
            self._is_faster(costly, cheap)

    def _outlast_noise(self) -> None:
        """Repeat the fastest and the cheapest before noise decides for the latter."""
        while self.is_noisier() and self._repeat(self.fastest(), self.cheapest()):
            pass
