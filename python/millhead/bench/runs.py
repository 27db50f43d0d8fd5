"""The runs of a benchmark, one child process each, and what of them is on disk.

``DIR/NAME`` holds the first run of a configuration, ``DIR/NAME.r2`` its second, and ``.cold`` follows
where the cache was emptied first. A run is written as ``DIR/.NAME.part`` and renamed when it is done:
what has its name is whole, and is never written again. A failed one is kept as ``DIR/NAME.failed``
until it is tried again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millhead._command_line import UsageError
from millhead.bench.child import Job, Settings
from millhead.bench.configs import Config
from millhead.watching.usage_sampler import Sampler

#: Runs may be short; the sampler itself sees to it that this costs little.
_SAMPLE_EVERY_S = 0.25


class OutOfTime(Exception):
    """The deadline came before the end of a run."""


@dataclass(frozen=True)
class Run:
    """One child process: a configuration, which repeat of it, with a cold cache or not."""

    config: Config
    repeat: int
    cold: bool

    @property
    def name(self) -> str:
        """Of its directory."""
        repeat = f".r{self.repeat}" if self.repeat > 1 else ""
        return f"{self.config.name}{repeat}{'.cold' if self.cold else ''}"


@dataclass
class Outcome:
    """What became of a run: its directory and its numbers, or what went wrong."""

    run: Run
    directory: Path
    result: dict[str, Any]

    @property
    def done(self) -> bool:
        """Whether there are numbers."""
        return bool(self.result["status"] == "done")


def runs_of(configs: list[Config], repeats: int, cold: bool) -> list[Run]:
    """All runs in order: every configuration once before any has its turn again, so that a slow
    minute of the machine falls on all; a warm run right after its cold one."""
    return [
        Run(config, repeat, emptied)
        for repeat in range(1, repeats + 1)
        for config in configs
        for emptied in ((True, False) if cold else (False,))
    ]


class BenchDirectory:
    """A benchmark's output directory, locked while it is open."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        self.directory = directory
        self.settings = settings
        #: Runs for which there was no time.
        self.missing: list[Run] = []
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            probe = directory / ".writable.part"
            probe.mkdir(exist_ok=True)
            probe.rmdir()
        except OSError as error:
            raise UsageError(
                f"cannot write: {error.strerror} ({directory}): give another directory with -o"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise UsageError(
                f"another benchmark writes there ({directory}): wait for it, or give another "
                "directory with -o"
            ) from None
        for part in directory.glob(".*.part"):  # of one that was killed
            shutil.rmtree(part, ignore_errors=True)

    def close(self) -> None:
        """Let others have the directory."""
        os.close(self._lock)

    def job(self, run: Run) -> Job:
        """What its process reads."""
        return Job(
            **{**vars(self.settings), "cold": run.cold},
            config=run.config.given,
            loader=run.config.loader,
            run=str((self.directory / f".{run.name}.part").absolute()),
            parent=os.getpid(),
        )

    def finished(self, run: Run) -> Outcome | None:
        """The run as it is on disk; raises UsageError when it was another one of that name."""
        directory = self.directory / run.name
        try:
            record = json.loads((directory / "run.json").read_text())
        except FileNotFoundError:
            if directory.exists():
                raise UsageError(
                    f"{directory} exists but is not a millhead run (-o): choose another -o"
                ) from None
            return None
        except (OSError, ValueError) as error:
            raise UsageError(
                f"unreadable run: {error} ({directory}): remove it, or choose another -o"
            ) from None
        bench = record.get("bench", {})
        wanted = json.loads(json.dumps(self.job(run).measured()))
        for key, value in wanted.items():
            if bench.get("job", {}).get(key) != value:
                raise UsageError(
                    f"{run.name} was run with another {key} ({self.directory}): give another "
                    "directory with -o"
                )
        return Outcome(run, directory, bench["result"])

    def execute(self, run: Run, deadline: float) -> Outcome:
        """Run it now; raises OutOfTime when the deadline (of time.monotonic) comes first."""
        if time.monotonic() >= deadline:
            raise OutOfTime
        job = self.job(run)
        part = Path(job.run)
        part.mkdir()
        try:
            (part / "job.json").write_text(json.dumps(job.__dict__))
            result = _run_child(part, deadline)
            (part / "job.json").unlink()
            return self._keep(run, job, part, result)
        finally:
            shutil.rmtree(part, ignore_errors=True)  # when it was not kept

    def _keep(self, run: Run, job: Job, part: Path, result: dict[str, Any]) -> Outcome:
        (part / "result.json").unlink(missing_ok=True)
        output = part / "output.txt"
        if output.stat().st_size == 0:
            output.unlink()
        try:
            record = json.loads((part / "run.json").read_text())
        except (OSError, ValueError):  # it failed before it had one
            record = {}
        record.setdefault("configuration", {})["given"] = run.config.given
        record["bench"] = {"job": job.measured(), "result": result}
        (part / "run.json").write_text(json.dumps(record, indent=1) + "\n")
        failed = self.directory / f"{run.name}.failed"
        shutil.rmtree(failed, ignore_errors=True)
        final = self.directory / run.name if result["status"] == "done" else failed
        part.rename(final)
        return Outcome(run, final, result)


def _run_child(part: Path, deadline: float) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "millhead.bench.child", str(part / "job.json")]
    with open(part / "output.txt", "wb") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "MILLHEAD_SAMPLED": "1"},  # by us
            start_new_session=True,  # its workers end with it, and Ctrl-C is for us
        )
    try:
        with Sampler(part, _SAMPLE_EVERY_S):
            child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise OutOfTime from None
    finally:
        with contextlib.suppress(ProcessLookupError):  # it leads its group, with its workers in it
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    try:
        result: dict[str, Any] = json.loads((part / "result.json").read_text())
    except (OSError, ValueError):
        return {"status": "failed", "what": _how_it_died(child.returncode, part)}
    if result["status"] == "done":
        result |= usage_of(part / "events.jsonl")
    return result


