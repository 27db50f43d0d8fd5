"""The command that belongs to the package under test."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import millhead


def _installed() -> Path:
    """In the environment's scripts; that of a copy of the tree lies beside it (tools/sabotage)."""
    copy = Path(millhead.__file__).parents[2] / "bin" / "millhead"
    return copy if copy.is_file() else Path(sysconfig.get_path("scripts")) / "millhead"


COMMAND = str(_installed())
