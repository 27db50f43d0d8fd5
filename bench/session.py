"""The runner's side of an arm: start its process, give it commands, end its whole session."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import machine
from ratios import Block
from workloads import Cell

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
DATA = ROOT / "out" / "data"
START_LIMIT_S, ANSWER_LIMIT_S = 120.0, 300.0
MODULES = {
    "torchdata": "torchdata.stateful_dataloader",
    "millhead": "millhead.torch",
    "spdl": "spdl.pipeline",
    "grain": "grain",
}
PACKAGES = {"torchdata": "torchdata", "spdl": "spdl", "grain": "grain", "millhead": "millhead"}


class ArmFailed(Exception):
    """An arm ended or did not answer."""


def interpreter(arm: str) -> Path:
    """The python of an arm's environment; the project's own for torch and millhead."""
    if arm in ("torchdata", "spdl", "grain"):
        return ROOT / "out" / "peers" / arm / "bin" / "python"
    return Path(sys.executable)


def missing(arm: str) -> str | None:
    """Why an arm cannot run at all, or None."""
    if not interpreter(arm).exists():
        return "not installed: run bench/peers.sh"
    module = MODULES.get(arm, "torch")
    found = _run(arm, f"import {module}")
    if found.returncode == 0:
        return None
    reason = (found.stderr.strip().splitlines() or ["no message"])[-1]
    fix = "build millhead first" if arm == "millhead" else "run bench/peers.sh"
    return f"not installed: {fix} ({reason})"


def version(arm: str) -> str:
    """The version of an arm's package."""
    package = PACKAGES.get(arm, "torch")
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return _run(arm, code).stdout.strip() or "unknown"


def _run(arm: str, code: str) -> subprocess.CompletedProcess[str]:
    command = [str(interpreter(arm)), "-c", code]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


class Session:
    """One running arm. Its process leads a session of its own, so that all of it can be ended."""

    def __init__(self, arm: str, cell: Cell) -> None:
        self.arm = arm
        self._process = subprocess.Popen(
            [interpreter(arm), HERE / "arms.py", arm, DATA, cell.dumps()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | {"PYTHONWARNINGS": "ignore::UserWarning"},
        )
        assert self._process.stdin and self._process.stdout
        self._commands, self._answers = self._process.stdin, self._process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._answers, selectors.EVENT_READ)

    def wait_ready(self) -> None:
        """Wait until the loader is built."""
        self._answer(START_LIMIT_S)

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send one command and wait for its answer."""
        try:
            self._commands.write(json.dumps(command).encode() + b"\n")
            self._commands.flush()
        except OSError as error:
            raise ArmFailed(f"{self.arm} has ended") from error
        return self._answer(ANSWER_LIMIT_S)

    def block(self, seconds: float) -> Block:
        """Run one block and account for it."""
        before = machine.usage(self._process.pid)
        answer = self.ask(do="block", seconds=seconds)
        after = machine.usage(self._process.pid)
        return Block(
            answer["amount"],
            answer["samples"],
            after.cpu_s - before.cpu_s,
            max(after.switches - before.switches, 0),
            answer.get("figures", {}),
            tuple(answer.get("digests", ())),
        )

    def _answer(self, limit_s: float) -> dict[str, Any]:
        if not self._selector.select(limit_s):
            raise ArmFailed(f"{self.arm} did not answer within {limit_s:.0f} s")
        line = self._answers.readline()
        if not line:
            raise ArmFailed(f"{self.arm} ended (its message is on stderr)")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the arm end by itself, then end whatever is left of its session."""
        with contextlib.suppress(OSError):
            self._commands.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        for pid in machine.session_pids(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._answers.close()
        self._selector.close()
