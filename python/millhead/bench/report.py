"""What a benchmark found: a row for each configuration, the one to use and why, and the table."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import millhead
from millhead import _core
from millhead._command_line import format_table
from millhead.bench.configs import Config
from millhead.bench.runs import Outcome

#: Two runs of the same differ by this much where there is no second run to compare with.
_USUAL_NOISE = 0.03
#: A consumer that waits less than this share of the time is kept busy.
_KEPT_UP = 0.05
#: What a batch must take less, as a share, to speak of it.
_WORTH_IT = 0.2
#: A batch that is there sooner than this was not fetched from anywhere.
_IN_MEMORY_S = 0.002


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
        return _mean([outcome.result["wait_s"]["mean"] for outcome in self.warm]) or 0.0

    def startup(self) -> float:
        """Seconds before the steady state, over all epochs."""
        return self.mean("total_s") - self.mean("waited_s") - self.mean("step_s")

    def per_sample(self) -> float:
        """Seconds of the whole run for each sample, by which batch sizes compare."""
        return self.mean("total_s") / max(1.0, self.mean("samples"))


def make_report(
    configs: list[Config], outcomes: list[Outcome], environment: dict[str, Any]
) -> dict[str, Any]:
    """What ``--json`` prints."""
    by_name = {config.name: Row(config) for config in configs}
    for outcome in outcomes:
        row = by_name[outcome.run.config.name]
        if not outcome.done:
            row.failed = outcome
        else:
            (row.cold if outcome.run.cold else row.warm).append(outcome)
    rows = list(by_name.values())
    done = [row for row in rows if row.done]
    named = [row for row in done if row.config.name == "baseline"]
    baseline = next(iter(named or done), None)
    recommended = None
    if baseline is not None:
        chosen, reason = recommend(rows, baseline)
        recommended = {
            "name": chosen.config.name,
            "reason": reason,
            "config": chosen.config.given,
        }
    return {
        "configs": [describe(row, baseline) for row in rows],
        "recommended": recommended,
        "baseline": baseline.config.name if baseline else None,
        "environment": environment,
    }


def describe(row: Row, baseline: Row | None) -> dict[str, Any]:
    """A row as ``--json`` has it."""
    shown: dict[str, Any] = {"name": row.config.name, "config": row.config.given}
    shown |= _numbers(row.warm)
    shown["speedup"] = shown["wait_speedup"] = None
    if row.done and baseline is not None:
        shown["speedup"] = baseline.per_sample() / row.per_sample()
        before, after = baseline.mean_wait(), row.mean_wait()
        shown["wait_speedup"] = before / after if before > 0 and after > 0 else None
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
    waits = ("mean", "p50", "p99", "max")
    shown["wait_s"] = {key: _mean([one["wait_s"][key] for one in results]) for key in waits}
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


def cause_of(run: Path) -> str | None:
    """The verdict's on a run; None where it cannot be judged."""
    try:
        cause: str = json.loads(_core.diagnose(str(run)))["cause"]
    except (millhead.Error, OSError, ValueError):
        return None
    return cause


# ---- the one to use -----------------------------------------------------------------------------


def recommend(rows: list[Row], baseline: Row) -> tuple[Row, str]:
    """The fastest in total time; where others are as fast within the error bars, the plainest. Other
    batch sizes are other trainings: they do not count."""
    done = [row for row in rows if row.done]
    alike = [row for row in done if row.config.batch_size == baseline.config.batch_size]
    if len(done) == 1:
        return baseline, "it is the only one that was measured"
    best = min(alike, key=Row.per_sample)
    as_fast = [row for row in alike if _gap(row, best) <= _noise(row, best)]
    if baseline in as_fast:
        return baseline, _why_stay(baseline, alike) + _other_sizes(done, baseline)
    chosen = min(as_fast, key=_plainness)
    return chosen, _why_change(chosen, best, baseline) + _other_sizes(done, chosen)


def _plainness(row: Row) -> tuple[Any, ...]:
    """In a tie the smallest wins: never one that changes the random numbers, the plain default
    first, then what takes least."""
    config = row.config
    memory = row.mean("pss_mb")
    return config.other_numbers, config.name != "default", config.workers, config.settings, memory


def _other_sizes(done: list[Row], chosen: Row) -> str:
    """Names a batch size that gives more samples in the same time, which the table shows."""
    others = [row for row in done if row.config.batch_size != chosen.config.batch_size]
    best = min(others, key=Row.per_sample, default=chosen)
    if _gap(chosen, best) <= _noise(chosen, best):
        return ""
    faster = chosen.per_sample() / best.per_sample()
    return (
        f"; {best.config.name} has {faster:.3g} times the samples a second, but with another batch "
        "size, which is another training"
    )


def _gap(row: Row, best: Row) -> float:
    return row.per_sample() - best.per_sample()


def _noise(one: Row, other: Row) -> float:
    """The error bar of their difference, in seconds a sample. One that was run once varies as much
    as the other."""
    bars = _bar(one), _bar(other)
    spread = math.hypot(bars[0] or bars[1], bars[1] or bars[0])
    return max(spread, _USUAL_NOISE * min(one.per_sample(), other.per_sample()))


