"""`cache_check="each"`: data that is rewritten while a job runs is read as it is now."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest
import zarr
from helpers import servers
from helpers.command import COMMAND

CHUNKS, BYTES = 60, 4000


@pytest.fixture(scope="module")
def started() -> None:
    """zarr's own event loop, which stays."""
    zarr.create_array({}, shape=(1,), dtype="u1")[...] = 1


@pytest.fixture
def files(started: None, tmp_path: Path) -> Path:
    root = tmp_path / "files"
    group = zarr.create_group(root / "x.zarr", zarr_format=2)
    array = group.create_array(
        "x", shape=(CHUNKS, BYTES), chunks=(1, BYTES), dtype="u1", compressors=None
    )
    array.attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]
    array[...] = np.random.default_rng(3).integers(1, 255, (CHUNKS, BYTES), dtype=np.uint8)
    zarr.consolidate_metadata(root / "x.zarr", zarr_format=2)
    return root


class Web:
    def __init__(self, address: str, log: Path) -> None:
        self.address, self._log, self._seen = address, log, 0

    def requests(self) -> tuple[int, int]:
        """For whole chunks, and for one byte of a chunk, since this was asked last."""
        lines = self._log.read_text().splitlines()
        new, self._seen = lines[self._seen :], len(lines)
        chunks = [line.split() for line in new if "/x/" in line and ".z" not in line.split("/")[-1]]
        checks = sum(words[2] == "bytes=0-0" for words in chunks)
        return len(chunks) - checks, checks


@pytest.fixture
def web(files: Path, tmp_path: Path) -> Iterator[Web]:
    with servers.nginx(tmp_path, files) as address:
        yield Web(address, tmp_path / "access")


def chunk(files: Path, number: int) -> Path:
    return files / "x.zarr" / "x" / f"{number}.0"


def rewrite(files: Path, number: int) -> None:
    chunk(files, number).write_bytes(bytes([number]) * (BYTES - 1) + b"!")
    os.utime(chunk(files, number), (time.time() + 10,) * 2)  # nginx's versions are seconds


def epoch(web: Web, cache: Path, check: str) -> np.ndarray[Any, Any]:
    with millhead.Loader(
        f"{web.address}/x.zarr",
        4,
        window={"y": 1, "x": BYTES},
        decode=None,
        output="numpy",
        cache=cache,
        cache_check=check,
    ) as loader:
        return np.concatenate([batch["x"] for batch in loader])[:, 0]


def test_what_was_rewritten_is_fetched_again_and_nothing_else(
    files: Path, web: Web, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    first = epoch(web, cache, "each")
    assert web.requests() == (CHUNKS, 0)  # nothing is kept yet, so nothing is asked
    for number in (3, 40):
        rewrite(files, number)
    second = epoch(web, cache, "each")
    assert web.requests() == (2, CHUNKS)
    changed = [at for at in range(CHUNKS) if not np.array_equal(first[at], second[at])]
    assert changed == [3, 40]
    assert bytes(second[40]) == chunk(files, 40).read_bytes()
    np.testing.assert_array_equal(epoch(web, cache, "each"), second)
    assert web.requests() == (0, CHUNKS)


def test_what_is_trusted_is_not_asked_for(files: Path, web: Web, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = epoch(web, cache, "open")
    web.requests()
    rewrite(files, 3)  # which the metadata do not show
    np.testing.assert_array_equal(epoch(web, cache, "open"), first)
    assert web.requests() == (0, 0)


def test_between_epochs_of_one_loader(files: Path, web: Web, tmp_path: Path) -> None:
    with millhead.Loader(
        f"{web.address}/x.zarr",
        1,
        window={"y": 1, "x": BYTES},
        decode=None,
        output="numpy",
        memory="64kB",  # less than there is
        cache=tmp_path / "cache",
        cache_check="each",
    ) as loader:
        first = [batch["x"][0, 0] for batch in loader]
        rewrite(files, 30)
        second = [batch["x"][0, 0] for batch in loader]
    assert not np.array_equal(first[30], second[30])
    assert bytes(second[30]) == chunk(files, 30).read_bytes()


def test_samples_by_number_ask_too(files: Path, web: Web, tmp_path: Path) -> None:
    data = millhead.open(
        f"{web.address}/x.zarr",
        window={"y": 1, "x": BYTES},
        decode=None,
        output="numpy",
        cache=tmp_path / "cache",
        cache_check="each",
    )
    assert bytes(data[7]["x"][0]) == chunk(files, 7).read_bytes()
    rewrite(files, 7)
    assert bytes(data[7]["x"][0]) == chunk(files, 7).read_bytes()
    assert web.requests() == (2, 1)


def test_what_is_gone_is_not_read_from_the_cache(files: Path, web: Web, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    epoch(web, cache, "each")
    chunk(files, 9).unlink()
    assert not epoch(web, cache, "each")[9].any()  # a chunk that is not there is the fill value


def test_bad_settings_are_said(files: Path, web: Web, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cache_check is open or each, not 'never'"):
        epoch(web, tmp_path / "cache", "never")
    done = subprocess.run(
        [COMMAND, "read", files / "x.zarr", f"--window=y=1,x={BYTES}"]
        + ["--cache", f"{tmp_path}/cache", "--cache-check", "each"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0 and "for URLs" in done.stderr
