"""Runs into rows: one per configuration, with means over its repeats and its gain on the baseline."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import millhead
from millhead import _core
from millhead._bench_configs import Config
from millhead._bench_matrix import Outcome

_WAITS = ("mean", "p50", "p99", "max")


@dataclass
class Row:
    """A configuration and its runs."""

    config: Config
    warm: list[Outcome] = field(default_factory=list)
    cold: list[Outcome] = field(default_factory=list)
    #: The one that failed.
    failed: Outcome | None = None

    @property
    def done(self) -> bool:
        """Whether there are numbers."""
        return bool(self.warm)

    def mean(self, key: str) -> float:
        """Of a number that every run has."""
        return statistics.fmean(outcome.result[key] for outcome in self.warm)

    def mean_wait(self) -> float:
        """Seconds a batch, without the first of an epoch; 0 where there are no others."""
        waits = [outcome.result["wait_s"]["mean"] for outcome in self.warm]
        return _mean(waits) or 0.0

    def startup(self) -> float:
        """Seconds before the steady state, over all epochs."""
        return self.mean("total_s") - self.mean("waited_s") - self.mean("step_s")

    def per_sample(self) -> float:
        """Seconds of the whole run for each sample, by which batch sizes compare."""
        return self.mean("total_s") / max(1.0, self.mean("samples"))


def rows_of(configs: list[Config], outcomes: list[Outcome]) -> list[Row]:
    """One for each configuration, in order."""
    rows = {config.name: Row(config) for config in configs}
    for outcome in outcomes:
        row = rows[outcome.run.config.name]
        if not outcome.done:
            row.failed = outcome
        else:
            (row.cold if outcome.run.cold else row.warm).append(outcome)
    return list(rows.values())


def baseline_of(rows: list[Row]) -> Row | None:
    """What the others are compared with: the one of that name, else the first that was done."""
    done = [row for row in rows if row.done]
    named = [row for row in done if row.config.name == "baseline"]
    return next(iter(named or done), None)


def describe(row: Row, baseline: Row | None) -> dict[str, Any]:
    """A row as ``--json`` has it."""
    shown: dict[str, Any] = {"name": row.config.name, "config": row.config.given}
    shown |= _numbers(row.warm)
    faster = row.done and baseline is not None and baseline.done
    shown["speedup"] = baseline.per_sample() / row.per_sample() if faster and baseline else None
    shown["wait_speedup"] = _ratio(baseline.mean_wait(), row.mean_wait()) if baseline else None
    shown["cause"] = cause_of(row.warm[0].directory) if row.done else None
    last = row.warm[0] if row.done else row.failed
    shown["log"] = str(last.directory) if last else None
    shown["logs"] = [str(outcome.directory) for outcome in row.warm + row.cold]
    shown["cold"] = _numbers(row.cold) if row.cold else None
    shown["error"] = row.failed.result["what"] if row.failed else None
    return shown


def _numbers(outcomes: list[Outcome]) -> dict[str, Any]:
    results = [outcome.result for outcome in outcomes]
    keys = ("total_s", "setup_s", "first_batch_s", "epoch_gap_s", "cpu_s", "pss_mb")
    more = ("disk_mb_per_s", "net_mb_per_s", "samples", "batches")
    shown: dict[str, Any] = {
        key: _mean([one.get(key) for one in results]) for key in (*keys, *more)
    }
    shown["total_std_s"] = _deviation([one["total_s"] for one in results])
    shown["wait_s"] = {key: _mean([one["wait_s"][key] for one in results]) for key in _WAITS}
    rates = [one["samples"] / one["total_s"] for one in results]
    shown["samples_per_s"] = {"mean": _mean(rates), "std": _deviation(rates)}
    shown["repeats"] = len(results)
    return shown


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _deviation(values: list[float]) -> float | None:
    """The error bar: none without a second run."""
    return statistics.stdev(values) if len(values) > 1 else None


def _ratio(before: float, after: float) -> float | None:
    return before / after if before > 0 and after > 0 else None


def cause_of(run: Path) -> str | None:
    """The verdict's on a run; None where it cannot be judged."""
    try:
        cause: str = json.loads(_core.diagnose(str(run)))["cause"]
    except (millhead.Error, OSError, ValueError):
        return None
    return cause