def _bar(row: Row) -> float:
    results = [outcome.result for outcome in row.warm]
    return _deviation([one["total_s"] / one["samples"] for one in results]) or 0.0


def _why_change(chosen: Row, best: Row, baseline: Row) -> str:
    faster = baseline.per_sample() / chosen.per_sample()
    why = (
        f"{chosen.mean('total_s'):.3g} s in all instead of {baseline.mean('total_s'):.3g} s "
        f"({baseline.config.name}), {faster:.2g} times as fast"
    )
    if chosen is not best:
        why += f"; {best.config.name} shows no difference beyond noise, and this {_better(chosen, best)}"
    return why


def _better(chosen: Row, best: Row) -> str:
    """Why it wins the tie."""
    if best.config.other_numbers and not chosen.config.other_numbers:
        return "keeps the order and the random numbers"
    if chosen.config.name == "default":
        return "is the plain default"
    if chosen.config.workers < best.config.workers:
        return "takes fewer workers"
    return "needs fewer settings or less memory"


def _why_stay(baseline: Row, rows: list[Row]) -> str:
    later = _pays_later(baseline, rows)
    if later is not None:
        return later
    waited = baseline.mean_wait()
    share = baseline.mean("waited_s") / baseline.mean("total_s")
    with_workers = any(row.config.workers > baseline.config.workers for row in rows)
    if with_workers and waited < _IN_MEMORY_S:
        return (
            "workers do not help here: the data is in memory "
            f"(a batch is there in {waited * 1e3:.2g} ms)"
        )
    if share < _KEPT_UP:
        return (
            f"it keeps up: training waits {share:.0%} of the time, and others of its batch size show "
            "no difference beyond noise"
        )
    return (
        "no difference beyond noise: no other is faster, although training waits "
        f"{share:.0%} of the time; see its cause"
    )


def _pays_later(baseline: Row, rows: list[Row]) -> str | None:
    """The configuration that waits less and loses what it wins on start-up, if there is one."""
    step = baseline.mean("step_s") / max(1.0, baseline.mean("batches"))
    found: tuple[float, Row] | None = None
    for row in rows:
        won = baseline.mean_wait() - row.mean_wait()
        if won > _WORTH_IT * (step + baseline.mean_wait()) and row.startup() > baseline.startup():
            batches = (row.startup() - baseline.startup()) / won
            if found is None or batches < found[0]:
                found = batches, row
    if found is None:
        return None
    batches, row = found
    return (
        f"{row.config.name} waits less ({row.mean_wait() * 1e3:.3g} ms a batch instead of "
        f"{baseline.mean_wait() * 1e3:.3g}) but loses on start-up in runs this short "
        f"({row.startup() - baseline.startup():.2g} s more): it pays from {math.ceil(batches)} "
        "batches on"
    )


# ---- the table -----------------------------------------------------------------------------------

_HEADINGS = ["", "total s", "speed-up", "start s", "wait ms", "speed-up", "samples/s", "CPU s"]
_HEADINGS += ["PSS MB", "cause"]


def table(report: dict[str, Any], colour: bool) -> str:
    """All rows, with a * at the recommended one; failed ones below with what failed."""
    chosen = (report["recommended"] or {}).get("name")
    done = [row for row in report["configs"] if row["repeats"]]
    lines = [_HEADINGS] if done else []
    for row in done:
        star = "*" if row["name"] == chosen else " "
        lines.append([f"{star} {row['name']}", *_cells(row)])
        if row["cold"]:
            lines.append(["    cold cache", *_cells({**row, **row["cold"], "cause": ""})])
    text = format_table(lines, colour)
    for row in report["configs"]:
        if row["error"]:
            log = f" ({row['log']})" if row["log"] else ""
            text.append(f"  {row['name']}: {row['error']}{log}")
        elif not row["repeats"]:
            text.append(f"  {row['name']}: not run")
    return "\n".join(text)


def _cells(row: dict[str, Any]) -> list[str]:
    start = (row["setup_s"] or 0.0) + (row["first_batch_s"] or 0.0)
    wait = row["wait_s"]["mean"]
    rate = row["samples_per_s"]
    return [
        _with_bar(row["total_s"], row["total_std_s"]),
        _number(row["speedup"], 2),
        _number(start, 2),
        _number(None if wait is None else wait * 1e3, 2),
        _number(row["wait_speedup"], 1),
        _with_bar(rate["mean"], rate["std"]),
        _number(row["cpu_s"], 1),
        _number(row["pss_mb"], 0),
        row["cause"] or ("" if row["cause"] == "" else "-"),
    ]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _with_bar(mean: float | None, bar: float | None) -> str:
    """With as many digits as are worth reading: three, or as the error bar has."""
    if mean is None:
        return "-"
    digits = 0 if mean >= 1000 else 1 if mean >= 100 else 2
    return f"{mean:.{digits}f}" + ("" if bar is None else f" ±{bar:.{digits}f}")
