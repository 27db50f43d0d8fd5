"""What `millhead tune` shows: its table, its JSON, its file and its line of progress."""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

from millhead import _command_line as cli
from millhead.tune.measurements import Measurements, Setting


def report_of(search: Measurements, stopped_because: str, seconds: float) -> dict[str, Any]:
    """What --json prints."""
    best = search.best() if search.tried else None
    return {
        "best": best.given("tuned", search.limits.loader) if best else None,
        "samples_per_s": search.rate(best) if best else None,
        "tried": [_described(search, setting) for setting in (*search.tried, *search.refused)],
        "stopped_because": stopped_because,
        "seconds": seconds,
        "noise": search.noise(),
        "noisy": bool(best) and search.is_noisier(),
        "chosen": best.name if best else None,
    }


def _described(search: Measurements, setting: Setting) -> dict[str, Any]:
    given = setting.given(setting.name, search.limits.loader)
    shown: dict[str, Any] = {"name": setting.name, "config": given}
    if setting in search.refused:
        return {**shown, "error": search.refused[setting]}
    trials = search.tried[setting]
    rates = [trial.rate for trial in trials]
    deviation = statistics.stdev(rates) if len(rates) > 1 else None
    return {
        **shown,
        "samples_per_s": {"mean": statistics.fmean(rates), "std": deviation},
        "repeats": len(trials),
        "wait_share": search.wait_share(setting),
        "pss_mb": max(trial.memory for trial in trials) / 1e6,
        "cause": trials[-1].cause,
        "error": None,
    }


def table(report: dict[str, Any], colour: bool) -> str:
    """What was tried, in that order, with a * at the best; what was refused below."""
    lines = [["", "samples/s", "runs", "waits", "PSS MB", "cause"]]
    for row in report["tried"]:
        if row["error"] is None:
            star = "*" if row["name"] == report["chosen"] else " "
            lines.append([f"{star} {row['name']}", *_cells(row)])
    text = cli.format_table(lines, colour)
    text += [
        f"  {row['name']}: {cli.printable(row['error'])}" for row in report["tried"] if row["error"]
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
    """In this many digits, and no power of ten where there are more before the point."""
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


def write(path: Path, text: str | None) -> None:
    """The whole file or none of it; None: only see that it can be written. Raises UsageError."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if path.is_dir():
            raise IsADirectoryError(0, "Is a directory")
        try:
            part.write_text(text or "", encoding="utf-8")
            if text is not None:
                part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise cli.UsageError(
            f"cannot write: {error.strerror} ({path}): give -o another name"
        ) from None


class Progress(cli.ProgressLine):
    """How far the search may be: the number of trials is not known, the time they may take is."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.began = time.monotonic()
        self.number = 0

    def begin(self, setting: Setting) -> None:
        """A trial begins."""
        self.number += 1
        spent = min(time.monotonic() - self.began, self.seconds)
        left = f"at most {self.seconds - spent:.0f} s left"
        self.show(spent / self.seconds, f"{left}; trial {self.number}: {setting.name}")
