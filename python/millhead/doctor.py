"""`millhead doctor -- COMMAND`: runs a program with its loaders watched, then says what it waited for.

The program runs as it would without millhead, except that every torch DataLoader in it, and in the
processes it starts, writes events (`_startup`). This process samples it from outside, passes signals
on, and hands the run to the command `millhead doctor RUN`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from millhead._options import read_text, show
from millhead._sampler import Sampler

HELP = """\
usage: millhead doctor [--json] [-o RUN_DIR] [--probe FILE] -- COMMAND [ARGUMENTS...]

Runs COMMAND, mostly `python train.py ...`, with every torch DataLoader in it watched
and its processes sampled from outside, then says what the device waited for. Ctrl-C
ends the program; the verdict comes from what was recorded until then.

options:
  --json        one JSON object on standard output, and nothing else: what the program
                prints goes to standard error
  -o RUN_DIR    keep the run there (default: a temporary directory, removed)
  --probe FILE  what `millhead probe DATA --json` printed about where the samples lie
  --help        this text

exit codes: 0 the program ended well, 1 it failed or nothing was recorded, 2 usage,
130 it was interrupted
"""

SEE_HELP = "see millhead doctor --help"
OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
#: Passed on to the program. Those of a terminal reach it without us.
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Wrong(Exception):
    """Something about the request: WHAT, WHAT TO DO."""


@dataclass
class Request:
    """The command line, read."""

    command: list[str] = field(default_factory=list)
    json: bool = False
    keep: str | None = None
    probe: str | None = None
    help: bool = False


def main(arguments: list[str]) -> int:
    """Run, watch, judge; the exit code."""
    try:
        request = _parse(arguments)
        if request.help:
            show(HELP, end="")
            return OK
        with _run_directory(request.keep) as run:
            return _judge(request, run, _run(request, run))
    except Wrong as wrong:
        _say(*wrong.args)
        return USAGE


def _parse(arguments: list[str]) -> Request:
    request = Request()
    rest = list(arguments)
    while rest:
        option = rest.pop(0)
        if option == "--":
            request.command = rest
            break
        if option == "--json":
            request.json = True
        elif option in ("-h", "--help"):
            request.help = True
            return request
        elif option in ("-o", "--probe"):
            if not rest or rest[0] == "--":
                raise Wrong(f"option '{option}' needs a value", SEE_HELP)
            setattr(request, "keep" if option == "-o" else "probe", rest.pop(0))
        elif option.startswith("-"):
            raise Wrong(f"option '{option}' does not go with a command to run", SEE_HELP)
        else:
            raise Wrong(f"'{option}' is before '--'", f"give the command after it; {SEE_HELP}")
    if not request.command:
        raise Wrong("no command after '--'", SEE_HELP)
    if request.probe is not None:
        _check_probe(request.probe)
    return request


def _check_probe(path: str) -> None:
    """Before the program runs, not after; what the file holds is the command's business."""
    try:
        json.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise Wrong(
            f"cannot read --probe {path}: {error}",
            "make it with: millhead probe PATH --json > FILE",
        ) from None


@contextmanager
def _run_directory(keep: str | None) -> Iterator[Path]:
    """Where events go: the user's directory, or one that is removed again."""
    if keep is None:
        with tempfile.TemporaryDirectory(
            prefix="millhead-doctor-", ignore_cleanup_errors=True
        ) as made:
            yield Path(made)
        return
    path = Path(keep).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()  # as root, permissions alone do not tell
    except OSError as error:
        raise Wrong(
            f"cannot write into '{keep}': {error.strerror}", "give -o another directory"
        ) from None
    if any(path.glob("events*.jsonl")):
        raise Wrong(f"'{keep}' has a run in it already", "give -o another directory")
    yield path


# ---- the program ---------------------------------------------------------------------------------


def _environment(run: Path) -> dict[str, str]:
    startup = str(Path(__file__).parent / "_startup")
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if startup not in paths:
        paths.insert(0, startup)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "MILLHEAD_WATCH": str(run),
        "MILLHEAD_WATCH_HOOKS": "1",  # torch tells when training begins and ends
        "MILLHEAD_SAMPLED": "1",  # by us, from outside
    }


