"""`millhead read --hash` of Zarr stores against zarr-python and xarray (tests/reference_zarr.py)."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

zarr = pytest.importorskip("zarr")
pytest.importorskip("xarray")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

import zarr_stores

COMMAND = os.path.join(sysconfig.get_path("scripts"), "millhead")
REFERENCE = Path(__file__).resolve().parents[2] / "reference_stream.py"
WINDOW = ["--window", "time=3,lat=7,lon=9"]
SHARED = ["--batch-size", 5, "--seed", 77]


def run(*command: object) -> dict[str, str]:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    if "made without xxhash" in done.stderr:
        pytest.skip("millhead was built without xxhash")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    return {name: said[name] for name in ("stream_xxh3", "samples_xxh3")}


def ours(*command: object) -> dict[str, str]:
    return run(COMMAND, "read", *command, "--hash", "--json")


@pytest.fixture(scope="module", params=[2, 3, "sharded"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two variables over time, lat, lon; a mask over lat, lon; packed numbers with CF attributes."""
    path = tmp_path_factory.mktemp("reference") / "w.zarr"
    draw = np.random.default_rng(9)
    version = 2 if request.param == 2 else 3
    kinds = {"shards": (8, 16, 24)} if request.param == "sharded" else {}
    root = zarr.create_group(path, zarr_format=version)

    def add(name: str, data: np.ndarray, dims: list[str], **kind: object) -> None:
        named = {"dimension_names": dims} if version == 3 else {}
        array = root.create_array(name, data=data, **named, **kind)
        if version == 2:
            array.attrs["_ARRAY_DIMENSIONS"] = dims
        if data.dtype.kind == "i":
            array.attrs.update({"scale_factor": 0.01, "add_offset": 5.0})

    dims = ["time", "lat", "lon"]
    add("t", draw.random((17, 23, 31), np.float32), dims, chunks=(4, 8, 12), **kinds)
    packed = draw.integers(-99, 99, (17, 23, 31), np.int16)
    add("p", packed, dims, chunks=(2, 23, 10), fill_value=-99)
    # of version 2 xarray would take the fill value, False, for a missing value
    none = {"fill_value": None} if version == 2 else {}
    add("mask", draw.random((23, 31)) < 0.5, dims[1:], chunks=(10, 10), **none)
    zarr.consolidate_metadata(path)
    return str(path)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--decode", "none"],
        ["--shuffle"],
        ["--shuffle=torch", "--fields", "t"],
        ["--stride", "time=2,lat=3,lon=5", "--shuffle", "--limit-batches", "30"],
        ["--target", "time=+2", "--fields", "t", "--shuffle"],
        ["--target", "time=2", "--select", "lat=3:20"],
        ["--fields", "mask,t", "--world", "3", "--rank", "2", "--uneven"],
        ["--shuffle", "blocks"],
        ["--shuffle", "blocks", "--stride", "time=1,lat=4,lon=5", "--world", "2", "--rank", "1"],
        ["--pipeline", "t: normalize mean=0.5 std=0.3 | cast f16; p: nan -1 | cast i32"],
        ["--pipeline", "normalize mean=0.4 std=3 | nan 0.5", "--fields", "p,t", "--shuffle"],
        ["--pipeline", "p: normalize mean=7 std=3", "--decode", "none"],
    ],
    ids=" ".join,
)
def test_the_stream_is_that_of_the_reference(store: str, options: list[str]) -> None:
    settings = [store, *WINDOW, *SHARED, *options]
    expected = run(sys.executable, "-W", "ignore", REFERENCE, *settings)
    assert ours(*settings) == expected


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Four to be joined along time, in different chunks there; the mask is the first one's."""
    folder = tmp_path_factory.mktemp("joined")
    draw = np.random.default_rng(10)
    paths = []
    for number, (length, chunk) in enumerate([(7, 3), (1, 1), (12, 4), (5, 8)]):
        paths.append(str(folder / f"{number}.zarr"))
        root = zarr.create_group(paths[-1])
        t = draw.random((length, 23, 31), np.float32)
        p = draw.integers(-99, 99, (length, 23, 31), np.int16)
        dims = ["time", "lat", "lon"]
        root.create_array("t", data=t, chunks=(chunk, 8, 12), dimension_names=dims)
        array = root.create_array("p", data=p, chunks=(2, 23, 10), dimension_names=dims)
        array.attrs.update({"scale_factor": 0.01 * (number + 1), "add_offset": 5.0})
        root.create_array("mask", data=draw.random((23, 31)) < 0.5, dimension_names=dims[1:])
    return paths


