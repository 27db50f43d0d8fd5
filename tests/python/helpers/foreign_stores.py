"""Writes ``foreign_stores.zip``: small Zarr stores by tensorstore and zarrs, and what those read.

Both are too large to be installed for a test, so what they wrote is kept. Made with

    pip install tensorstore==0.1.86 zarrs==0.2.3 zarr==3.1.6
    python tests/python/helpers/foreign_stores.py tests/python/native/foreign_stores.zip

For each store there is its directory, NAME/, and all its values as its writer reads them, NAME.npy;
bfloat16, which NumPy lacks, as uint16.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

NAMES = ["time", "level", "lat", "lon"]
TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
TYPES += ["float16", "float32", "float64", "complex64", "complex128"]
COUNT = 20


def drawn(draw: np.random.Generator, values: list[Any]) -> Any:
    return values[int(draw.integers(len(values)))]


def contents(draw: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    small = draw.integers(0, 100, shape)
    if dtype.kind == "b":
        return small > 50
    return (small * (0.37 if dtype.kind in "fcV" else 1)).astype(dtype)


def compressor(draw: np.random.Generator) -> list[dict[str, Any]]:
    blosc = {
        "cname": drawn(draw, ["lz4", "lz4hc", "blosclz", "zlib", "zstd"]),
        "clevel": 5,
        "shuffle": drawn(draw, ["noshuffle", "shuffle", "bitshuffle"]),
        "blocksize": 0,
    }
    chosen = drawn(draw, [[], ["blosc"], ["gzip"], ["zstd"], ["crc32c"], ["zstd", "crc32c"]])
    settings: dict[str, Any] = {"blosc": blosc, "gzip": {"level": 5}, "zstd": {"level": 3}}
    return [
        {"name": name, "configuration": settings[name]} if name in settings else {"name": name}
        for name in chosen
    ]


def inner_codecs(draw: np.random.Generator, dims: int, size: int) -> list[dict[str, Any]]:
    codecs: list[dict[str, Any]] = []
    if draw.random() < 0.4:
        order = [int(n) for n in draw.permutation(dims)]
        codecs.append({"name": "transpose", "configuration": {"order": order}})
    endian = drawn(draw, ["little", "big"])
    codecs.append(
        {"name": "bytes", "configuration": {"endian": endian}} if size > 1 else {"name": "bytes"}
    )
    return codecs + compressor(draw)


def shape_of(draw: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    dims = int(draw.integers(1, 5))
    shape = tuple(int(n) for n in draw.integers(1, 12, dims))
    return shape, tuple(int(draw.integers(1, n + 3)) for n in shape)


def corners(shape: tuple[int, ...], chunks: tuple[int, ...]) -> Any:
    for corner in itertools.product(*(range(0, n, c) for n, c in zip(shape, chunks, strict=True))):
        yield tuple(
            slice(at, min(at + c, n)) for at, c, n in zip(corner, chunks, shape, strict=True)
        )


def write_parts(array: Any, draw: np.random.Generator, data: np.ndarray, chunks: Any) -> None:
    """All chunks but some."""
    for part in corners(data.shape, chunks):
        if draw.random() < 0.85:
            array[part] = data[part]


def tensorstore_3(path: Path, draw: np.random.Generator) -> np.ndarray:
    import tensorstore

    name = drawn(draw, [*TYPES, "bfloat16"])
    dtype = tensorstore.dtype(name).numpy_dtype
    shape, chunks = shape_of(draw)
    grid, codecs = chunks, inner_codecs(draw, len(shape), dtype.itemsize)
    if draw.random() < 0.5:
        grid = tuple(c * int(draw.integers(1, 4)) for c in chunks)
        checked = [{"name": "crc32c"}] if draw.random() < 0.7 else []
        sharding = {
            "chunk_shape": chunks,
            "codecs": codecs,
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, *checked],
            "index_location": drawn(draw, ["start", "end"]),
        }
        codecs = [{"name": "sharding_indexed", "configuration": sharding}]
    keys = {
        "name": drawn(draw, ["default", "v2"]),
        "configuration": {"separator": drawn(draw, [".", "/"])},
    }
    metadata = {
        "shape": shape,
        "data_type": name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": grid}},
        "chunk_key_encoding": keys,
        "codecs": codecs,
        "dimension_names": NAMES[: len(shape)],
    }
    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": str(path)},
        "metadata": metadata,
    }
    array = tensorstore.open(spec, create=True).result()
    write_parts(array, draw, contents(draw, dtype, shape), grid)
    read = array.read().result()
    return read.view("u2") if name == "bfloat16" else read


def tensorstore_2(path: Path, draw: np.random.Generator) -> np.ndarray:
    import tensorstore

    dtype = np.dtype(drawn(draw, TYPES)).newbyteorder(drawn(draw, ["<", ">"]))
    shape, chunks = shape_of(draw)
    blosc = {
        "id": "blosc",
        "cname": "zstd",
        "clevel": 3,
        "shuffle": int(draw.integers(0, 3)),
        "blocksize": 0,
    }
    compressors = [
        None,
        {"id": "zlib", "level": 3},
        {"id": "gzip", "level": 3},
        {"id": "zstd", "level": 3},
        blosc,
    ]
    metadata = {
        "shape": shape,
        "chunks": chunks,
        "dtype": dtype.str,
        "compressor": drawn(draw, compressors),
        "order": drawn(draw, ["C", "F"]) if len(shape) > 1 else "C",
        "dimension_separator": drawn(draw, [".", "/"]),
        "fill_value": None,
        "filters": None,
    }
    spec = {
        "driver": "zarr",
        "kvstore": {"driver": "file", "path": str(path)},
        "metadata": metadata,
    }
    array = tensorstore.open(spec, create=True).result()
    write_parts(array, draw, contents(draw, dtype, shape), chunks)
    return array.read().result()


def zarrs_3(path: Path, draw: np.random.Generator) -> np.ndarray:
    import zarr
    import zarrs  # noqa: F401  (registers its pipeline)

    zarr.config.set(
        {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}
    )
    dtype = np.dtype(drawn(draw, TYPES))
    shape, chunks = shape_of(draw)
    shards = tuple(c * int(draw.integers(1, 4)) for c in chunks) if draw.random() < 0.5 else None
    blosc = zarr.codecs.BloscCodec(
        cname="lz4", clevel=5, shuffle="bitshuffle", typesize=dtype.itemsize
    )
    compressors: list[Any] = [
        None,
        blosc,
        zarr.codecs.ZstdCodec(level=3),
        zarr.codecs.GzipCodec(level=3),
    ]
    compressors.append([zarr.codecs.ZstdCodec(level=1), zarr.codecs.Crc32cCodec()])
    array = zarr.create_array(
        path,
        shape=shape,
        chunks=chunks,
        shards=shards,
        dtype=dtype,
        compressors=drawn(draw, compressors),
        fill_value=contents(draw, dtype, ())[()],
        dimension_names=NAMES[: len(shape)],
    )
    write_parts(array, draw, contents(draw, dtype, shape), shards or chunks)
    return np.asarray(zarr.open_array(path, mode="r")[...])


def main() -> None:
    writers = {"tensorstore3": tensorstore_3, "tensorstore2": tensorstore_2, "zarrs3": zarrs_3}
    with tempfile.TemporaryDirectory() as scratch:
        for (name, write), number in itertools.product(writers.items(), range(COUNT)):
            path = Path(scratch) / f"{name}-{number:02}"
            read = np.asarray(write(path, np.random.default_rng(number)))
            np.save(path.with_suffix(".npy"), read.astype(read.dtype.newbyteorder("=")))
        with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(Path(scratch).rglob("*")):
                if file.is_file():
                    info = zipfile.ZipInfo(str(file.relative_to(scratch)), (2020, 1, 1, 0, 0, 0))
                    archive.writestr(info, file.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
