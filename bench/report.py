"""Rows, gates and the Markdown page of a benchmark run."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import ratios
from ratios import Block, Ratio, Round
from workloads import Cell

Row = dict[str, Any]
# What a rate counts: the headings of the rate and of processor time
UNITS = {
    "samples": ("samples/s", "CPU µs/sample"),
    "calls": ("calls/s", "CPU µs/call"),
    "workers": ("workers/GB", "CPU"),
    "batches": ("batches/s", "CPU"),
}
# How a figure of a block is written
FIGURES = {
    "call_s": "{:.3g} s a call",
    "first_batch_s": "first batch after {:.3g} s",
    "mb_per_worker": "{:.1f} MB a worker",
    "mb": "{:.0f} MB in all",
    "mb_per_epoch": "{:+.3f} MB an epoch",
    "fds": "{:.0f} fds",
    "threads": "{:.0f} threads",
    "before": "{:.0f} batches before the slow one",
    "after": "{:.0f} after it",
    "slow_s": "slow one after {:.2f} s",
    "state_us": "state_dict() in {:.1f} µs",
    "resume_s": "first batch after {:.3f} s",
}
CAPTIONS = {
    "calls": "A call is `next(iter(loader))` and the end of its workers; calls/s is one over the"
    " shortest time.",
    "first": "calls/s is one over the seconds from `iter(loader)` to the first batch.",
    "memory": "A worker is one more worker: the PSS of all processes of the arm with 4 workers,"
    " less that with 1, divided by 3. Descriptors and threads are of all processes, 4 workers.",
    "resume": "calls/s is one over the seconds from `load_state_dict()` to the first batch; torch's"
    " loader draws all that comes before.",
    "tail": "batches/s: until the slow batch came, that one included.",
}
# workload, kind, workers, least ratio to torch, goal beyond it
RATIO_GATES = (
    ("W11", "int", 2, 8.0, 20.0),
    ("W11", "array", 2, 8.0, 20.0),
    ("W11", "tensor", 2, 8.0, 20.0),
    ("W11", "int", 0, 2.0, None),
    ("W11", "array", 0, 5.0, None),
    ("W11", "tensor", 0, 1.5, None),
    ("W11", "big", 2, 3.0, None),
    ("W11", "snapshots", 2, 5.0, None),
    ("TD", "rows", 0, 10.0, None),
    ("W12", "fork4", 4, 3.0, 5.0),
    ("W12", "spawn4", 4, 10.0, None),
    ("W12", "spawn4-cold", 4, 2.5, None),
    ("W12", "list8spawn", 8, 5.0, None),
)
W1P_WORKERS = (0, 1, 2, 4)
# figure of the resume rows, most it may be
RESUME_GATES = (("resume_s", 0.2), ("state_us", 20.0))
RESUME_WORKERS = (0, 2)
MEMORY_SHARE = 0.7  # of torch's, for a spawned worker
FASTER = ("faster", "slower")
DIFFERENT = "not met (batches differ from torch's)"
TOO_NOISY = "too noisy: the limit is within the interval or twice the A/A spread"
LEGEND = """Rate: the highest of a round. Where seconds are measured it is calls per second, for memory
workers per GB, so that a ratio above 1 is always better than torch. Ratio: the median over rounds
of the ratio to torch in the same round, with its bootstrap 95 % interval. A/A: how far the interval
of torch against itself reaches from 1; a difference under twice that is none. CPU: the process and
its workers, user and system. Only ratios carry over to another hour or machine.""".splitlines()


def empty_row(cell: Cell, arm: str, note: str) -> Row:
    """The row of an arm without figures: it is named with the reason, never dropped."""
    keys = (
        "rate", "ci95", "aa_spread", "cpu_us_per_sample", "path", "pickled_bytes_per_batch",
        "rate_median", "gb_per_s", "parity", "rounds", "start",
    )  # fmt: skip
    return {
        "workload": cell.workload,
        "arm": arm,
        "settings": cell.settings(),
        "ratio_to": {},
        "figures": {},
        **dict.fromkeys(keys),
        "verdict": "not measured",
        "note": note,
    }


def row(cell: Cell, arm: str, kept: Sequence[Round], tried: int, parity: str, stats: Row) -> Row:
    """The row of an arm that ran."""
    blocks = [r.blocks[arm] for r in kept]
    rates = sorted(block.rate for block in blocks)
    filled = empty_row(cell, arm, f"{len(kept)} of {tried} rounds kept")
    filled |= {
        "rounds": [len(kept), tried],
        "rate": rates[-1],
        "rate_median": rates[len(rates) // 2],
        "gb_per_s": rates[-1] * cell.bytes_per_sample / 1e9 if cell.bytes_per_sample else None,
        "figures": _figures(blocks),
        "parity": parity,
        "path": stats["path"],
        "start": stats.get("start"),
        "verdict": "the baseline",
    }
    if cell.timed:
        samples = sum(block.samples for block in blocks)
        filled["cpu_us_per_sample"] = 1e6 * sum(block.cpu_s for block in blocks) / samples
    if stats.get("batches"):
        filled["pickled_bytes_per_batch"] = stats["bytes_pickled"] / stats["batches"]
    present = kept[0].blocks
    if "torch" in present:
        _compare(filled, arm, kept)
    if arm == "millhead":
        others = [other for other in present if other not in ("millhead", "torch-again")]
        filled["ratio_to"] |= {o: ratios.compare(kept, arm, o).median for o in others}
    return filled


def _figures(blocks: Sequence[Block]) -> dict[str, float]:
    """The median over rounds of every figure; of batches held back, the most."""
    found = {key: statistics.median(b.figures[key] for b in blocks) for key in blocks[0].figures}
    if "after" in found:
        found["after"] = max(block.figures["after"] for block in blocks)
    return found


def _compare(filled: Row, arm: str, kept: Sequence[Round]) -> None:
    """Fill in what relates a row to torch and to the A/A row."""
    aa_spread = None
    if "torch-again" in kept[0].blocks:
        aa_spread = ratios.spread(ratios.compare(kept, "torch-again", "torch"))
    filled["aa_spread"] = aa_spread
    if arm == "torch":
        return
    ratio = ratios.compare(kept, arm, "torch")
    filled["ratio_to"] = {"torch": ratio.median}
    filled["ci95"] = [ratio.low, ratio.high]
    if arm == "torch-again" and aa_spread is not None:
        filled["verdict"] = f"A/A: spread ±{100 * aa_spread:.1f} %"
    else:
        filled["verdict"] = _verdict(filled, arm, ratio)


def _verdict(filled: Row, arm: str, ratio: Ratio) -> str:
    """A row's ratio to torch in words."""
    settings, kept = filled["settings"], filled["rounds"][0]
    if arm == "index_select":
        return "the goal, not a loader"
    if settings["block"] == "tail":
        return f"most held back: {filled['figures']['after']:.0f}"
    if kept < settings["least_rounds"]:
        return f"unsettled (rounds: {kept})"
    words = ("less memory", "more memory") if settings["block"] == "memory" else FASTER
    return ratios.verdict(ratio, filled["aa_spread"], words)


