"""What the verbs in Python share: readers of options, and the one line of a message."""

from __future__ import annotations

import argparse
import errno
import os
import re
import signal
import stat
import sys
from collections.abc import Callable
from typing import NoReturn

#: What a shell gives for a command that SIGPIPE ended.
EXIT_NOT_READ = 141


def whole(least: int) -> Callable[[str], int]:
    """A reader of whole numbers."""

    def read(text: str) -> int:
        if not re.fullmatch("[0-9]{1,9}", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"'{text}' is no whole number of {least} or more")
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
        raise argparse.ArgumentTypeError(f"'{text}' is no time like 90s, 10m or 1h")
    return float(found[1]) * units[found[2]]


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


def read_text(path: str | os.PathLike[str]) -> str:
    """What a file holds. A pipe that nobody writes to is empty, and not waited for; a device, which
    may have no end, is refused: OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, encoding="utf-8") as file:
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "a device and no file", os.fspath(path))
        os.set_blocking(descriptor, True)
        return file.read()


def terminate_as_interrupt() -> None:
    """From now on SIGTERM, which schedulers send, ends a verb as Ctrl-C does: with what is known."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def say(text: str) -> None:
    """Tell the user, on standard error."""
    print(f"millhead: {printable(text)}", file=sys.stderr)


def printable(text: str) -> str:
    """A message stays one line and moves no cursor, whatever it quotes."""
    return "".join(char if char.isprintable() else "?" for char in text)
