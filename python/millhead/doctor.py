"""`millhead doctor PROGRAM`: runs a program with its loaders watched, then says what it waited for.

The program runs as it would without millhead, except that every torch DataLoader in it, and in the
processes it starts, writes events (`_startup`). This process samples it from outside, passes signals
on, and hands the run to the command `millhead doctor RUN`.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TextIO

from millhead import _command_line as cli
from millhead import _kept_runs as kept_runs
from millhead.watching.usage_sampler import Sampler

HELP = """\
usage: millhead doctor [--json] [-o RUN_DIR] [--probe FILE] [--] PROGRAM [ARGUMENTS...]

Runs PROGRAM, a Python script or any command, with every torch DataLoader in it watched
and its processes sampled from outside, then says what the device waited for. Ctrl-C
ends the program; the verdict comes from what was recorded until then. The verdict goes
to standard error where standard output is not a terminal: a file keeps the program's
output alone.

options:
  --json        one JSON object on standard output, and nothing else: what the program
                prints goes to standard error
  -o RUN_DIR    keep the run there (default: in ~/.cache/millhead/runs, the last 10;
                with --json it is removed)
  --probe FILE  what `millhead probe DATA --json` printed about where the samples lie
  --help        this text

exit codes: 0 the program ended well, 1 it failed or nothing was recorded, 2 usage,
130 it was interrupted
"""

SEE_HELP = "(doctor): see millhead doctor --help"
#: Passed on to the program. Those of a terminal reach it without us.
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


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
            cli.show(HELP, end="")
            return 0
        judge = _command()
        if request.json and not request.keep:  # a program asks, and has nobody to tell where it is
            with tempfile.TemporaryDirectory(
                prefix="millhead-doctor-", ignore_cleanup_errors=True
            ) as made:
                return _judge(request, judge, Path(made), _run(request, Path(made)))
        run = kept_runs.chosen(request.keep) if request.keep else kept_runs.new(request.command)
        return _judge(request, judge, run, _run(request, run))
    except cli.UsageError as error:
        cli.say(str(error))
        return cli.EXIT_USAGE


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
                raise cli.UsageError(f"option '{option}' needs a value {SEE_HELP}")
            setattr(request, "keep" if option == "-o" else "probe", rest.pop(0))
        elif option.startswith("-"):
            raise cli.UsageError(_unknown(option))
        else:
            request.command = [option, *rest]
            break
    if not request.command:
        raise cli.UsageError(f"no program to run {SEE_HELP}")
    request.command = _as_python(request.command)
    if request.probe is not None:
        _check_probe(request.probe)
    return request


def _unknown(option: str) -> str:
    if meant := cli.did_you_mean(option, ("--json", "--probe", "--help")):
        return f"unknown option '{option}' (doctor): {meant}"
    return f"option '{option}' does not go with a command to run {SEE_HELP}"


def _check_probe(path: str) -> None:
    """Before the program runs, not after; what the file holds is the command's business."""
    try:
        json.loads(cli.read_text(path))
    except (OSError, ValueError) as error:
        raise cli.UsageError(
            f"cannot read --probe {path}: {error} (doctor): make it with: millhead probe PATH "
            "--json > FILE"
        ) from None


def _as_python(command: list[str]) -> list[str]:
    """A script that the system would not execute itself is this Python's to run."""
    script = command[0]
    if not script.endswith(".py") or (os.path.dirname(script) and os.access(script, os.X_OK)):
        return command
    if not os.path.exists(script):
        near = cli.did_you_mean(script, cli.names_beside(script))
        raise cli.UsageError(
            f"no script '{script}' (doctor): {near or 'give the path of a Python file'}"
        )
    return [sys.executable, *command]


def _command() -> str:
    """The command millhead, which judges; looked for before the program runs, not after."""
    program = cli.find_command()
    if program is None:
        raise cli.UsageError(
            f"no command millhead beside {sys.executable} (doctor): reinstall millhead there"
        )
    return program


# ---- the program ---------------------------------------------------------------------------------


def _run(request: Request, run: Path) -> int:
    """Runs the program to its end; its exit code, negative for a signal, 130 for Ctrl-C."""
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
        cli.say(
            f"sampling ended early: {sampler.problem} (doctor): CPU and memory are known in part "
            "only"
        )
    if interrupted or child.returncode in (-signal.SIGINT, cli.EXIT_INTERRUPTED):
        return cli.EXIT_INTERRUPTED
    return child.returncode


def _start(request: Request, run: Path, mask: Iterable[int]) -> subprocess.Popen[bytes]:
    watched = {
        "PYTHONPATH": cli.python_path(),
        "MILLHEAD_WATCH": str(run),
        "MILLHEAD_WATCH_HOOKS": "1",  # when training begins and ends
        "MILLHEAD_SAMPLED": "1",  # by us, from outside
    }
    try:
        return subprocess.Popen(
            request.command,
            env={**os.environ, **watched},
            stdout=sys.stderr if request.json else None,
            # there is no other thread yet
            preexec_fn=partial(signal.pthread_sigmask, signal.SIG_SETMASK, mask),  # noqa: PLW1509
        )
    except OSError as error:
        raise cli.UsageError(
            f"cannot start '{request.command[0]}': {error.strerror} (doctor): try: "
            "millhead doctor -- python train.py"
        ) from None


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


def _judge(request: Request, program: str, run: Path, code: int) -> int:
    if sys.stdout is not None:  # closed: the command that judges says so
        sys.stdout.flush()
    if not any(run.glob("events*.jsonl")):
        if request.keep is None:  # a directory that the user chose stays
            shutil.rmtree(run, ignore_errors=True)
        cli.say(_nothing_recorded(request, code))
        return cli.EXIT_INTERRUPTED if code == cli.EXIT_INTERRUPTED else cli.EXIT_FAILED
    probe = ["--probe", request.probe] if request.probe else []
    command = [program, "doctor", *(["--json"] if request.json else []), *probe, str(run)]
    judged = subprocess.run(command, check=False, stdout=_verdict_stream(request)).returncode
    if judged == 0 and not request.json:
        next_step = f"millhead report {shlex.quote(str(run))} -o report.html"
        cli.say(f"the run is kept; to draw it: {next_step}")
    if code == cli.EXIT_INTERRUPTED:
        return cli.EXIT_INTERRUPTED
    if code != 0:
        cli.say(f"the program {_ending(code)} (doctor): the verdict covers what ran until then")
        return cli.EXIT_FAILED
    return judged


def _verdict_stream(request: Request) -> TextIO | None:
    """Where the verdict goes: beside the program's output on a terminal, and not into its file."""
    if request.json or sys.stdout is None or sys.stdout.isatty():
        return None
    return sys.stderr


def _nothing_recorded(request: Request, code: int) -> str:
    if code not in (0, cli.EXIT_INTERRUPTED):
        return f"the program {_ending(code)} before any batch (doctor): see what it printed"
    if code == cli.EXIT_INTERRUPTED:
        return "the program was interrupted before any batch (doctor): let it run a while"
    return (
        f"no torch DataLoader was iterated by '{_program_name(request.command)}' (doctor): run the "
        "program that trains, or put millhead.watch or millhead.prefetch around what it iterates"
    )


def _program_name(command: list[str]) -> str:
    """The script where Python runs one, else the command."""
    scripts = [word for word in command if word.endswith(".py")]
    return os.path.basename(scripts[0] if scripts else command[0])


def _ending(code: int) -> str:
    if code >= 0:
        return f"failed with exit code {code}"
    return f"was ended by signal {-code}"