def gates(rows: Sequence[Row]) -> list[Row]:
    """Every gate with its figure: met, not met or not measured."""
    found = []
    for workload, kind, workers, least, goal in RATIO_GATES:
        row_ = _find(rows, workload, kind, workers)
        text = f"{workload} {kind}, {workers} workers, at least {least:g}x torch"
        found.append(_gate(text, row_, least, goal))
    for workers in W1P_WORKERS:
        row_ = _find(rows, "W1p", "pillow", workers)
        text = f"W1p pillow, {workers} workers, at most the A/A spread (and 3 %) below torch"
        found.append(_gate(text, row_, _no_worse(row_), None))
    found += [*_memory_gates(rows), _tail_gate(_find(rows, "tail", "prefetch1", 2))]
    return [*found, *_resume_gates(rows)]


def _no_worse(row_: Row | None) -> float:
    """The least ratio that is torch's own but for noise."""
    return 1 - min((row_ or {}).get("aa_spread") or 0.0, ratios.HALF_WIDTH_LIMIT)


def _memory_gates(rows: Sequence[Row]) -> Iterator[Row]:
    """Memory of an extra worker; ratios are torch's MB over millhead's, so that more is better."""
    forked, spawned = _find(rows, "W13", "fork", 4), _find(rows, "W13", "spawn", 4)
    text = "W13 fork, memory of a worker at most the A/A spread (and 3 %) above torch's"
    yield _gate(text, forked, _no_worse(forked), None)
    text = f"W13 spawn, memory of a worker at most {MEMORY_SHARE:g} of torch's"
    yield _gate(text, spawned, 1 / MEMORY_SHARE, None)


