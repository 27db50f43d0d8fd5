"""Where a step timer's lines go: files of JSON lines or CSV, or a run object of a tracking service."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from millhead import Advice
from millhead._rank_info import RankInfo
from millhead.watching.event_files import rank_file

#: Who writes: every rank, the first one of each machine, or rank 0 alone.
LOG_RANKS: dict[str, Callable[[RankInfo], bool]] = {
    "every": lambda info: True,
    "local_rank0": lambda info: info.local_rank == 0,
    "rank0": lambda info: info.rank == 0,
}


class RunObject(Protocol):
    """What wandb.init() returns, or anything with its ``log``."""

    def log(self, data: dict[str, Any], *, step: int) -> Any:
        """Take the numbers of a step."""


Sink = str | os.PathLike[str] | RunObject


def write(sinks: Iterable[Sink], line: dict[str, Any], info: RankInfo) -> None:
    """Give a line to every sink; a file of a rank other than 0 has the rank in its name."""
    for sink in sinks:
        if isinstance(sink, str | os.PathLike):
            path = Path(sink).with_name(rank_file(Path(sink).name, info.rank))
            (_add_to_csv if path.suffix == ".csv" else _add_to_json_lines)(path, line)
        else:
            sink.log(line, step=line["global_step"])


def check(sinks: Iterable[Sink]) -> None:
    """Refuse what could not be written to, before training and not at its first line."""
    for sink in sinks:
        if isinstance(sink, str | os.PathLike):
            if Path(sink).suffix not in (".jsonl", ".csv"):
                raise ValueError(f"a file for log lines ends in .jsonl or .csv, got {str(sink)!r}")
        elif not callable(getattr(sink, "log", None)):
            raise TypeError(f"a sink is a path or has a method log(), got {type(sink).__name__}")


def print_line(line: dict[str, Any], info: RankInfo) -> None:
    """The line for people, in the form that logging gives train_llm.py's."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now)) + f",{int(now % 1 * 1000):03}"
    short = {
        key: float(f"{value:.6g}") if isinstance(value, float) else value
        for key, value in line.items()
    }
    print(f"[rank={info.rank}] [{stamp}] INFO:{short}", file=sys.stderr)


def _append(path: Path, text: str) -> None:
    """One write: lines of several writers do not mix, and a killed one leaves whole lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _add_to_json_lines(path: Path, line: dict[str, Any]) -> None:
    # JSON has no NaN; a loss that has become one is null
    clean = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in line.items()
    }
    _append(path, json.dumps(clean, default=float) + "\n")


def _add_to_csv(path: Path, line: dict[str, Any]) -> None:
    """The first line ever written decides about the columns."""
    text = io.StringIO()
    columns = _columns(path)
    if not columns:
        columns = list(line)
        csv.writer(text, lineterminator="\n").writerow(columns)
    if unknown := [key for key in line if key not in columns]:
        warnings.warn(
            f"millhead: {path} has no column for {', '.join(unknown)} (StepTimer.log): give all "
            "numbers with the first line, or log to a .jsonl file",
            Advice,
            stacklevel=4,
        )
    row = [line.get(column, "") for column in columns]
    csv.writer(text, lineterminator="\n").writerow(row)
    _append(path, text.getvalue())


def _columns(path: Path) -> list[str]:
    try:
        with path.open(newline="") as file:
            return next(csv.reader(file), [])
    except FileNotFoundError:
        return []
