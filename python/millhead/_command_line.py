"""What the verbs in Python share: options, messages, tables and the line of progress."""

from __future__ import annotations

import argparse
import errno
import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
#: What a shell gives for a command that SIGPIPE ended.
EXIT_NOT_READ = 141


class UsageError(Exception):
    """What the user gave cannot be used: one line ``WHAT (WHERE): WHAT TO DO``."""


# ---- options -------------------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """Reads the options of a verb; raises UsageError."""

    def __init__(self, verb: str) -> None:
        super().__init__(prog=f"millhead {verb}", add_help=False, allow_abbrev=False)
        self._verb = verb
        self.add_argument("-h", "--help", action="store_true")

    def error(self, message: str) -> NoReturn:
        """As argparse calls it."""
        todo = f"see millhead {self._verb} --help"
        if unknown := re.fullmatch(r"unrecognized arguments: (\S+).*", message):
            message = f"unknown argument '{unknown[1]}'"
            todo = did_you_mean(unknown[1], self._option_string_actions) or todo
        raise UsageError(f"{message} ({self._verb}): {todo}")


def did_you_mean(given: str, known: Iterable[str]) -> str | None:
    """``did you mean 'dataset'?``, where one of the known names is much like the given one."""
    import difflib  # only where something went wrong

    near = difflib.get_close_matches(given, list(known), n=1, cutoff=0.7)
    return f"did you mean '{near[0]}'?" if near else None


def names_beside(path: str) -> list[str]:
    """What lies in the directory of a file that is not there, as the user would name it."""
    directory = os.path.dirname(path)
    try:
        return [os.path.join(directory, name) for name in os.listdir(directory or ".")]
    except OSError:
        return []


def modules_here() -> list[str]:
    """The modules that the files of the working directory are."""
    return [name.removesuffix(".py") for name in names_beside("") if name.endswith(".py")]


def whole(least: int) -> Callable[[str], int]:
    """A reader of whole numbers."""

    def read(text: str) -> int:
        if not re.fullmatch("[0-9]{1,9}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of {least} or more")
        return int(text)

    return read


def train_step(text: str) -> float | str:
    """Seconds, or MODULE:NAME of a function that is given each batch."""
    if ":" in text:
        return text
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e6:
        raise argparse.ArgumentTypeError(f"'{text}' is neither seconds nor MODULE:NAME")
    return seconds


def duration(text: str) -> float:
    """Seconds of a time like 90s, 10m or 1h."""
    units = {"": 1, "s": 1, "m": 60, "h": 3600}
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh]?)", text)
    if not found or float(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time like 90s, 10m or 1h")
    return float(found[1]) * units[found[2]]


def read_text(path: str | os.PathLike[str]) -> str:
    """What a file holds. A pipe that nobody writes to is empty, and not waited for; a device, which
    may have no end, is refused: OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, encoding="utf-8") as file:
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "a device, not a file", os.fspath(path))
        os.set_blocking(descriptor, True)
        return file.read()


# ---- output --------------------------------------------------------------------------------------


def show(text: str, end: str = "\n") -> None:
    """Print a result. Where it cannot be written the command ends: in one line, or without a word
    where whoever read it has enough, as in ``millhead bench --plan | head -1``."""
    try:
        if sys.stdout is None:  # Python's word for closed; print would say nothing
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        print(text, end=end, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is held back goes nowhere
        if isinstance(error, BrokenPipeError):
            sys.exit(EXIT_NOT_READ)
        what = f"cannot write the result: {error.strerror}"
        say(f"{what} (standard output): check where the output goes")
        sys.exit(1)


def say(text: str) -> None:
    """A message on standard error."""
    print(f"millhead: {printable(text)}", file=sys.stderr)


def printable(text: str) -> str:
    """A message stays one line and moves no cursor, whatever it quotes."""
    return "".join(char if char.isprintable() else "?" for char in text)


def format_table(lines: list[list[str]], colour: bool) -> list[str]:
    """Cells in columns, between the first and the last to the right; lines with a * in bold."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = []
    for line in lines:
        cells = [
            cell.ljust(width) if column in (0, len(line) - 1) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        shown = "  ".join(cells).rstrip()
        text.append(f"\x1b[1m{shown}\x1b[0m" if colour and line[0].startswith("*") else shown)
    return text


def wants_colour() -> bool:
    """Whether standard output is a terminal that takes escape sequences."""
    return sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")


class ProgressLine:
    """How far a command is, on a terminal: a bar and a few words, as the verbs in C show it."""

    WIDTH = 20

    def __init__(self) -> None:
        self.stream = sys.stderr  # what is on standard output may be read by a program
        self.shown = self.stream.isatty() and os.environ.get("TERM") != "dumb"

    def show(self, share: float, text: str) -> None:
        """Replace the line."""
        if self.shown:
            bar = "=" * int(self.WIDTH * share)
            self.stream.write(f"\r[{bar:{self.WIDTH}}] {share:4.0%}, {text}\x1b[K")
            self.stream.flush()

    def end(self) -> None:
        """Remove the line."""
        if self.shown:
            self.stream.write("\r\x1b[K")
            self.stream.flush()


# ---- verbs ----------------------------------------------------------------------------------------


def run_verb(
    help_text: str,
    parse: Callable[[], argparse.Namespace],
    work: Callable[[argparse.Namespace], int],
    nothing_yet: str,
) -> int:
    """Read the options and do the work; the exit code. ``nothing_yet``: what an interrupt means
    before there is anything to show."""
    try:
        options = parse()
        if not options.help:
            return work(options)
        show(help_text, end="")
        return 0
    except UsageError as error:
        say(str(error))
        return EXIT_USAGE
    except KeyboardInterrupt:
        say(f"interrupted {nothing_yet}")
        return EXIT_INTERRUPTED


# ---- processes -----------------------------------------------------------------------------------


def terminate_as_interrupt() -> None:
    """From now on SIGTERM, which schedulers send, ends a verb as Ctrl-C does: with what is known."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def find_command() -> str | None:
    """The command millhead: beside this interpreter, else in PATH."""
    import shutil  # not in every run of a benchmark

    beside = Path(sys.executable).parent / "millhead"
    return str(beside) if beside.exists() else shutil.which("millhead")


def python_path() -> str:
    """PYTHONPATH for a program, with the directory of our ``sitecustomize`` at its head."""
    startup = str(Path(__file__).parent / "_startup")
    paths = os.environ.get("PYTHONPATH", "")
    if startup in paths.split(os.pathsep):
        return paths
    return f"{startup}{os.pathsep}{paths}" if paths else startup
