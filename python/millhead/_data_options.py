"""What a dataset is opened with, as the texts that the C core and the command line take."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: A range of one dimension: a slice, or (first, last) as coordinates.
Range = slice | tuple[Any, Any]


@dataclass(frozen=True)
class DataOptions:
    """The arguments of :class:`millhead.Loader` and :func:`millhead.open` that say what to read."""

    pipeline: str | None = None
    profile: str | None = None
    window: Mapping[str, int] | None = None
    stride: Mapping[str, int] | None = None
    select: Mapping[str, Range] | None = None
    target: Mapping[str, int] | None = None
    decode: str | None = "cf"
    index: str | os.PathLike[str] | None = None
    storage_options: Mapping[str, Any] | None = None
    cache: str | os.PathLike[str] | None = None
    join: str | None = None
    cache_check: str | None = "open"

    def texts(self) -> dict[str, str]:
        """By the names of the core's arguments; those that were not given are left out.

        Raises:
            TypeError: an argument is not of the kind it should be.
        """
        texts = {
            "pipeline": self.pipeline,
            "profile": self.profile,
            "window": _numbers("window", self.window),
            "stride": _numbers("stride", self.stride),
            "select": _ranges(self.select),
            "target": _numbers("target", self.target),
            "join": self.join,
            "decode": {"cf": None, None: "none"}.get(self.decode, self.decode),
            "index": None if self.index is None else os.fspath(self.index),
            "storage": storage_text(self.storage_options),
            "cache": None if self.cache is None else os.fspath(self.cache),
            "cache_check": None if self.cache_check == "open" else self.cache_check,
        }
        return {name: text for name, text in texts.items() if text is not None}


#: Nothing was said.
PLAIN = DataOptions()


def _mapping(name: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} should be a dict by dimension, but got {given!r}")
    return given


def _numbers(name: str, given: Mapping[str, int] | None) -> str | None:
    """``{"time": 4, "lat": 64}`` becomes ``time=4,lat=64``."""
    if given is None:
        return None
    for number in _mapping(name, given).values():
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"{name} should have whole numbers, but got {number!r}")
    return ",".join(f"{dimension}={number}" for dimension, number in given.items())


def _ranges(given: Mapping[str, Range] | None) -> str | None:
    """Slices count places, ``time=0:100``; pairs are coordinates, both included, ``time=2001..2010``."""
    if given is None:
        return None
    return ",".join(
        f"{dimension}={_range(dimension, range_)}"
        for dimension, range_ in _mapping("select", given).items()
    )


def _range(dimension: str, given: Any) -> str:
    if isinstance(given, slice) and given.step in (None, 1):
        return ":".join("" if end is None else str(end) for end in (given.start, given.stop))
    if isinstance(given, tuple) and len(given) == 2:
        return f"{given[0]}..{given[1]}"
    raise TypeError(
        f"select should have a slice of places or a pair of coordinates for {dimension!r}, "
        f"but got {given!r}"
    )


def storage_text(given: Mapping[str, Any] | None) -> str | None:
    """``key=...,secret=...``, with commas and percent signs of the values as %2C and %25."""
    if given is None:
        return None
    kept = {
        name: value
        for name, value in _mapping("storage_options", given).items()
        if value is not None
    }
    return ",".join(f"{name}={_escaped(value)}" for name, value in kept.items())


def _escaped(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.replace("%", "%25").replace(",", "%2C")
