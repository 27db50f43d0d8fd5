"""Runs the snippets with torch's loader and with millhead's, and compares what they print.

    python examples/seeds/run.py                       every snippet, both loaders, a table
    python examples/seeds/run.py FILE ... [--json]     these snippets
    python examples/seeds/run.py --loader torch FILE   one snippet with one loader, as `python FILE`

The snippets import millhead's DataLoader; for torch's, that name is replaced before they run. torch
is imported once, here: each run is a fork of this process and leads a session of its own. Lines that
begin with "result:" must be the same for both loaders; other lines are times.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

for pool in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(pool, "1")  # no thread of ours when we fork

import millhead.torch
import torch.utils.data

HERE = Path(__file__).resolve().parent
LOADERS = ("torch", "millhead")
LIMIT_S, PATIENCE_S = 60.0, 5.0


def run_as_script(file: Path, loader: str) -> None:
    """What `python FILE` does, with the loader asked for."""
    if loader == "torch":
        millhead.torch.DataLoader = torch.utils.data.DataLoader  # type: ignore[misc]
    sys.argv = [str(file)]
    runpy.run_path(str(file), run_name="__main__")


def run_apart(file: Path, loader: str) -> dict[str, Any]:
    """Runs a snippet in a process of its own; says how it ended and what it left running."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os.setsid()
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            run_as_script(file, loader)
            sys.exit(0)
        status = _wait(child)
        seconds = time.monotonic() - began
        left = _end_session(child)
        return {
            "exit": os.waitstatus_to_exitcode(status),
            "seconds": round(seconds, 2),
            "left": left,
            "stdout": _text(out),
            "stderr": _text(err),
        }


def _wait(child: int) -> int:
    """The child's wait status; it is killed when it takes too long."""
    ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
    if not _until(lambda: os.waitid(os.P_PID, child, ended), LIMIT_S):
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _until(look: Callable[[], Any], seconds: float) -> Any:
    """Looks again and again until there is something to see, or time is up."""
    deadline = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def _end_session(session: int) -> int:
    """How many processes of the session outlived its leader by seconds; they are killed."""
    _until(lambda: not _members(session), PATIENCE_S)
    left = _members(session)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(left)


def _members(session: int) -> list[int]:
    """Running processes of a session."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, its_session = entry.read_text().rpartition(")")[2].split()[:4]
            if int(its_session) == session and state not in "ZX":
                found.append(int(entry.parent.name))
    return found


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def results(run: dict[str, Any]) -> list[str]:
    """The lines that every loader must print alike."""
    return [line for line in run["stdout"].splitlines() if line.startswith("result:")]


def compare(file: Path) -> dict[str, Any]:
    """Both loaders, one after the other."""
    runs = {loader: run_apart(file, loader) for loader in LOADERS}
    fine = all(run["exit"] == 0 and run["left"] == 0 and results(run) for run in runs.values())
    return {
        "file": file.name,
        "equal": fine and results(runs["torch"]) == results(runs["millhead"]),
        **runs,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """0 when all snippets ran and gave the same results with both loaders."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="default: every seed*.py here")
    parser.add_argument("--loader", choices=LOADERS, help="run one file with this loader alone")
    parser.add_argument("--json", action="store_true", help="everything the runs printed")
    args = parser.parse_args(argv)
    files = [file.resolve() for file in args.files] or sorted(HERE.glob("seed*.py"))
    if args.loader:
        if len(args.files) != 1:
            parser.error("--loader runs one file")
        run_as_script(files[0], args.loader)
        return 0
    importlib.import_module("torch._dynamo")  # optimizers import it at first use: once will do

    gc.freeze()  # what is imported stays: the forks need not look at it when they end
    rows = []
    for file in files:
        rows.append(compare(file))
        if not args.json:
            seconds = ", ".join(f"{name} {rows[-1][name]['seconds']:.1f} s" for name in LOADERS)
            print(f"{'equal ' if rows[-1]['equal'] else 'DIFFER'}  {file.name:28}  {seconds}")
    if args.json:
        print(json.dumps(rows, indent=1))
    return 0 if all(row["equal"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
