"""What a process leaves behind: children, descriptors, mappings and shared memory files."""

from __future__ import annotations

import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

MARK = "MILLHEAD_TEST_MARK"
HERE = Path(__file__).resolve().parent
#: Tests' own programs: parity.py, kill.py, ...
PROGRAMS = HERE.parent


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and parent of a process, None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, parent = text.rpartition(")")[2].split()[:2]
    return state, int(parent)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    stat = _stat(pid)
    return stat is not None and stat[0] not in "ZX"


def standing_helpers() -> set[int]:
    """Processes multiprocessing starts once and keeps: resource tracker and fork server."""
    tracker = getattr(multiprocessing.resource_tracker._resource_tracker, "_pid", None)
    server = getattr(multiprocessing.forkserver._forkserver, "_forkserver_pid", None)
    return {pid for pid in (tracker, server) if pid is not None}


def children(pid: int | None = None) -> set[int]:
    """Children of a process (of this one by default), zombies too, without standing helpers."""
    parent = os.getpid() if pid is None else pid
    found = set()
    for candidate in _pids():
        stat = _stat(candidate)
        if stat is not None and stat[1] == parent:
            found.add(candidate)
    return found - standing_helpers()


def marked(mark: str) -> set[int]:
    """Running processes whose environment carries the mark, wherever they are in the tree."""
    wanted = f"{MARK}={mark}".encode()
    found = set()
    for pid in _pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0") and is_running(pid) and pid != os.getpid():
            found.add(pid)
    return found


def descriptors() -> dict[int, str]:
    """Open descriptors of this process and what they are."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the descriptor of the listing itself
    return found


def map_count() -> int:
    """Lines of /proc/self/maps."""
    with open("/proc/self/maps", "rb") as file:
        return sum(1 for _ in file)


def shared_files() -> set[str]:
    """Names in /dev/shm."""
    return set(os.listdir("/dev/shm"))


def wait_until(condition: Callable[[], Any], seconds: float = 5.0, step: float = 0.02) -> bool:
    """Looks again and again until the condition holds; False when it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(step)
    return True


def new_mark() -> tuple[str, dict[str, str]]:
    """A fresh mark and an environment that carries it."""
    mark = uuid.uuid4().hex
    return mark, {**os.environ, MARK: mark, "PYTHONPATH": _python_path()}


def _python_path() -> str:
    given = os.environ.get("PYTHONPATH")
    folders = sorted(str(path) for path in PROGRAMS.iterdir() if path.is_dir())
    return os.pathsep.join([str(PROGRAMS), *folders, *([given] if given else [])])


def end_marked(mark: str) -> None:
    """Kills what carries the mark: only ever processes a test started itself."""
    for pid in marked(mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def run_python(
    code: str, *, seconds: float = 60.0, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a program text with a time limit; what it left running is killed and reported.

    The result's ``left`` attribute holds the pids that were still running 5 s after it ended.
    """
    return run([sys.executable, "-c", code], seconds=seconds, env=env)


def run(
    command: list[str], *, seconds: float = 60.0, env: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs a command as :func:`run_python` runs a program text."""
    mark, environment = new_mark()
    try:
        result = subprocess.run(
            command,
            env={**environment, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            **options,
        )
        wait_until(lambda: not marked(mark))
        result.left = marked(mark)  # type: ignore[attr-defined]
        return result
    finally:
        end_marked(mark)
