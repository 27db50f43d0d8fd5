"""`millhead run`: a script as Python runs it, with torch's loaders made millhead's.

The script gets an interpreter of its own, so everything about it is as without millhead: argv, path,
the main module, exit code, signals, tracebacks, spawned processes. What is added is a directory on
PYTHONPATH, whose ``sitecustomize`` waits for torch.
"""

from __future__ import annotations

import importlib.util
import os
import sys

from millhead._command_line import (
    EXIT_USAGE,
    did_you_mean,
    modules_here,
    names_beside,
    python_path,
    say,
    show,
)

HELP = """\
usage: millhead run SCRIPT [ARGUMENTS...]
       millhead run -m MODULE [ARGUMENTS...]

Runs a Python program as python does, except that every torch.utils.data.DataLoader
in it gives millhead's iterators: the same batches, without a change to the program.
This holds for the processes that it starts too. What millhead cannot serve, torch
serves as before. MILLHEAD_VERBOSE=1 prints a line at the end of each epoch.

SCRIPT is what python takes: a file, or a directory or zip file with a __main__.py.
The exit code is the program's own; 2 when there is no such program.

The Python is MILLHEAD_PYTHON where it is set, else the one beside the command, else
python3. `python OPTIONS -m millhead run` passes the options on.

with torchrun, whichever suits:
  torchrun --nproc-per-node 2 --no-python millhead run train.py
  torchrun --nproc-per-node 2 -m millhead run train.py
  millhead run -m torch.distributed.run --nproc-per-node 2 train.py

options:
  -m MODULE  a module instead of a file
  --help     this text
"""


def main(arguments: list[str]) -> int:
    """Become the program, or say in a line why not and return 2."""
    first = arguments[0] if arguments else ""
    if first in ("-h", "--help"):
        show(HELP, end="")
        return 0
    wrong = _what_is_wrong(arguments)
    if wrong is not None:
        say(wrong)
        return EXIT_USAGE
    os.environ["MILLHEAD_RUN"] = "1"  # also where MILLHEAD_WATCH asks only to watch
    os.environ["PYTHONPATH"] = python_path()
    os.execv(sys.executable, [sys.executable, *_interpreter_options(), *arguments])


def _what_is_wrong(arguments: list[str]) -> str | None:
    if sys.flags.ignore_environment or sys.flags.no_site:
        return "Python ignores PYTHONPATH or sitecustomize (run): leave out -I, -E and -S"
    if not arguments:
        return "nothing to run (run): give SCRIPT or -m MODULE; see millhead run --help"
    first = arguments[0]
    if first == "-m" and len(arguments) == 1:
        return "option '-m' needs a module (run): see millhead run --help"
    if first == "-m":
        return _wrong_with_module(arguments[1])
    if first.startswith("-"):
        return f"unknown option '{first}' (run): see millhead run --help"
    return _wrong_with_script(first)


def _wrong_with_script(script: str) -> str | None:
    if not os.path.exists(script):
        todo = did_you_mean(script, names_beside(script))
        return (
            f"no script '{script}' (run): {todo or 'give the path of a Python file, or -m MODULE'}"
        )
    if os.path.isdir(script) and not os.path.exists(os.path.join(script, "__main__.py")):
        return f"'{script}' is a directory (run): give a file, or put a __main__.py into it"
    if not os.access(script, os.R_OK):
        return f"'{script}' cannot be read (run): check its permissions"
    return None


def _wrong_with_module(module: str) -> str | None:
    """Only the first name is looked up: importing a package to find a part of it has effects."""
    sys.path.insert(0, "")
    try:
        found = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        found = None
    if found is None:
        todo = did_you_mean(module, modules_here()) or "check its name, and that it is installed"
        return f"no module '{module}' (run): {todo}"
    return None


def _interpreter_options() -> list[str]:
    """Those that this interpreter was given before ``-m millhead``."""
    given = sys.orig_argv[1 : len(sys.orig_argv) - (len(sys.argv) - 1)]
    return given[:-2] if given[-2:] == ["-m", "millhead"] else []
