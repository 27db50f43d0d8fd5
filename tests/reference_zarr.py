"""Windows over Zarr stores, read by zarr-python and xarray: for reference_stream.py."""

from __future__ import annotations

import argparse
import itertools
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np


def is_store(path: str) -> bool:
    """Whether a directory is a Zarr store."""
    names = ("zarr.json", ".zgroup", ".zarray")
    return any((Path(path) / name).exists() for name in names)


def numbers(text: str | None) -> dict[str, int]:
    """``time=4,lat=64`` by dimension."""
    parts = [part.partition("=") for part in (text or "").split(",") if part]
    return {name: int(value) for name, _, value in parts}


class Zarr:
    """Windows over named dimensions, numbered row-major; targets beside them."""

    ragged = frozenset[str]()

    def __init__(self, path: str, options: argparse.Namespace) -> None:
        import xarray

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.data = xarray.open_zarr(
                path, mask_and_scale=options.decode == "cf", decode_times=False, chunks=None
            )
        window, stride = numbers(options.window), numbers(options.stride)
        self.target = numbers(options.target)
        found = sorted(str(name) for name in self.data.data_vars)
        cut = [name for name in found if not window or set(window) & set(self.data[name].dims)]
        wanted = [name for name in options.fields or cut if not name.startswith("target")]
        self.variables = {name: self.data[name] for name in wanted}
        lengths = {
            str(dim): size
            for array in self.variables.values()
            for dim, size in zip(array.dims, array.shape, strict=True)
        }
        self.window = {dim: window.get(dim, size) for dim, size in lengths.items()}
        self.stride = {dim: stride.get(dim, self.window[dim]) for dim in lengths}
        self.begin, ends = dict.fromkeys(lengths, 0), dict(lengths)
        for part in filter(None, (options.select or "").split(",")):
            dim, _, span = part.partition("=")
            first, _, last = span.partition(":")
            self.begin[dim] = int(first or 0)
            ends[dim] = int(last or lengths[dim])
        self.counts = {dim: self._count(dim, lengths[dim], ends[dim]) for dim in lengths}
        self.count = math.prod(self.counts.values())
        self.names = list(self.variables)
        if options.target:
            one = len(self.variables) == 1
            self.names += ["target" if one else f"target_{name}" for name in self.variables]
            options.fields = options.fields and self.names  # targets come with their variables

    def _count(self, dim: str, length: int, end: int) -> int:
        """Windows along a dimension that stay in the selection, and their targets in the array."""
        shift = self.target.get(dim, 0)
        origins = itertools.count(self.begin[dim], self.stride[dim])
        kept = 0
        for origin in origins:
            last = origin + self.window[dim]
            if last > end or last + shift > length:
                return kept
            kept += origin + shift >= 0
        raise AssertionError

    def _slices(self, number: int, shift: dict[str, int]) -> dict[str, slice]:
        places = np.unravel_index(number, tuple(self.counts.values()))
        found = {}
        for dim, place in zip(self.counts, places, strict=True):
            at = self.begin[dim] + int(place) * self.stride[dim] + shift.get(dim, 0)
            found[dim] = slice(at, at + self.window[dim])
        return found

    def value(self, name: str, number: int) -> np.ndarray:
        """A field of a sample."""
        shift: dict[str, int] = {}
        if name.startswith("target") and name not in self.variables:
            shift = self.target
            name = name.removeprefix("target_") if name != "target" else next(iter(self.variables))
        array = self.variables[name]
        slices = self._slices(number, shift)
        found: Any = array.isel({dim: slices[str(dim)] for dim in array.dims}).values
        return np.ascontiguousarray(found.astype(found.dtype.newbyteorder("=")))

    def broken(self, number: int) -> bool:
        """Whether the sample cannot be had."""
        return False