def _resume_gates(rows: Sequence[Row]) -> Iterator[Row]:
    """Figures that are limits in themselves, not ratios."""
    for workers in RESUME_WORKERS:
        row_ = _find(rows, "resume", "at90", workers)
        for figure, most in RESUME_GATES:
            limit = FIGURES[figure].format(most)
            text = f"resume at90, {workers} workers, {limit} at most"
            filled: Row = {"gate": text, "least": None, "goal": None, "ratio": None, "ci95": None}
            if row_ is None:
                yield filled | {"result": "not measured"}
                continue
            value = row_["figures"][figure]
            result = f"{'met' if value <= most else 'not met'} ({FIGURES[figure].format(value)})"
            yield filled | {"ratio": row_["ratio_to"]["torch"], "result": result}


def _tail_gate(row_: Row | None) -> Row:
    """Whether a slow sample held any other batch back, in any round."""
    text = "tail prefetch1, 2 workers, all other batches before the slow one"
    filled: Row = {"gate": text, "least": None, "goal": None, "ratio": None, "ci95": None}
    if row_ is None:
        return filled | {"result": "not measured"}
    held = int(row_["figures"]["after"])
    result = f"not met ({held} came after it)" if held else "met"
    if not str(row_["parity"]).startswith("equal"):
        result = DIFFERENT
    return filled | {"ratio": row_["ratio_to"]["torch"], "ci95": row_["ci95"], "result": result}


def _find(rows: Sequence[Row], workload: str, kind: str, workers: int) -> Row | None:
    """The millhead row of a cell, if it has a ratio."""
    for row_ in rows:
        settings = row_["settings"]
        key = (row_["workload"], row_["arm"], settings["kind"], settings["workers"])
        if key == (workload, "millhead", kind, workers) and "torch" in row_["ratio_to"]:
            return row_
    return None


def _gate(text: str, row_: Row | None, least: float, goal: float | None) -> Row:
    """Judge one gate by the median ratio; say when its interval straddles the limit."""
    filled: Row = {"gate": text, "least": least, "goal": goal, "ratio": None, "ci95": None}
    if row_ is None:
        return filled | {"result": "not measured"}
    ratio, (low, high) = row_["ratio_to"]["torch"], row_["ci95"]
    result = "met" if ratio >= least else "not met"
    if not str(row_["parity"]).startswith("equal"):
        result = DIFFERENT
    elif row_["rounds"][0] < row_["settings"]["least_rounds"]:
        result = f"not measured (quiet rounds: {row_['rounds'][0]})"
    elif _too_noisy(row_, least):
        result = f"not measured ({TOO_NOISY})"
    elif low < least <= high:
        result += " (the interval straddles the limit)"
    elif goal and ratio >= goal:
        result += f", goal of {goal:g}x too"
    return filled | {"ratio": ratio, "ci95": [low, high], "result": result}


def _too_noisy(row_: Row, least: float) -> bool:
    """Whether noise of more than 3 % could have carried the ratio across the limit."""
    ratio, (low, high), reach = row_["ratio_to"]["torch"], row_["ci95"], row_["aa_spread"] or 0.0
    wide = (high - low) / 2 > ratios.HALF_WIDTH_LIMIT * ratio and low < least <= high
    margin = 1 + 2 * reach
    return wide or (reach > ratios.HALF_WIDTH_LIMIT and ratio / margin < least <= ratio * margin)


def markdown(result: dict[str, Any]) -> str:
    """The whole page."""
    lines = [
        "# Benchmark results",
        "",
        *_preamble(result["header"]),
        "",
        "## Gates",
        "",
        *_table(("gate", "ratio", "95 %", "result"), [_gate_cells(g) for g in result["gates"]]),
        "",
    ]
    for title, rows in _groups(result["rows"]).items():
        lines += [f"## {title}", "", *_caption(rows[0]["settings"], result["header"]["rounds"])]
        lines += [*_table(_columns(rows), [_row_cells(r, _has_figures(rows)) for r in rows]), ""]
    return "\n".join(lines)