def _how_it_died(code: int, part: Path) -> str:
    if code < 0:
        hint = "; out of memory?" if code == -signal.SIGKILL else ""
        return f"its process was ended by {signal.Signals(-code).name}{hint}"
    lines = (part / "output.txt").read_text(errors="replace").strip().splitlines()
    return f"its process ended with code {code}{f': {lines[-1]}' if lines else ''}"


def run_all(
    bench: BenchDirectory, runs: list[Run], seconds: float, begin: Callable[[int, Run], None]
) -> Iterator[Outcome]:
    """Every run's outcome: from disk, or run now while there is time. A configuration that failed
    is not repeated. ``begin`` is called with the number of each run that is started."""
    deadline = time.monotonic() + seconds
    failed: set[str] = set()
    for number, run in enumerate(runs):
        if run.config.name in failed:
            continue
        outcome = bench.finished(run)
        if outcome is None:
            begin(number, run)
            try:
                outcome = bench.execute(run, deadline)
            except OutOfTime:
                bench.missing.append(run)
                continue
        if not outcome.done:
            failed.add(run.config.name)
        yield outcome


# ---- what its processes took ---------------------------------------------------------------------


def usage_of(events: Path) -> dict[str, float | None]:
    """From the samples among a run's events: the most memory of its processes together (PSS), how
    much of that was the workers', and the machine's rates; None where it was too short to sample."""
    most, now, main, workers = 0, 0, 0, 0
    system: list[dict[str, Any]] = []
    for line in events.read_text().splitlines():
        if '"usage"' not in line and '"system"' not in line:
            continue
        event = json.loads(line)
        if event["event"] == "system":
            system.append(event)
        elif event["event"] == "usage":
            # The main process comes first in every look at all of them.
            size = event.get("pss", 0)
            now, main = (size, size) if event["role"] == "main" else (now + size, main)
            if now > most:
                most, workers = now, now - main
    return {
        "pss_mb": most / 1e6 if most else None,
        "workers_pss_mb": workers / 1e6 if most else None,
        "disk_mb_per_s": _rate(system, "disk_read"),
        "net_mb_per_s": _rate(system, "net_read"),
    }


def _rate(system: list[dict[str, Any]], key: str) -> float | None:
    known = [(event["t"], event[key]) for event in system if key in event]
    if len(known) < 2 or known[-1][0] == known[0][0]:
        return None
    rate: float = (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])
    return rate * 1e3  # bytes in a nanosecond are GB/s
