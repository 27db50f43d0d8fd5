"""Windows over Zarr stores, read by zarr-python and xarray: for reference_stream.py."""

from __future__ import annotations

import argparse
import itertools
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import reference_cells as cells
import reference_steps as steps


def is_store(path: str) -> bool:
    """Whether a directory is a Zarr store."""
    names = ("zarr.json", ".zgroup", ".zarray")
    return any((Path(path) / name).exists() for name in names)


def numbers(text: str | None) -> dict[str, int]:
    """``time=4,lat=64`` by dimension."""
    parts = [part.partition("=") for part in (text or "").split(",") if part]
    return {name: int(value) for name, _, value in parts}


def opened(path: str, decode: str) -> Any:
    """A store as xarray has it."""
    import xarray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xarray.open_zarr(
            path, mask_and_scale=decode == "cf", decode_times=False, chunks=None
        )


def varies(stores: list[Any], dim: str) -> bool:
    """Whether its length, or its coordinate, is another in some store."""
    if len({store.sizes[dim] for store in stores}) > 1:
        return True
    return all(dim in store.coords for store in stores) and any(
        not store[dim].identical(stores[0][dim]) for store in stores
    )


def joined_along(stores: list[Any], names: list[str]) -> str:
    """The first dimension that varies, else the first that has no coordinate."""
    dims = list(dict.fromkeys(str(dim) for name in names for dim in stores[0][name].dims))
    without = [dim for dim in dims if dim not in stores[0].coords]
    return next((dim for dim in dims if varies(stores, dim)), *without[:1])


def joined(stores: list[Any], name: str, dim: str) -> Any:
    """A variable of all stores; of the first one where it lacks the dimension."""
    import xarray

    parts = [store[name].drop_vars(store[name].coords) for store in stores]
    if len(parts) == 1 or dim not in parts[0].dims:
        return parts[0]
    return xarray.concat(parts, dim)


def edges(lengths: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where chunks begin and how long they are stored, of arrays behind each other."""
    found, begin = [], 0
    for length, chunk in lengths:
        found += [(begin + at, chunk) for at in range(0, length, chunk)]
        begin += length
    return found


class Zarr:
    """Windows over named dimensions, numbered row-major; targets beside them."""

    ragged = frozenset[str]()

    def __init__(self, paths: list[str], options: argparse.Namespace) -> None:
        self.paths = paths
        stores = [opened(path, options.decode) for path in paths]
        self.data = stores[0]
        window, stride = numbers(options.window), numbers(options.stride)
        self.target = numbers(options.target)
        found = sorted(str(name) for name in self.data.data_vars)
        cut = [name for name in found if not window or set(window) & set(self.data[name].dims)]
        wanted = [name for name in options.fields or cut if not name.startswith("target")]
        self.dim = options.join or (joined_along(stores, wanted) if len(paths) > 1 else "")
        self.steps = steps.of(options.pipeline, wanted)
        self.variables = {name: joined(stores, name, self.dim) for name in wanted}
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
        self.parts = 0  # of "blocks"
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
        found = {}
        for dim, origin in self._origin(number).items():
            at = origin + shift.get(dim, 0)
            found[dim] = slice(at, at + self.window[dim])
        return found

    def _first(self, dim: str) -> int:
        """The first origin whose target is inside."""
        back, stride = max(-self.target.get(dim, 0), 0), self.stride[dim]
        return self.begin[dim] + -(-back // stride) * stride

    def _origin(self, number: int) -> dict[str, int]:
        places = np.unravel_index(number, tuple(self.counts.values()))
        return {
            dim: self._first(dim) + int(place) * self.stride[dim]
            for dim, place in zip(self.counts, places, strict=True)
        }

    def _grid(self, name: str) -> cells.Grid:
        """How a variable is cut into chunks."""
        import zarr

        arrays: list[Any] = [zarr.open_group(path, mode="r")[name] for path in self.paths]
        if self.dim not in self.variables[name].dims:
            arrays = arrays[:1]
        found = {
            str(dim): edges(
                [(array.shape[at], array.chunks[at]) for array in arrays][
                    : None if dim == self.dim else 1
                ]
            )
            for at, dim in enumerate(self.variables[name].dims)
        }
        return cells.Grid(arrays[0].dtype.itemsize, found)

    def blocks(self) -> list[list[int]]:
        """The samples that begin in each cell."""
        windows = {
            dim: cells.Windows(
                [self._first(dim) + n * self.stride[dim] for n in range(count)],
                self.window[dim],
                self.target.get(dim, 0),
            )
            for dim, count in self.counts.items()
        }
        grids = [self._grid(name) for name in self.variables]
        cell, self.parts = cells.Search(windows, grids, bool(self.target)).best()
        return cells.blocks(windows, cell, self._origin, self.count)

    def value(self, name: str, number: int) -> np.ndarray:
        """A field of a sample."""
        shift: dict[str, int] = {}
        if name.startswith("target") and name not in self.variables:
            shift = self.target
            name = name.removeprefix("target_") if name != "target" else next(iter(self.variables))
        array = self.variables[name]
        slices = self._slices(number, shift)
        found: Any = array.isel({dim: slices[str(dim)] for dim in array.dims}).values
        plain = np.ascontiguousarray(found.astype(found.dtype.newbyteorder("=")))
        return steps.applied(plain, self.steps[name])

    def broken(self, number: int) -> bool:
        """Whether the sample cannot be had."""
        return False
