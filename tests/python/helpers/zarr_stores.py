"""Zarr stores of random kinds, written by zarr-python, and their windows as it reads them."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import zarr

warnings.filterwarnings("ignore", category=UserWarning, module="zarr")
warnings.filterwarnings("ignore", message=".*(onsolidated|umcodecs|Zarr format 3).*")

# zarr-python keeps an event loop from its first use on: here, and not in some test that then
# seems to leave descriptors behind.
zarr.create_array({}, shape=1, dtype="i1")[:]

TYPES = ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
NAMES = ["time", "level", "lat", "lon"]


def values(draw: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Smooth enough to be compressed, with every bit used now and then."""
    small = draw.integers(0, 100, shape)
    if dtype.kind == "b":
        return small > 50
    if dtype.kind in "iu":
        wild = np.frombuffer(draw.bytes(small.size * dtype.itemsize), dtype).reshape(shape)
        return np.where(small < 90, small.astype(dtype), wild).astype(dtype)
    if dtype.kind in "mM":
        return small.astype("i8").view(dtype)
    return (small * 0.37 + (1j if dtype.kind == "c" else 0)).astype(dtype)


def _blosc(draw: np.random.Generator) -> dict[str, Any]:
    return {
        "cname": str(draw.choice(["lz4", "lz4hc", "blosclz", "zlib", "zstd"])),
        "clevel": int(draw.integers(1, 8)),
        "shuffle": int(draw.integers(0, 3)),
    }


def _codecs_v2(draw: np.random.Generator, dtype: np.dtype) -> dict[str, Any]:
    blosc = _blosc(draw)
    compressors = [
        None,
        numcodecs.Blosc(**blosc),
        numcodecs.Zstd(3),
        numcodecs.GZip(3),
        numcodecs.Zlib(3),
        numcodecs.LZ4(),
    ]
    filters: list[Any] = [numcodecs.Shuffle(dtype.itemsize), numcodecs.CRC32C()]
    if dtype.kind in "iu" and dtype.byteorder != ">":
        filters.append(numcodecs.Delta(dtype.str))
    if dtype.str == "<f4":
        filters.append(numcodecs.FixedScaleOffset(offset=1, scale=100, dtype="<f4", astype="<i2"))
    chosen = filters[int(draw.integers(len(filters)))] if draw.random() < 0.5 else None
    return {
        "compressors": compressors[int(draw.integers(len(compressors)))],
        "filters": None if chosen is None else [chosen],
        "order": str(draw.choice(["C", "F"])),
        "chunk_key_encoding": {"name": "v2", "separator": str(draw.choice([".", "/"]))},
    }


def _codecs_v3(draw: np.random.Generator, dims: int) -> dict[str, Any]:
    blosc = _blosc(draw)
    blosc["shuffle"] = ["noshuffle", "shuffle", "bitshuffle"][blosc["shuffle"]]
    compressors: list[Any] = [
        None,
        zarr.codecs.BloscCodec(**blosc),
        zarr.codecs.ZstdCodec(level=3),
        zarr.codecs.GzipCodec(level=3),
        [zarr.codecs.ZstdCodec(level=1), zarr.codecs.Crc32cCodec()],
    ]
    order = [int(number) for number in draw.permutation(dims)]
    return {
        "compressors": compressors[int(draw.integers(len(compressors)))],
        "filters": [zarr.codecs.TransposeCodec(order=order)] if draw.random() < 0.3 else None,
        "chunk_key_encoding": {
            "name": str(draw.choice(["default", "v2"])),
            "separator": str(draw.choice([".", "/"])),
        },
    }


def random_array(root: zarr.Group, name: str, draw: np.random.Generator) -> zarr.Array:
    """An array of a random kind; some chunks are missing."""
    dtype = np.dtype(str(draw.choice(TYPES)))
    dtype = dtype.newbyteorder(str(draw.choice(["<", ">"])))
    dims = int(draw.integers(1, 5))
    shape = tuple(int(n) for n in draw.integers(1, 14, dims))
    chunks = tuple(int(draw.integers(1, n + 3)) for n in shape)
    kind: dict[str, Any] = {}
    if root.metadata.zarr_format == 2:
        kind |= _codecs_v2(draw, dtype)
    else:
        kind |= _codecs_v3(draw, dims)
        if draw.random() < 0.4:
            kind["shards"] = tuple(int(c * draw.integers(1, 4)) for c in chunks)
            kind["filters"] = None if kind["filters"] is None else kind["filters"]
        kind["dimension_names"] = NAMES[:dims]
    array = root.create_array(
        name,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        fill_value=values(draw, dtype, ())[()],
        **kind,
    )
    if root.metadata.zarr_format == 2:
        array.attrs["_ARRAY_DIMENSIONS"] = NAMES[:dims]
    data = values(draw, dtype, shape)
    for corner in itertools.product(*(range(0, n, c) for n, c in zip(shape, chunks, strict=True))):
        part = tuple(slice(at, at + c) for at, c in zip(corner, chunks, strict=True))
        if draw.random() < 0.85:
            array[part] = data[part]
    return array


def random_store(path: Path, seed: int) -> str:
    """A group with one array, ``x``."""
    draw = np.random.default_rng(seed)
    root = zarr.create_group(path, zarr_format=int(draw.integers(2, 4)), overwrite=True)
    random_array(root, "x", draw)
    if draw.random() < 0.5:
        zarr.consolidate_metadata(path)
    return str(path)


def windows(
    shape: tuple[int, ...], window: tuple[int, ...], stride: tuple[int, ...]
) -> Iterator[tuple[slice, ...]]:
    """All of them, in order."""
    starts = [range(0, n - w + 1, s) for n, w, s in zip(shape, window, stride, strict=True)]
    for origin in itertools.product(*starts):
        yield tuple(slice(at, at + w) for at, w in zip(origin, window, strict=True))