JOINED = [
    [],
    ["--shuffle"],
    ["--shuffle=torch", "--decode", "none"],
    ["--shuffle=blocks", "--stride", "time=1,lat=7,lon=9"],
    ["--shuffle=blocks", "--stride", "time=2,lat=3,lon=5", "--world", "3", "--rank", "1"],
    ["--target", "time=+9", "--fields", "t", "--shuffle=blocks", "--stride", "time=1"],
    ["--join", "time", "--select", "time=4:22", "--uneven", "--world", "2", "--rank", "1"],
    ["--start", "40", "--shuffle"],
    ["--pipeline", "t,p: normalize mean=1 std=2; mask: cast u8", "--drop-last"],
]


@pytest.mark.parametrize("options", JOINED, ids=" ".join)
def test_stores_that_are_joined_stream_as_the_reference(
    stores: list[str], options: list[str]
) -> None:
    settings = [*stores, *WINDOW, *SHARED, *options]
    expected = run(sys.executable, "-W", "ignore", REFERENCE, *settings)
    assert ours(*settings) == expected


def test_ranks_and_parts_of_joined_stores_add_up(stores: list[str]) -> None:
    settings = [*stores, *WINDOW, *SHARED, "--stride", "time=1,lat=5,lon=5", "--shuffle=blocks"]
    plain = ours(*settings)
    for threads, memory in itertools.product([0, 2, 8], ["500KB", "64MB"]):
        assert ours(*settings, "--threads", threads, "--memory", memory) == plain
    whole = int(plain["samples_xxh3"], 16)
    for world in (2, 5):
        parts = [
            ours(*settings, "--uneven", "--world", world, "--rank", rank) for rank in range(world)
        ]
        assert sum(int(part["samples_xxh3"], 16) for part in parts) % 2**64 == whole
    head = ours(*settings, "--limit-batches", 9)["samples_xxh3"]
    rest = ours(*settings, "--start", 45)["samples_xxh3"]
    assert (int(head, 16) + int(rest, 16)) % 2**64 == whole


@pytest.mark.parametrize("shuffle", ["--shuffle", "--shuffle=blocks"])
def test_the_stream_depends_on_nothing_but_the_order(store: str, shuffle: str) -> None:
    settings = [store, *WINDOW, *SHARED, "--stride", "time=2,lat=5,lon=5", shuffle]
    plain = ours(*settings, "--threads", 1)
    for threads, prefetch in itertools.product([0, 1, 2, 8], [1, 5]):
        assert ours(*settings, "--threads", threads, "--prefetch", prefetch) == plain
    for memory, in_flight in (("400KB", 1), ("1MB", 64)):
        assert ours(*settings, "--memory", memory, "--in-flight", in_flight) == plain


@pytest.mark.parametrize("shuffle", ["--shuffle", "--shuffle=blocks"])
def test_ranks_and_parts_add_up_to_the_whole(store: str, shuffle: str) -> None:
    settings = [store, *WINDOW, *SHARED, "--stride", "time=2,lat=5,lon=5", shuffle]
    whole = int(ours(*settings)["samples_xxh3"], 16)
    for world in (2, 3, 5, 8) if shuffle == "--shuffle" else (2, 8):
        parts = [
            ours(*settings, "--uneven", "--world", world, "--rank", rank) for rank in range(world)
        ]
        total = sum(int(part["samples_xxh3"], 16) for part in parts)
        assert total % 2**64 == whole, world
    head = ours(*settings, "--limit-batches", 4)["samples_xxh3"]
    rest = ours(*settings, "--start", 20)["samples_xxh3"]
    assert (int(head, 16) + int(rest, 16)) % 2**64 == whole


assert zarr_stores.TYPES  # its import starts zarr's event loop