def _caption(settings: dict[str, Any], usual_rounds: int) -> list[str]:
    """What the rate of a table counts and how many rounds it had; nothing for the usual."""
    found = [CAPTIONS[settings["block"]]] if settings["block"] in CAPTIONS else []
    if found or settings["rounds"] != usual_rounds:
        how = ", every block in a new process of the arm" if settings["fresh"] else ""
        found.append(f"Rounds: {settings['rounds']}{how}.")
    return [" ".join(found), ""] if found else []


def _has_figures(rows: Sequence[Row]) -> bool:
    return any(r["figures"] for r in rows)


def _columns(rows: Sequence[Row]) -> tuple[str, ...]:
    rate, cpu = UNITS[rows[0]["settings"]["counts"]]
    return (
        "workers", "arm", rate, *(["figures"] if _has_figures(rows) else []), "ratio to torch",
        "95 %", cpu, "path", "pickled B/batch", "batches against torch's", "reading",
    )  # fmt: skip


def _preamble(head: dict[str, Any]) -> list[str]:
    """Where the figures come from and how to read them."""
    versions = ", ".join(f"{arm} {number}" for arm, number in head["versions"].items())
    machine = f"{head['cpu']}, {head['allowed_cpus']} CPUs allowed, Linux {head['kernel']}"
    rounds = f"Interleaved rounds: {head['rounds']} where the table does not say otherwise"
    how = f"{rounds}; order seed {head['seed']}"
    lines = [
        f"{machine}, load {head['load_at_start']:.1f} at start.",
        f"Python {head['python']}; {versions}.",
        f"{how}, {head['seconds']:.0f} s in all.",
    ]
    if head["quick"]:
        lines.append("Quick run: a look, not figures to quote.")
    if "images_sha256" in head:
        lines.append(f"Images: sha256 {head['images_sha256']}.")
    return [*lines, "", *LEGEND]


def _groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by workload and kind, in order of appearance."""
    found: dict[str, list[Row]] = {}
    for row_ in rows:
        suffix = "" if row_["settings"]["gated"] else " (shown, not gated)"
        found.setdefault(f"{row_['workload']} {row_['settings']['kind']}{suffix}", []).append(row_)
    return found


def _gate_cells(gate: Row) -> tuple[str, ...]:
    ratio = "-" if gate["ratio"] is None else f"{gate['ratio']:.2f}"
    return gate["gate"], ratio, _interval(gate["ci95"]), gate["result"]


def _row_cells(r: Row, figures: bool) -> tuple[str, ...]:
    head = (str(r["settings"]["workers"]), r["arm"])
    if r["rate"] is None:
        return (*head, *["-"] * (8 if figures else 7), r["note"])
    ratio, pickled = r["ratio_to"].get("torch"), r["pickled_bytes_per_batch"]
    shown = [", ".join(FIGURES[key].format(value) for key, value in r["figures"].items())]
    return (
        *head,
        _rate(r),
        *(shown if figures else []),
        "-" if ratio is None or r["arm"] == "torch" else f"{ratio:.2f}",
        _interval(r["ci95"]),
        _cpu(r["cpu_us_per_sample"]),
        r["path"] if r["start"] in (None, "none") else f"{r['path']}, {r['start']}",
        "-" if pickled is None else f"{pickled:.0f}",
        r["parity"],
        r["verdict"] if len(set(r["rounds"])) == 1 else f"{r['verdict']}; {r['note']}",
    )


def _rate(r: Row) -> str:
    rate = f"{r['rate']:,.0f}" if r["rate"] >= 100 else f"{r['rate']:.3g}"
    return f"{rate} ({r['gb_per_s']:.2f} GB/s)" if r["settings"]["kind"] == "big" else rate


def _cpu(us: float | None) -> str:
    return "-" if us is None else f"{us:,.{2 if us < 100 else 0}f}"


def _interval(ci95: Sequence[float] | None) -> str:
    return "-" if ci95 is None else f"{ci95[0]:.2f} to {ci95[1]:.2f}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table, padded so that it reads well as text too."""
    widths = [max(len(line[i]) for line in (columns, *rows)) for i in range(len(columns))]
    lines = [[cell.ljust(width) for cell, width in zip(r, widths)] for r in (columns, *rows)]
    rule = ["-" * width for width in widths]
    return [f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:])]
