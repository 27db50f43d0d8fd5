"""What `millhead tune` shows: its table, its JSON, its file and its line of progress."""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

from millhead._bench_configs import Wrong
from millhead._options import printable
from millhead._progress import Line
from millhead._tune_search import Search
from millhead._tune_space import Setting

_HEADINGS = ("", "samples/s", "runs", "waits", "PSS MB", "cause")


def report_of(search: Search, stopped_because: str, seconds: float) -> dict[str, Any]:
    """What --json prints."""
    loader = search.limits.loader
    best = search.best() if search.tried else None
    return {
        "best": best.given("tuned", loader) if best else None,
        "samples_per_s": search.rate(best) if best else None,
        "tried": [_described(search, setting) for setting in search.tried]
        + [
            {"name": setting.name, "config": setting.given(setting.name, loader), "error": why}
            for setting, why in search.refused.items()
        ],
        "stopped_because": stopped_because,
        "seconds": seconds,
        "noise": search.noise(),
        "noisy": bool(best) and search.is_noisier(),
        "chosen": best.name if best else None,
    }


def _described(search: Search, setting: Setting) -> dict[str, Any]:
    trials = search.tried[setting]
    rates = [trial.rate for trial in trials]
    return {
        "name": setting.name,
        "config": setting.given(setting.name, search.limits.loader),
        "samples_per_s": {
            "mean": statistics.fmean(rates),
            "std": statistics.stdev(rates) if len(rates) > 1 else None,
        },
        "repeats": len(trials),
        "wait_share": search.wait_share(setting),
        "pss_mb": max(trial.memory for trial in trials) / 1e6,
        "cause": trials[-1].cause,
        "error": None,
    }


def table(report: dict[str, Any], colour: bool) -> str:
    """What was tried, in that order, the best marked; what was refused below."""
    lines = [list(_HEADINGS)]
    for row in report["tried"]:
        if row["error"] is None:
            mark = "*" if row["name"] == report["chosen"] else " "
            lines.append([f"{mark} {row['name']}", *_cells(row)])
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    text = []
    for line in lines:
        cells = [
            cell.ljust(width) if column in (0, len(line) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        shown = "  ".join(cells).rstrip()
        text.append(f"\x1b[1m{shown}\x1b[0m" if colour and line[0].startswith("*") else shown)
    text += [
        f"  {row['name']}: {printable(row['error'])}" for row in report["tried"] if row["error"]
    ]
    return "\n".join(text)


def _cells(row: dict[str, Any]) -> list[str]:
    rate = row["samples_per_s"]
    bar = "" if rate["std"] is None else f" ±{_figure(rate['std'], 3)}"
    return [
        f"{_figure(rate['mean'], 4)}{bar}",
        str(row["repeats"]),
        f"{row['wait_share']:.0%}",
        f"{row['pss_mb']:.0f}",
        row["cause"] or "-",
    ]


def _figure(value: float, digits: int) -> str:
    """So many digits, and no power of ten where there are more before the point."""
    return f"{value:.0f}" if value >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def as_yaml(report: dict[str, Any]) -> str:
    """The best configuration as a file; values are JSON, which is YAML."""
    lines = [f"# millhead tune: {_figure(report['samples_per_s'], 4)} samples/s; stopped because"]
    lines += [f"# {report['stopped_because']}", "configs:"]
    for at, (key, value) in enumerate(report["best"].items()):
        lines.append(f"{'  ' if at else '- '}{key}: {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def as_file(report: dict[str, Any], path: Path) -> str:
    """The same for a file of that name."""
    if path.suffix == ".json":
        return json.dumps({"configs": [report["best"]]}, indent=1) + "\n"
    return as_yaml(report)


def check_writable(path: Path) -> None:
    """Refuse now what could not be written after minutes of measuring; raises Wrong."""
    part = _part(path)
    try:
        if path.is_dir():
            raise IsADirectoryError(0, "Is a directory")
        part.touch()
        part.unlink()
    except OSError as error:
        raise _unwritable(path, error) from None


def write(path: Path, text: str) -> None:
    """The whole file or none of it; raises Wrong."""
    part = _part(path)
    try:
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from None


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _unwritable(path: Path, error: OSError) -> Wrong:
    return Wrong(f"cannot write: {error.strerror} ({path}): give -o another name")


class Progress:
    """How far the search may be: how many trials there will be is not known, the time they may take is."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.line = Line()
        self.began = time.monotonic()
        self.number = 0

    def tell(self, setting: Setting) -> None:
        """A trial begins."""
        self.number += 1
        spent = min(time.monotonic() - self.began, self.seconds)
        left = f"at most {self.seconds - spent:.0f} s left"
        self.line.show(spent / self.seconds, f"{left}; trial {self.number}: {setting.name}")

    def end(self) -> None:
        """Leave no trace."""
        self.line.end()
