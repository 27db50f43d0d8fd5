"""What a full cache keeps, counted, beside what other policies would have had.

The traces are what a loader reads in four epochs without a cache, for the ways data sets are read: files at random and
in order, windows over chunks in order and by blocks, with memory for less than they share. The policies are replayed
on them; the table in docs/remote.md is made of these figures (`python tests/python/remote/test_eviction.py`).
"""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest
import zarr
from helpers.fault_server import Server, fault_server

EPOCHS = 4
ENTRY, HEADER = 400, 80  # bytes of an entry: data, and what the cache writes before it
Trace = list[str]


# ---- the policies, replayed ----------------------------------------------------------------------


def next_use(trace: Trace, room: int) -> int:
    """Belady's: what comes last goes, the new one too."""
    come: dict[str, list[int]] = {}
    for at, key in enumerate(trace):
        come.setdefault(key, []).append(at)
    kept: set[str] = set()
    hits = 0

    def again(key: str) -> float:
        return come[key][0] if come[key] else float("inf")

    for key in trace:
        come[key].pop(0)
        hits += key in kept
        kept.add(key)
        if len(kept) > room:
            kept.remove(max(kept, key=again))
    return hits


def least_recently_used(trace: Trace, room: int, first_in: bool = False) -> int:
    kept: OrderedDict[str, None] = OrderedDict()
    hits = 0
    for key in trace:
        if key in kept:
            hits += 1
            if not first_in:
                kept.move_to_end(key)
            continue
        kept[key] = None
        if len(kept) > room:
            kept.popitem(last=False)
    return hits


def first_in_first_out(trace: Trace, room: int) -> int:
    return least_recently_used(trace, room, first_in=True)


def never_evict(trace: Trace, room: int) -> int:
    kept: set[str] = set()
    hits = 0
    for key in trace:
        hits += key in kept
        if len(kept) < room:
            kept.add(key)
    return hits


OTHERS = [least_recently_used, first_in_first_out, never_evict]


# ---- the data and how it is read -----------------------------------------------------------------


def store(root: Path, shape: tuple[int, ...], chunks: tuple[int, ...]) -> dict[str, bytes]:
    group = zarr.create_group(root / "x.zarr", zarr_format=2)
    array = group.create_array("x", shape=shape, chunks=chunks, dtype="u1", compressors=None)
    array.attrs["_ARRAY_DIMENSIONS"] = list("tyx")[-len(shape) :]
    array[...] = np.random.default_rng(3).integers(0, 255, shape, dtype=np.uint8)
    zarr.consolidate_metadata(root / "x.zarr", zarr_format=2)
    files = [path for path in root.rglob("*") if path.is_file()]
    return {f"/{path.relative_to(root)}": path.read_bytes() for path in files}


PATCHES: dict[str, Any] = {
    "window": {"t": 1, "y": 32, "x": 32},
    "stride": {"y": 16, "x": 16},
}

#: How data is read: the data, and the loader's settings.
PATTERNS: dict[str, tuple[str, dict[str, Any]]] = {
    "files at random": ("/x.npy", {"shuffle": True}),
    "files in order": ("/x.npy", {}),
    "patches in order": ("/x.zarr", {**PATCHES, "memory": "100kB"}),
    "patches by blocks": ("/x.zarr", {**PATCHES, "memory": "300kB", "shuffle": "blocks"}),
}


def data(root: Path) -> dict[str, bytes]:
    file = io.BytesIO()
    np.save(file, np.random.default_rng(2).integers(0, 255, (300, ENTRY), dtype=np.uint8))
    return {"/x.npy": file.getvalue(), **store(root, (16, 160, 160), (1, 20, 20))}


def read(server: Server, pattern: str, cache: str | None = None) -> tuple[Trace, dict[str, Any]]:
    """What was read, and the loader's counts."""
    path, settings = PATTERNS[pattern]
    before, samples = len(server.requests), []
    with millhead.Loader(
        server.address + path,
        4,
        fields=["x", "_index"],
        output="numpy",
        cache=cache,
        in_flight=1,
        threads=1,
        **settings,
    ) as loader:
        for _ in range(EPOCHS):
            for batch in loader:
                samples += [str(number) for number in batch["_index"]]
    chunks = [name for name, _ in server.requests[before:] if name[-1].isdigit()]
    return chunks or samples, dict(loader.stats()["cache"])


def shares(server: Server, pattern: str, part: float, cache: Path) -> dict[str, float]:
    """Hits of all reads, for each policy, where that part of the data fits."""
    trace, _ = read(server, pattern)
    room = round(len(set(trace)) * part)
    stats = read(server, pattern, f"{cache}:{room * (ENTRY + HEADER) + HEADER}B")[1]
    found = {policy.__name__: policy(trace, room) / len(trace) for policy in [next_use, *OTHERS]}
    return {**found, "millhead": stats["hits"] / (stats["hits"] + stats["misses"])}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return data(tmp_path_factory.mktemp("data"))


@pytest.mark.limit(120)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_is_kept_is_as_good_as_next_use_where_an_epoch_reads_once(
    pattern: str, objects: dict[str, bytes], tmp_path: Path
) -> None:
    with fault_server(objects) as server:
        hits = shares(server, pattern, 0.5, tmp_path / "cache")
    assert hits["millhead"] > hits["never_evict"] - 0.03  # more is what it reads ahead
    assert hits["millhead"] > max(hits["least_recently_used"], hits["first_in_first_out"]) + 0.1
    if pattern.startswith("files"):
        assert hits["never_evict"] == hits["next_use"]
    else:  # memory before the cache: what it keeps is what comes soonest
        assert hits["millhead"] > hits["next_use"] - 0.2


def age(entries: list[Path]) -> None:
    for path in entries:
        os.utime(path, (time.time() - 25 * 3600,) * 2)


def test_what_nobody_read_for_a_day_makes_room(objects: dict[str, bytes], tmp_path: Path) -> None:
    cache = f"{tmp_path}/cache:{150 * (ENTRY + HEADER)}B"

    def hits_of(address: str, subset: range) -> int:
        with millhead.Loader(
            f"{address}/x.npy", 4, subset=subset, output="numpy", cache=cache
        ) as loader:
            for _ in range(3):
                assert len(list(loader)) == 38
        return int(loader.stats()["cache"]["hits"])

    with fault_server(objects) as server:
        hits_of(server.address, range(150))
        entries = [path for path in Path(tmp_path, "cache").rglob("*") if len(path.name) == 32]
        assert len(entries) == 150
        age(entries)
        hits_of(server.address, range(150))
        assert all(path.stat().st_mtime > time.time() - 3600 for path in entries)
        age(entries[::2])
        hits = hits_of(server.address, range(150, 300))
        assert 2 * 70 <= hits <= 3 * 75
        assert [path.exists() for path in entries] == [False, True] * 75


if __name__ == "__main__":
    for name in PATTERNS:
        for half in (0.25, 0.5, 0.75):
            with tempfile.TemporaryDirectory() as root, fault_server(data(Path(root))) as web:
                row = shares(web, name, half, Path(root) / "cache")
            print(
                name, f"{half:.0%}", *(f"{key} {100 * value:.0f} %" for key, value in row.items())
            )
