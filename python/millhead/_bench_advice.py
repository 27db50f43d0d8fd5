"""The one configuration to take, and why in a sentence."""

from __future__ import annotations

import math

from millhead._bench_summary import Row

#: Two runs of the same differ by this much where there is no second run to tell.
_USUAL_NOISE = 0.03
#: A consumer that waits less than this share of the time is kept busy.
_KEPT_UP = 0.05
#: What a batch must take less, as a share, to speak of it.
_WORTH_IT = 0.2
#: A batch that is there sooner than this was not fetched from anywhere.
_IN_MEMORY_S = 0.002


def recommend(rows: list[Row], baseline: Row) -> tuple[Row, str]:
    """The fastest in total time; where others are as fast within the error bars, the one with the
    fewest workers and the least memory. Other batch sizes are other trainings: they do not count."""
    done = [row for row in rows if row.done]
    alike = [row for row in done if row.config.batch_size == baseline.config.batch_size]
    if len(done) == 1:
        return baseline, "it is the only one that was measured"
    best = min(alike, key=Row.per_sample)
    as_fast = [row for row in alike if _gap(row, best) <= _noise(row, best)]
    if baseline in as_fast:
        return baseline, _why_stay(baseline, alike) + _other_sizes(done, baseline)
    chosen = min(as_fast, key=lambda row: (row.config.workers, row.mean("pss_mb")))
    return chosen, _why_change(chosen, best, baseline) + _other_sizes(done, chosen)


def _other_sizes(done: list[Row], chosen: Row) -> str:
    """A word on a batch size that gives more samples in the same time, which the table shows."""
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
    """The error bar of their difference, in seconds a sample."""
    spread = math.hypot(_deviation(one), _deviation(other))
    return max(spread, _USUAL_NOISE * min(one.per_sample(), other.per_sample()))


def _deviation(row: Row) -> float:
    totals = [outcome.result["total_s"] / outcome.result["samples"] for outcome in row.warm]
    middle = sum(totals) / len(totals)
    spare = len(totals) - 1
    return math.sqrt(sum((one - middle) ** 2 for one in totals) / spare) if spare else 0.0


def _why_change(chosen: Row, best: Row, baseline: Row) -> str:
    faster = baseline.per_sample() / chosen.per_sample()
    why = (
        f"{chosen.mean('total_s'):.3g} s in all instead of {baseline.mean('total_s'):.3g} s "
        f"({baseline.config.name}), {faster:.2g} times as fast"
    )
    if chosen is not best:
        spared = "fewer workers" if chosen.config.workers < best.config.workers else "less memory"
        why += f"; {best.config.name} is no faster beyond noise, and this takes {spared}"
    return why


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
        return f"it keeps up: training waits {share:.0%} of the time, and nothing of its batch size is faster"
    return (
        "no other is faster beyond noise, although training waits "
        f"{share:.0%} of the time: see its cause"
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
