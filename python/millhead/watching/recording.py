"""Recordings: the events of a run, kept by all loaders and timers of a process that write into it."""

from __future__ import annotations

import atexit
import contextlib
import csv
import io
import json
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millhead._rank_info import rank_info
from millhead.watching.event_files import LINE_BYTES, VERSION, EventLog, make_file, rank_file
from millhead.watching.usage_sampler import SelfSampler

if TYPE_CHECKING:
    from millhead.watching.loops import Epoch


class Recording:
    """A run's directory: ``run.json``, the events of this rank, ``summary.csv`` (docs/events.md).

    ``directory`` None: the events are kept in memory, the rest is not written. ``fresh``: where the
    directory holds the events of a process that has ended, they are put aside.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        configuration: dict[str, Any] | None = None,
        fresh: bool = False,
    ) -> None:
        self.directory = None if directory is None else Path(directory).absolute()
        self.configuration = configuration or {}
        self.rank = rank_info().rank
        self.log = EventLog(None if self.directory is None else self._events_file(fresh))
        #: Lines of the summary, one for each epoch that has ended; and the epochs that have not.
        self.rows: list[dict[str, Any]] = []
        self.live: weakref.WeakSet[Epoch] = weakref.WeakSet()
        self.usage = SelfSampler()
        #: What others have to write first; those that are gone have nothing.
        self.before_end: list[weakref.WeakMethod[Callable[[], None]]] = []
        self._pid = os.getpid()
        self._began = time.monotonic_ns()
        self._described = self._closed = False
        _live.add(self)

    def _events_file(self, fresh: bool) -> Path:
        assert self.directory is not None
        path = self.directory / rank_file("events.jsonl", self.rank)
        with contextlib.suppress(OSError):  # the first event says why it cannot be written
            self.directory.mkdir(parents=True, exist_ok=True)
            if fresh:
                _put_aside(path)
        return path

    @property
    def path(self) -> str:
        """What a reader is given."""
        return self.log.path if self.directory is None else str(self.directory)

    def goes_on(self) -> bool:
        """False after the end, and in a forked process."""
        return not self._closed and self._pid == os.getpid()

    def loader_number(self) -> int:
        """A number that no other loader of these events has, in whichever process."""
        count = _numbers.get(self.log.path, 0)
        _numbers[self.log.path] = count + 1
        return count if self.log.made else os.getpid() * 1000 + count

    def describe(self) -> None:
        """Write ``run.json``, once."""
        if self._described or self.directory is None or self.rank != 0:
            return
        self._described = True
        from millhead import _environment

        environment = _environment.environment()
        described = {
            "schema": "millhead-run",
            "version": VERSION,
            "argv": environment.pop("argv"),
            "configuration": self.configuration,
            "environment": environment,
        }
        text = json.dumps(described, indent=2, default=str) + "\n"
        with contextlib.suppress(OSError):  # the log says it
            make_file(str(self.directory / "run.json"), text)

    def close(self) -> None:
        """Write the summary and the end."""
        if not self.goes_on():
            return
        for reference in self.before_end:
            if (write := reference()) is not None:
                write()
        self._closed = True
        for epoch in list(self.live):
            epoch.end(complete=False)
        self._summarize()
        if self.log.made:
            now = time.monotonic_ns()
            self.log.event("end", now, ns=now - self._began)
        self.log.close()
        _live.discard(self)

    def _summarize(self) -> None:
        if self.rows and self.directory is not None:
            text = io.StringIO()
            writer = csv.DictWriter(text, list(self.rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows([*self.rows, _total_row(self.rows)])
            with contextlib.suppress(OSError):
                path = self.directory / rank_file("summary.csv", self.rank)
                path.write_text(text.getvalue())

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()


#: How many loaders each file has.
_numbers: dict[str, int] = {}
_by_directory: weakref.WeakValueDictionary[str, Recording] = weakref.WeakValueDictionary()
_live: weakref.WeakSet[Recording] = weakref.WeakSet()


@atexit.register
def _close_at_exit() -> None:
    for recording in list(_live):
        recording.close()


def recording_of(run: str | os.PathLike[str] | None, fresh: bool = True) -> Recording:
    """The one that writes into this directory; None: a new one, in memory."""
    if run is None:
        return Recording(None)
    path = str(Path(run).absolute())
    found = _by_directory.get(path)
    if found is None or not found.goes_on():
        found = _by_directory[path] = Recording(path, fresh=fresh)
    return found


def _put_aside(path: Path) -> None:
    """Give the events of an earlier run another name: they are not this one's."""
    from millhead import _environment

    try:
        with path.open("rb") as file:
            first = json.loads(file.readline(LINE_BYTES))
        pid, boot = int(first["pid"]), first["boot"]
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        pid, boot = 0, None
    if pid == os.getpid() or (boot == _environment.boot_id() and os.path.exists(f"/proc/{pid}")):
        return
    number = 1
    while path.with_name(f"{path.name}.{number}").exists():
        number += 1
    path.rename(path.with_name(f"{path.name}.{number}"))


# ---- the summary ---------------------------------------------------------------------------------


def summary_row(
    loader: int, epoch: int, totals: dict[str, int], ns: int, complete: bool
) -> dict[str, Any]:
    """An epoch's line; ``totals`` are those of :class:`_core.Steps`."""
    waits = max(totals["batches"] - 1, 0)
    seconds = {key: round(value / 1e9, 6) for key, value in totals.items() if key.endswith("_ns")}
    return {
        "loader": loader,
        "epoch": epoch,
        "batches": totals["batches"],
        "samples": totals["samples"],
        "seconds": round(ns / 1e9, 6),
        "setup_s": seconds["setup_ns"],
        "first_batch_s": seconds["first_ns"] if totals["batches"] else "",
        "wait_s": seconds["wait_ns"],
        "wait_mean_s": round(seconds["wait_ns"] / waits, 6) if waits else 0.0,
        "wait_p50_s": seconds["p50_ns"],
        "wait_p99_s": seconds["p99_ns"],
        "wait_max_s": seconds["max_ns"],
        "step_s": seconds["step_ns"],
        "wait_share": wait_share(totals["wait_ns"], totals["step_ns"]),
        "complete": complete,
    }


def _total_row(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The last line. Quantiles do not add up: those of the whole are in the events."""
    keys = ("batches", "samples", "seconds", "setup_s", "wait_s", "step_s")
    total = {key: sum(row[key] for row in rows) for key in keys}
    first = [row["first_batch_s"] for row in rows if row["first_batch_s"] != ""]
    waits = total["batches"] - len(first)
    return {
        "loader": "all",
        "epoch": "all",
        **{key: round(value, 6) for key, value in total.items()},
        "first_batch_s": first[0] if first else "",
        "wait_mean_s": round(total["wait_s"] / waits, 6) if waits > 0 else "",
        "wait_max_s": max((row["wait_max_s"] for row in rows), default=""),
        "wait_share": wait_share(total["wait_s"], total["step_s"]),
    }


def wait_share(wait: float, step: float) -> float:
    """Share of a loop's time that it waits."""
    return round(wait / (wait + step), 6) if wait + step > 0 else 0.0
