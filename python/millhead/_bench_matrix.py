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

from millhead._bench_child import Job
from millhead._bench_configs import Config, Wrong
from millhead._bench_usage import usage_of
from millhead._sampler import Sampler

#: Runs may be short; the sampler itself sees to it that this costs little.
_SAMPLE_EVERY_S = 0.25


class OutOfTime(Exception):
    """The deadline came before the end of a run."""


@dataclass(frozen=True)
class Settings:
    """What all runs of a matrix share."""

    target: str
    epochs: int
    limit_batches: int | None
    train_step: float | str
    repeats: int
    cold: bool
    files: tuple[str, ...]
    #: As in a Job.
    limit_s: float | None = None
    least_batches: int | None = None


@dataclass(frozen=True)
class Run:
    """One child process: a configuration, for the how-manieth time, with a cold cache or not."""

    config: Config
    repeat: int
    cold: bool

    @property
    def name(self) -> str:
        """Its directory's."""
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


def runs_of(configs: list[Config], settings: Settings) -> list[Run]:
    """All runs in order: every configuration once before any has its turn again, so that a slow
    minute of the machine falls on all; a warm run right after its cold one."""
    return [
        Run(config, repeat, cold)
        for repeat in range(1, settings.repeats + 1)
        for config in configs
        for cold in ((True, False) if settings.cold else (False,))
    ]


class Matrix:
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
            raise Wrong(
                f"cannot write: {error.strerror} ({directory}): give another directory with -o"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise Wrong(
                f"another benchmark writes there ({directory}): wait for it, or give another "
                "directory with -o"
            ) from None
        for part in directory.glob(".*.part"):  # of one that was killed
            shutil.rmtree(part, ignore_errors=True)

    def close(self) -> None:
        """Let others have the directory."""
        os.close(self._lock)

    def job(self, run: Run) -> Job:
        """What its child is told."""
        settings = self.settings
        return Job(
            target=settings.target,
            config=run.config.given,
            loader=run.config.loader,
            epochs=settings.epochs,
            limit_batches=settings.limit_batches,
            train_step=settings.train_step,
            run=str((self.directory / f".{run.name}.part").absolute()),
            cold=run.cold,
            files=settings.files,
            parent=os.getpid(),
            limit_s=settings.limit_s,
            least_batches=settings.least_batches,
        )

    def finished(self, run: Run) -> Outcome | None:
        """The run as it is on disk; raises Wrong when it was another one of that name."""
        directory = self.directory / run.name
        try:
            record = json.loads((directory / "run.json").read_text())
        except FileNotFoundError:
            if directory.exists():
                raise Wrong(f"{directory} is there and no run (-o): move it away") from None
            return None
        except (OSError, ValueError) as error:
            raise Wrong(f"unreadable run: {error} ({directory}): move it away") from None
        bench = record.get("bench", {})
        wanted = json.loads(json.dumps(self.job(run).measured()))
        for key, value in wanted.items():
            if bench.get("job", {}).get(key) != value:
                raise Wrong(
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
        record = _read_record(part)
        record.setdefault("configuration", {})["given"] = run.config.given
        record["bench"] = {"job": job.measured(), "result": result}
        (part / "run.json").write_text(json.dumps(record, indent=1) + "\n")
        failed = self.directory / f"{run.name}.failed"
        shutil.rmtree(failed, ignore_errors=True)
        final = self.directory / run.name if result["status"] == "done" else failed
        part.rename(final)
        return Outcome(run, final, result)


def _read_record(part: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads((part / "run.json").read_text())
    except (OSError, ValueError):  # it failed before it had one
        return {}
    return record


def _run_child(part: Path, deadline: float) -> dict[str, Any]:
    command = [sys.executable, "-P", "-m", "millhead._bench_child", str(part / "job.json")]
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
        _end_session(child.pid)
        child.wait()
    try:
        result: dict[str, Any] = json.loads((part / "result.json").read_text())
    except (OSError, ValueError):
        return {"status": "failed", "what": _how_it_died(child.returncode, part)}
    if result["status"] == "done":
        result |= usage_of(part / "events.jsonl")
    return result


def _end_session(leader: int) -> None:
    """End what a child left running: it leads its group, and its workers are in it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _how_it_died(code: int, part: Path) -> str:
    if code < 0:
        hint = "; out of memory?" if code == -signal.SIGKILL else ""
        return f"its process was ended by {signal.Signals(-code).name}{hint}"
    lines = (part / "output.txt").read_text(errors="replace").strip().splitlines()
    return f"its process ended with code {code}{f': {lines[-1]}' if lines else ''}"


def go_through(
    matrix: Matrix, runs: list[Run], seconds: float, tell: Callable[[int, Run], None]
) -> Iterator[Outcome]:
    """Every run's outcome: from disk, or run now while there is time. A configuration that failed
    is not repeated. ``tell`` hears the number of each run that is started."""
    deadline = time.monotonic() + seconds
    failed: set[str] = set()
    for number, run in enumerate(runs):
        if run.config.name in failed:
            continue
        outcome = matrix.finished(run)
        if outcome is None:
            tell(number, run)
            try:
                outcome = matrix.execute(run, deadline)
            except OutOfTime:
                matrix.missing.append(run)
                continue
        if not outcome.done:
            failed.add(run.config.name)
        yield outcome
