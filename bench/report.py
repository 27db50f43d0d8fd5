"""Rows, gates and the Markdown page of a benchmark run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ratios
from ratios import Round
from workloads import Cell

Row = dict[str, Any]
COLUMNS = (
    "workers", "arm", "samples/s", "ratio to torch", "95 %", "CPU µs/sample", "path",
    "pickled B/batch", "batches against torch's", "reading",
)  # fmt: skip
# kind, workers, least ratio to torch, goal beyond it
W11_GATES = (
    ("int", 2, 8.0, 20.0),
    ("array", 2, 8.0, 20.0),
    ("tensor", 2, 8.0, 20.0),
    ("int", 0, 2.0, None),
    ("array", 0, 5.0, None),
    ("tensor", 0, 1.5, None),
    ("big", 2, 3.0, None),
)
W1P_WORKERS = (0, 1, 2, 4)
LEAST_ROUNDS = 5
TOO_NOISY = "too noisy: the limit is within the interval or twice the A/A spread"
LEGEND = """samples/s: the highest rate of a round. Ratio: the median over rounds of the ratio to
torch in the same round, with its bootstrap 95 % interval. A/A: how far the interval of torch
against itself reaches from 1; a difference under twice that is none. CPU: the process and its
workers, user and system. Only ratios carry over to another hour or machine.""".splitlines()


def empty_row(cell: Cell, arm: str, note: str) -> Row:
    """The row of an arm without figures: it is named with the reason, never dropped."""
    keys = (
        "rate", "ci95", "aa_spread", "cpu_us_per_sample", "path", "pickled_bytes_per_batch",
        "rate_median", "gb_per_s", "parity", "rounds",
    )  # fmt: skip
    return {
        "workload": cell.workload,
        "arm": arm,
        "settings": cell.settings(),
        "ratio_to": {},
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
        "cpu_us_per_sample": 1e6 * sum(b.cpu_s for b in blocks) / sum(b.samples for b in blocks),
        "parity": parity,
        "path": stats["path"],
        "verdict": "the baseline",
    }
    if stats.get("batches"):
        filled["pickled_bytes_per_batch"] = stats["bytes_pickled"] / stats["batches"]
    present = kept[0].blocks
    if "torch" in present:
        _compare(filled, arm, kept)
    if arm == "millhead":
        others = [other for other in present if other not in ("millhead", "torch-again")]
        filled["ratio_to"] |= {o: ratios.compare(kept, arm, o).median for o in others}
    return filled


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
        filled["verdict"] = ratios.verdict(ratio, aa_spread)


def gates(rows: Sequence[Row]) -> list[Row]:
    """Every gate with its figure: met, not met or not measured."""
    found = []
    for kind, workers, least, goal in W11_GATES:
        row_ = _find(rows, "W11", kind, workers)
        text = f"W11 {kind}, {workers} workers, at least {least:g}x torch"
        found.append(_gate(text, row_, least, goal))
    for workers in W1P_WORKERS:
        row_ = _find(rows, "W1p", "pillow", workers)
        least = 1 - min((row_ or {}).get("aa_spread") or 0.0, ratios.HALF_WIDTH_LIMIT)
        text = f"W1p pillow, {workers} workers, at most the A/A spread (and 3 %) below torch"
        found.append(_gate(text, row_, least, None))
    return found


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
        result = "not met (batches differ from torch's)"
    elif row_["rounds"][0] < LEAST_ROUNDS:
        result = f"not measured (only {row_['rounds'][0]} quiet rounds)"
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
        lines += [f"## {title}", "", *_table(COLUMNS, [_row_cells(r) for r in rows]), ""]
    return "\n".join(lines)


def _preamble(head: dict[str, Any]) -> list[str]:
    """Where the figures come from and how to read them."""
    versions = ", ".join(f"{arm} {number}" for arm, number in head["versions"].items())
    machine = f"{head['cpu']}, {head['allowed_cpus']} CPUs allowed, Linux {head['kernel']}"
    how = f"{head['rounds']} interleaved rounds, order seed {head['seed']}"
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


def _row_cells(r: Row) -> tuple[str, ...]:
    head = (str(r["settings"]["workers"]), r["arm"])
    if r["rate"] is None:
        return (*head, *["-"] * (len(COLUMNS) - len(head) - 1), r["note"])
    rate = f"{r['rate']:,.0f}"
    if r["settings"]["kind"] == "big":
        rate += f" ({r['gb_per_s']:.2f} GB/s)"
    ratio = r["ratio_to"].get("torch")
    pickled = r["pickled_bytes_per_batch"]
    return (
        *head,
        rate,
        "-" if ratio is None or r["arm"] == "torch" else f"{ratio:.2f}",
        _interval(r["ci95"]),
        f"{r['cpu_us_per_sample']:,.{2 if r['cpu_us_per_sample'] < 100 else 0}f}",
        r["path"],
        "-" if pickled is None else f"{pickled:.0f}",
        r["parity"],
        r["verdict"] if len(set(r["rounds"])) == 1 else f"{r['verdict']}; {r['note']}",
    )


def _interval(ci95: Sequence[float] | None) -> str:
    return "-" if ci95 is None else f"{ci95[0]:.2f} to {ci95[1]:.2f}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table, padded so that it reads well as text too."""
    widths = [max(len(line[i]) for line in (columns, *rows)) for i in range(len(columns))]
    lines = [[cell.ljust(width) for cell, width in zip(r, widths)] for r in (columns, *rows)]
    rule = ["-" * width for width in widths]
    return [f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:])]
