"""The cache on local disk: what is kept, what a kill or a flipped bit leaves, who may use it."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest
from helpers.command import COMMAND
from helpers.fault_server import Server, fault_server

SAMPLES, BYTES = 200, 5000

READ = """
import sys, millhead, hashlib
with millhead.Loader(sys.argv[1], 8, shuffle=True, output="numpy", cache=sys.argv[2]) as loader:
    values = b"".join(batch["x"].tobytes() for batch in loader)
print(hashlib.md5(values).hexdigest(), loader.stats()["cache"]["misses"])
"""


@pytest.fixture(scope="module")
def data() -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(0, 255, (SAMPLES, BYTES), dtype=np.uint8)


def npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def epoch(server: Server, cache: Path | str, epochs: int = 1) -> tuple[bytes, dict[str, Any]]:
    with millhead.Loader(
        f"{server.address}/x.npy", 8, shuffle=True, output="numpy", cache=cache
    ) as loader:
        for number in range(epochs):
            loader.set_epoch(0)
            values = b"".join(batch["x"].tobytes() for batch in loader)
    return values, loader.stats()


def command(*arguments: str | Path) -> dict[str, Any]:
    done = subprocess.run(
        [COMMAND, "cache", *arguments, "--json"], capture_output=True, check=True, timeout=60
    )
    return dict(json.loads(done.stdout))


def entries(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file() and len(path.name) == 32]


def test_a_second_epoch_makes_no_request(data: np.ndarray[Any, Any], tmp_path: Path) -> None:
    with fault_server({"/x.npy": npy(data)}) as server:
        first, stats = epoch(server, f"{tmp_path}/cache:100MB")
        assert stats["cache"]["misses"] == SAMPLES
        asked = len(server.requests)
        second, stats = epoch(server, f"{tmp_path}/cache:100MB")
        opening = len(server.requests) - asked
        assert first == second
        assert stats["cache"]["misses"] == 0
        assert stats["cache"]["hits"] >= SAMPLES  # it reads ahead into the next epoch
        assert stats["requests"]["count"] == 0
        assert opening <= 6  # to see that nothing has changed
        assert command("stat", tmp_path / "cache")["entries"] == SAMPLES


def test_a_changed_object_is_fetched_again(data: np.ndarray[Any, Any], tmp_path: Path) -> None:
    with fault_server({"/x.npy": npy(data)}) as server:
        first, _ = epoch(server, f"{tmp_path}/cache:100MB")
        server.objects["/x.npy"] = npy(255 - data)
        second, stats = epoch(server, f"{tmp_path}/cache:100MB")
        assert bytes(255 - np.frombuffer(first, np.uint8)) == second
        assert stats["cache"]["misses"] == SAMPLES


def test_flipped_bits_are_found_and_fetched_again(
    data: np.ndarray[Any, Any], tmp_path: Path
) -> None:
    draw = random.Random(5)
    with fault_server({"/x.npy": npy(data)}) as server:
        first, _ = epoch(server, f"{tmp_path}/cache:100MB")
        broken = draw.sample(entries(tmp_path / "cache"), 60)
        for number, path in enumerate(broken):
            content = bytearray(path.read_bytes())
            if number % 6 == 5:
                path.write_bytes(content[: draw.randrange(len(content))])
                continue
            at = draw.randrange(len(content) * 8)
            content[at // 8] ^= 1 << at % 8
            path.write_bytes(content)
        second, stats = epoch(server, f"{tmp_path}/cache:100MB")
        assert second == first
        assert (stats["cache"]["corrupt"], stats["cache"]["misses"]) == (60, 60)
        path = entries(tmp_path / "cache")[0]
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        found = command("verify", tmp_path / "cache")
        assert found["corrupt"] in (0, 1) and found["checked"] == SAMPLES
        assert found["corrupt"] == found["removed"]
        assert command("verify", tmp_path / "cache")["corrupt"] == 0


def test_the_limit_holds_and_reading_goes_on(data: np.ndarray[Any, Any], tmp_path: Path) -> None:
    with fault_server({"/x.npy": npy(data)}) as server:
        first, _ = epoch(server, f"{tmp_path}/whole:100MB")
        for _ in range(3):
            values, stats = epoch(server, f"{tmp_path}/cache:300kB")
            assert values == first
            assert sum(path.stat().st_size for path in entries(tmp_path / "cache")) <= 300_000
        assert stats["cache"]["hits"] > 40  # what fits stays


def test_other_data_makes_room(data: np.ndarray[Any, Any], tmp_path: Path) -> None:
    with fault_server({"/x.npy": npy(data)}) as server:
        epoch(server, f"{tmp_path}/cache:1200kB")
    with fault_server({"/x.npy": npy(data)}) as server:
        _, stats = epoch(server, f"{tmp_path}/cache:1200kB")
        assert stats["cache"]["evicted"] > 0
        _, stats = epoch(server, f"{tmp_path}/cache:1200kB")
        assert stats["cache"]["misses"] == 0  # without room made, 35 would fit
    assert command("prune", tmp_path / "cache", "--limit", "500kB")["bytes"] <= 500_000
    assert command("clear", tmp_path / "cache")["entries"] == 0


@pytest.mark.limit(200)
def test_a_kill_leaves_nothing_that_is_wrong(data: np.ndarray[Any, Any], tmp_path: Path) -> None:
    draw = random.Random(3)
    cache = tmp_path / "cache"
    with fault_server({"/x.npy": npy(data)}) as server:
        first, _ = epoch(server, f"{tmp_path}/whole:100MB")
        for _ in range(12):
            arguments = [sys.executable, "-c", READ, f"{server.address}/x.npy", f"{cache}:100MB"]
            with subprocess.Popen(arguments, stdout=subprocess.DEVNULL) as reader:
                while not cache.exists() and reader.poll() is None:
                    time.sleep(0.005)
                time.sleep(draw.uniform(0, 0.05))
                reader.send_signal(signal.SIGKILL)
            assert command("verify", cache)["corrupt"] == 0
        assert not list(cache.rglob("*.part"))  # `verify` has removed what was left
        assert epoch(server, f"{cache}:100MB")[0] == first


def test_a_full_disk_means_reading_without_it(data: np.ndarray[Any, Any], tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", disk], check=True)
    try:
        (disk / "cache").mkdir(mode=0o700)
        with fault_server({"/x.npy": npy(data)}) as server:
            first, _ = epoch(server, f"{tmp_path}/whole:100MB")
            arguments = [
                sys.executable,
                "-c",
                READ,
                f"{server.address}/x.npy",
                f"{disk}/cache:100MB",
            ]
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
            assert done.stderr.count("takes nothing more (No space left on device)") == 1
            assert epoch(server, f"{disk}/cache:100MB")[0] == first
            assert command("verify", disk / "cache")["corrupt"] == 0
    finally:
        subprocess.run(["umount", disk], check=True)


def test_two_processes_fetch_each_piece_once(data: np.ndarray[Any, Any], tmp_path: Path) -> None:
    with fault_server({"/x.npy": npy(data)}) as server:
        server.latency_s = 0.01
        arguments = [
            sys.executable,
            "-c",
            READ,
            f"{server.address}/x.npy",
            f"{tmp_path}/cache:100MB",
        ]
        readers = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        answers = [reader.communicate(timeout=90)[0].split() for reader in readers]
        assert answers[0][0] == answers[1][0]
        assert sum(int(misses) for _, misses in answers) == SAMPLES


@pytest.mark.parametrize(
    ("cache", "says"),
    [
        ("{root}/open:1GB", "others may write to the cache"),
        ("{root}/other:1GB", "belongs to another user"),
        ("{root}/none/cache:1GB", "cannot make the cache"),
        ("{root}/new:12parsecs", "is not the size of a cache"),
        (":1GB", "a cache is written DIR:50GB"),
        ("/proc/cache:1GB", "cannot make the cache"),
    ],
)
def test_a_cache_that_is_not_ours_alone_is_refused(
    data: np.ndarray[Any, Any], tmp_path: Path, cache: str, says: str
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "other").mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(tmp_path / "other", 12345, 12345)
    elif "other" in cache:
        pytest.skip("needs root, to give a directory away")
    with (
        fault_server({"/x.npy": npy(data)}) as server,
        pytest.raises((ValueError, OSError), match=says),
    ):
        epoch(server, cache.format(root=tmp_path))


def test_a_link_in_the_place_of_an_entry_is_not_followed(
    data: np.ndarray[Any, Any], tmp_path: Path
) -> None:
    with fault_server({"/x.npy": npy(data)}) as server:
        first, _ = epoch(server, f"{tmp_path}/cache:100MB")
        path = entries(tmp_path / "cache")[0]
        planted = tmp_path / "planted"
        path.rename(planted)
        path.symlink_to(planted)
        second, stats = epoch(server, f"{tmp_path}/cache:100MB")
        assert second == first
        assert stats["cache"]["misses"] == 1


def test_a_limit_below_one_piece_is_said_once(data: np.ndarray[Any, Any], tmp_path: Path) -> None:
    with fault_server({"/x.npy": npy(data)}) as server:
        arguments = [sys.executable, "-c", READ, f"{server.address}/x.npy", f"{tmp_path}/cache:1kB"]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.count("is too small for one piece") == 1
    assert done.stderr.count("\n") == 1
