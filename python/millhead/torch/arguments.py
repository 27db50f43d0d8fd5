"""Checks of arguments: counts, and amounts of memory."""

from __future__ import annotations

import math

from millhead._memory_sizes import parse_memory

#: What ``worker_memory=`` may be.
WorkerMemory = int | float | str | None


def require_at_least(least: int, **arguments: int | None) -> None:
    """Raise ValueError for the first that is less; None is not."""
    for name, value in arguments.items():
        if value is not None and value < least:
            raise ValueError(f"{name} should be at least {least}, but got {value!r}")


def parse_worker_memory(value: WorkerMemory) -> int | float | str | None:
    """``worker_memory=``, read: bytes, a fraction as a float, ``"auto"``, or None for no limit."""
    if value is None or (not isinstance(value, (str, bool)) and value == 0):
        return None
    kinds = "bytes, like '4GB', a fraction up to 1.0, 'auto' or None"
    if isinstance(value, float):
        if not math.isfinite(value) or not 0 < value <= 1:
            raise ValueError(f"worker_memory should be {kinds}, but got {value!r}")
        return value
    if isinstance(value, str) and value.strip().lower() == "auto":
        return "auto"
    return parse_memory(value, "worker_memory", kinds)
