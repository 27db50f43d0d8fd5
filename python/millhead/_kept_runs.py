"""Where `millhead doctor` keeps the runs of programs: the user's directory, or the last few by date."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

from millhead import _command_line as cli

#: Runs in the default place; a new one removes the oldest.
MOST = 10
_NAME = re.compile(r"\d{8}-\d{6}-.*")


def chosen(keep: str) -> Path:
    """The directory of ``-o``, made where it is not there.

    Raises:
        UsageError: it cannot be written, or holds a run.
    """
    path = Path(keep).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()  # permissions alone do not show it, as root
    except OSError as error:
        raise cli.UsageError(
            f"cannot write into '{keep}': {error.strerror} (doctor): choose another -o"
        ) from None
    if any(path.glob("events*.jsonl")):
        raise cli.UsageError(f"'{keep}' already holds a run (doctor): choose another -o")
    return path


def new(command: list[str]) -> Path:
    """A new directory in the default place, named by the time and the program.

    Where that place cannot be written, one for temporary files serves.
    """
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{_program(command)}"
    try:
        runs = _default_place()
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_oldest(runs)
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=runs))
    except OSError:
        return Path(tempfile.mkdtemp(prefix=f"millhead-{name}-"))


def _default_place() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return Path(cache if os.path.isabs(cache) else Path.home() / ".cache") / "millhead" / "runs"


def _program(command: list[str]) -> str:
    """The script's name, or else the command's, as part of a file's name."""
    script = next((word for word in command if word.endswith(".py")), command[0])
    return re.sub(r"[^A-Za-z0-9_.-]", "_", Path(script).stem)[:40]


def _remove_oldest(runs: Path) -> None:
    """Leaves room for one more. Only what is named as :func:`new` names it is removed."""
    named = sorted(path for path in runs.iterdir() if _NAME.fullmatch(path.name) and path.is_dir())
    for path in named[: max(0, len(named) - MOST + 1)]:
        with contextlib.suppress(OSError):
            shutil.rmtree(path)
