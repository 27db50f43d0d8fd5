"""`millhead plan chunks STORE` says what `millhead read` then counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

zarr = pytest.importorskip("zarr")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "helpers"))

import zarr_stores  # noqa: F401  (zarr's event loop begins there)

COMMAND = Path(sys.executable).with_name("millhead")
DIMS = ("time", "lat", "lon")
DATA = np.arange(24 * 60 * 80, dtype="f4").reshape(24, 60, 80)
WINDOW = ["--window", "time=4,lat=16,lon=16", "--stride", "time=2,lat=8,lon=16"]


def run(*arguments: str) -> dict[str, Any]:
    command = [COMMAND, *arguments, "--json"]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def store(path: Path, chunks: tuple[int, ...]) -> str:
    root = zarr.create_group(path)
    for name in ("u", "v"):
        array = root.create_array(
            name, shape=DATA.shape, chunks=chunks, dtype="f4", dimension_names=DIMS
        )
        array[...] = DATA + 1
    return str(path)


def decoded(path: str, shuffle: str) -> int:
    """Chunks decoded in an epoch, as counted by the loader."""
    counts = run("read", path, *WINDOW, f"--shuffle={shuffle}", "--memory", "100MB")
    return int(counts["units"]["decoded"])


@pytest.mark.parametrize("shuffle", ["false", "true", "blocks", "torch"])
def test_with_enough_memory_the_plan_is_what_is_read(tmp_path: Path, shuffle: str) -> None:
    path = store(tmp_path / "a.zarr", (5, 20, 16))
    plan = run("plan", "chunks", path, *WINDOW, f"--shuffle={shuffle}", "--memory", "100MB")
    assert plan["samples"] == 11 * 6 * 5
    assert plan["useful_bytes"] == 2 * 4 * 4 * 16 * 16
    assert plan["stored"]["chunk"] == {"time": 5, "lat": 20, "lon": 16}
    assert plan["stored"]["unique_bytes"] == 2 * 5 * 3 * 5 * (5 * 20 * 16 * 4)
    reads, counted = plan["stored"]["reads"], decoded(path, shuffle)
    # what one block leaves in memory the next one may still find: blocks' figure is the most
    assert reads == counted if shuffle != "blocks" else counted <= reads <= 1.11 * counted * 1.5


@pytest.mark.parametrize("shuffle", ["false", "blocks"])
def test_a_store_of_the_best_chunks_is_read_as_was_promised(tmp_path: Path, shuffle: str) -> None:
    path = store(tmp_path / "a.zarr", (24, 7, 9))
    arguments = (*WINDOW, f"--shuffle={shuffle}", "--memory", "100MB")
    plan = run("plan", "chunks", path, *arguments)
    best = plan["rows"][plan["best"]]
    again = store(tmp_path / "b.zarr", tuple(best["chunk"][dim] for dim in DIMS))
    there = run("plan", "chunks", again, *arguments)
    assert there["stored"] == best
    assert there["best"] == -1
    assert decoded(again, shuffle) <= best["reads"] < plan["stored"]["reads"]


def test_too_little_memory_costs_more_and_never_less_than_was_said(tmp_path: Path) -> None:
    path = store(tmp_path / "a.zarr", (5, 20, 16))
    little = ("--shuffle=true", "--memory", "900kB")
    plan = run("plan", "chunks", path, *WINDOW, *little)["stored"]
    counted = run("read", path, *WINDOW, *little)["units"]["decoded"]
    assert 150 < counted <= plan["reads"]
    assert plan["memory_bytes"] > 900_000


def test_a_sample_alone_is_counted_chunk_by_chunk(tmp_path: Path) -> None:
    path = store(tmp_path / "a.zarr", (5, 20, 16))
    plan = run("plan", "chunks", path, *WINDOW)
    chunks = []
    for time in range(0, 21, 2):
        for lat in range(0, 45, 8):
            along = (time + 3) // 5 - time // 5 + 1, (lat + 15) // 20 - lat // 20 + 1
            chunks += [2 * along[0] * along[1]] * 5
    assert plan["stored"]["sample_chunks"] == pytest.approx(np.mean(chunks), rel=1e-5)