def _run(request: Request, run: Path) -> int:
    """Runs the program to its end; its exit code, negative for a signal, INTERRUPTED for Ctrl-C."""
    signals = {*PASSED_ON, signal.SIGCHLD}
    # Blocked before there is a child, so that none is missed; the child gets the mask of before.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        child = _start(request, run, before)
        with Sampler(run) as sampler:
            interrupted = _wait(child, signals)
    finally:
        for one in PASSED_ON:  # a second Ctrl-C must not come when the first is done with
            while signal.sigtimedwait([one], 0):
                pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if sampler.problem is not None:
        _say(f"sampling ended early: {sampler.problem}", "CPU and memory are known in part only")
    if interrupted or child.returncode in (-signal.SIGINT, INTERRUPTED):
        return INTERRUPTED
    return child.returncode


def _start(request: Request, run: Path, mask: Iterable[int]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            request.command,
            env=_environment(run),
            stdout=sys.stderr if request.json else None,
            preexec_fn=lambda: _set_mask(mask),  # noqa: PLW1509 - there is no other thread yet
        )
    except OSError as error:
        raise Wrong(
            f"cannot start '{request.command[0]}': {error.strerror}",
            "give a command, such as python train.py, after '--'",
        ) from None


def _set_mask(mask: Iterable[int]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _wait(child: subprocess.Popen[bytes], signals: Iterable[int]) -> bool:
    """Until the program has ended; whether it was interrupted."""
    interrupted = False
    while child.poll() is None:
        # The time-out: a SIGCHLD that came before it was blocked is gone.
        info = signal.sigtimedwait(signals, 0.5)
        if info is None or info.si_signo == signal.SIGCHLD:
            continue
        interrupted = interrupted or info.si_signo == signal.SIGINT
        if info.si_pid:  # sent by a process, not typed at a terminal, which tells all of us
            child.send_signal(info.si_signo)
    return interrupted


# ---- the verdict ---------------------------------------------------------------------------------


def _judge(request: Request, run: Path, code: int) -> int:
    if sys.stdout is not None:  # closed: the command that judges says so
        sys.stdout.flush()
    if not any(run.glob("events*.jsonl")):
        _say(*_nothing_recorded(request, code))
        return INTERRUPTED if code == INTERRUPTED else FAILED
    probe = ["--probe", request.probe] if request.probe else []
    command = [_command(), "doctor", *(["--json"] if request.json else []), *probe, str(run)]
    judged = subprocess.run(command, check=False).returncode
    if code == INTERRUPTED:
        return INTERRUPTED
    if code != 0:
        _say(f"the program {_ending(code)}", "the verdict is of what ran until then")
        return FAILED
    return judged


def _nothing_recorded(request: Request, code: int) -> tuple[str, str]:
    if code not in (OK, INTERRUPTED):
        return f"the program {_ending(code)} before any batch", "see what it printed"
    if code == INTERRUPTED:
        return "the program was interrupted before any batch", "let it run a while"
    return (
        f"no torch DataLoader was iterated by '{os.path.basename(request.command[0])}'",
        "run the program that trains, or wrap its loop in millhead.watch",
    )


def _ending(code: int) -> str:
    if code >= 0:
        return f"failed with exit code {code}"
    return f"was ended by signal {-code}"


def _command() -> str:
    """The command millhead: beside this interpreter, else in PATH."""
    beside = Path(sys.executable).parent / "millhead"
    found = str(beside) if beside.exists() else shutil.which("millhead")
    if found is None:
        raise Wrong("no command millhead beside this Python", "reinstall millhead")
    return found


def _say(what: str, todo: str) -> None:
    """A message stays one line and moves no cursor, whatever it quotes."""
    line = f"millhead: {what} (doctor): {todo}"
    print("".join(char if char.isprintable() else "?" for char in line), file=sys.stderr)
