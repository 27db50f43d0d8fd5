"""The trials of `millhead tune`: runs of `millhead bench`, as short as gives a stable number."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import millhead
from millhead import _core
from millhead._command_line import UsageError
from millhead.bench.configs import Config
from millhead.bench.report import cause_of
from millhead.bench.runs import BenchDirectory, Outcome, Run
from millhead.tune.measurements import Limits, Setting, Trial
from millhead.tune.search import Failed

#: The least batches of a trial.
LEAST_BATCHES = 12
#: What a trial should take, without start-up, and its least batches for each worker: with fewer, how
#: the last ones fall would be measured.
TRIAL_S, ROUNDS = 2.0, 6
#: What a trial takes at most from its first batch on, once it has its least batches: it is so long where
#: workers are much slower than was predicted.
LONGEST_S = 5.0
#: The most batches of a trial, for loops of microseconds; and the most epochs, for small datasets.
MOST_BATCHES, MOST_EPOCHS = 3000, 50


@dataclass(eq=False)
class Trials:
    """Measures settings, each run in a process of its own, until the deadline (of time.monotonic)."""

    bench: BenchDirectory
    limits: Limits
    deadline: float
    #: Called with the setting of each run that is started.
    begin: Callable[[Setting], None]
    #: The newest run of each setting, and how many there are.
    newest: dict[Setting, Outcome] = field(default_factory=dict)
    counts: dict[Setting, int] = field(default_factory=dict)
    #: Samples a second by number of workers, as the first run predicts them.
    predicted: dict[int, float] = field(default_factory=dict)
    #: Samples of an epoch, once a trial has come to its end.
    epoch: int | None = None
    #: Seconds to load a sample without workers.
    load_s: float = 0.0

    def measure(self, setting: Setting) -> Trial:
        """One run; raises Failed, or OutOfTime at the deadline."""
        if not self.predicted:
            outcome = self._first_run(setting)
            if outcome.result["batches"] >= self._batches(setting) or self.epoch is None:
                return self._trial(setting, outcome)
            # A dataset that is over sooner: a trial is several epochs of it.
        return self._trial(setting, self._run(setting, self._batches(setting)))

    def predict(self, measured: Setting, others: list[Setting]) -> list[float]:
        """By replay of the newest run; where it cannot be replayed, all are alike."""
        outcome = self.newest[measured]
        wanted = [(other.workers, other.prefetch, other.in_order) for other in others]
        try:
            seconds = _core.replay(outcome.directory, wanted)
        except (millhead.Error, OSError):
            return [1.0] * len(others)
        return [outcome.result["samples"] / max(each, 1e-9) for each in seconds]

    # ---- how long ----------------------------------------------------------------------------------

    def _first_run(self, setting: Setting) -> Outcome:
        """Learn in the time of a trial what a batch takes, and would take with workers."""
        outcome = self._run(setting, MOST_BATCHES, limit_s=TRIAL_S)
        result = outcome.result
        self.load_s = (result["wait_s"]["mean"] or result["first_batch_s"]) / setting.batch_size
        ladder = self.limits.ladder()
        rates = self.predict(setting, [replace(setting, workers=step) for step in ladder])
        self.predicted = dict(zip(ladder, rates, strict=True))
        return outcome

    def _batches(self, setting: Setting) -> int:
        """Of a trial that is long enough, if it is as fast as was predicted."""
        expected = TRIAL_S * self.predicted[setting.workers] / setting.batch_size
        return min(MOST_BATCHES, max(_least(setting), math.ceil(expected)))

    def _run(self, setting: Setting, batches: int, limit_s: float = LONGEST_S) -> Outcome:
        epochs = 1
        if self.epoch is not None:
            whole = max(1, math.ceil(self.epoch / setting.batch_size))
            epochs = min(MOST_EPOCHS, math.ceil(batches / whole))
            batches = min(batches, whole)
        self.bench.settings = replace(
            self.bench.settings,
            epochs=epochs,
            limit_batches=batches,
            limit_s=limit_s,
            least_batches=_least(setting),
        )
        self.begin(setting)
        repeat = self.counts[setting] = self.counts.get(setting, 0) + 1
        given = setting.given(setting.name, self.limits.loader)
        run = Run(Config(setting.name, given, self.limits.loader), repeat, cold=False)
        outcome = self.bench.execute(run, self.deadline)
        if outcome.result["status"] == "refused" and not self.newest:
            raise UsageError(outcome.result["what"])  # the target, whatever the setting
        if not outcome.done:
            raise Failed(outcome.result["what"])
        if outcome.result["batches"] == 0:
            raise Failed("it gives no batch")
        ended = not outcome.result["cut"] and outcome.result["batches"] < batches * epochs
        if ended and self.epoch is None:
            self.epoch = outcome.result["samples"]
        self.newest[setting] = outcome
        return outcome

    def _trial(self, setting: Setting, outcome: Outcome) -> Trial:
        result = outcome.result
        # The first batch takes what loading it takes; what more it took is the start of workers.
        starting = max(0.0, result["first_batch_s"] - self.load_s * setting.batch_size)
        seconds = result["total_s"] - result["setup_s"] - starting
        waited = seconds - result["step_s"]
        if setting.workers:  # the wait for the first batch is no sign of too few workers
            waited = result["waited_s"]
        return Trial(
            rate=result["samples"] / max(seconds, 1e-9),
            wait_share=min(1.0, max(0.0, waited / max(seconds, 1e-9))),
            memory=int((result["pss_mb"] or 0) * 1e6),
            workers_memory=int((result["workers_pss_mb"] or 0) * 1e6),
            cause=cause_of(outcome.directory),
        )


def _least(setting: Setting) -> int:
    """Batches without which a trial shows nothing."""
    return max(LEAST_BATCHES, ROUNDS * setting.workers)
