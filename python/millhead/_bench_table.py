"""A benchmark's table for people, and its line of progress."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, TextIO

from millhead._bench_matrix import Run
from millhead._progress import Line

_HEADINGS = (
    "",
    "total s",
    "speed-up",
    "start s",
    "wait ms",
    "speed-up",
    "samples/s",
    "CPU s",
    "PSS MB",
    "cause",
)
_COLUMNS = range(len(_HEADINGS))
#: Those that are no numbers.
_TEXTS = (_COLUMNS[0], _COLUMNS[-1])


def table(report: dict[str, Any], colour: bool) -> str:
    """All rows, the recommended one marked; failed ones below with what failed."""
    chosen = (report["recommended"] or {}).get("name")
    done = [row for row in report["configs"] if row["repeats"]]
    lines = [list(_HEADINGS)] if done else []
    for row in done:
        mark = "*" if row["name"] == chosen else " "
        lines.append([f"{mark} {row['name']}", *_cells(row)])
        if row["cold"]:
            lines.append(["    cold cache", *_cells({**row, **row["cold"], "cause": ""})])
    widths = [max((len(line[column]) for line in lines), default=0) for column in _COLUMNS]
    text = []
    for line in lines:
        cells = [
            cell.ljust(width) if column in _TEXTS else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        shown = "  ".join(cells).rstrip()
        text.append(f"\x1b[1m{shown}\x1b[0m" if colour and line[0].startswith("*") else shown)
    for row in report["configs"]:
        if row["error"]:
            text.append(
                f"  {row['name']}: {row['error']}" + (f" ({row['log']})" if row["log"] else "")
            )
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


class Progress:
    """How far the runs are."""

    def __init__(self, runs: int) -> None:
        self.runs = runs
        self.line = Line()
        self.began = time.monotonic()
        self.first: int | None = None

    def tell(self, number: int, run: Run) -> None:
        """A run begins; how long the rest takes is guessed from those before it."""
        self.first = number if self.first is None else self.first
        finished = number - self.first
        left = ""
        if finished:
            seconds = (time.monotonic() - self.began) / finished * (self.runs - number)
            left = f"about {_duration(seconds)} left; "
        self.line.show(number / self.runs, f"{left}{number + 1} of {self.runs}: {run.name}")

    def end(self) -> None:
        """Leave no trace."""
        self.line.end()


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def wants_colour(stream: TextIO | None = sys.stdout) -> bool:
    """Whether escape sequences are welcome there; None: it is closed."""
    return stream is not None and stream.isatty() and not os.environ.get("NO_COLOR")
