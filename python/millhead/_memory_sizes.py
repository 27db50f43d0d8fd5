"""Amounts of memory, as arguments give them."""

from __future__ import annotations

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
