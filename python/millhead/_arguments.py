"""Checks of arguments: counts, and amounts of memory."""

from __future__ import annotations

import math

#: What ``worker_memory=`` may be.
WorkerMemory = int | float | str | None

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def parse_memory(
    memory: int | str | None, name: str = "memory", kinds: str = "bytes or like '2GB'"
) -> int | None:
    """Bytes of ``memory=``: a number, ``"2GB"``, ``"512 MiB"``, or None."""
    if memory is None:
        return None
    value: float
    if isinstance(memory, str):
        text = memory.strip()
        number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
        unit = text[len(number) :].strip().upper()
        try:
            value = float(number) * _UNITS[unit]
        except (KeyError, ValueError):
            raise ValueError(f"{name} should be {kinds}, but got {memory!r}") from None
    elif isinstance(memory, int) and not isinstance(memory, bool):
        value = memory
    else:
        raise TypeError(f"{name} should be {kinds}, but got {memory!r}")
    if not 1 <= value < 2**63:
        raise ValueError(f"{name} should be at least a byte and finite, but got {memory!r}")
    return int(value)


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
