"""Copies of data on local disk: from S3, a web server and a directory."""

from __future__ import annotations

import filecmp
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import millhead
import pytest
from helpers import servers
from helpers.fault_server import fault_server

SIZES = {"a.bin": 9_000_000, "sub/dir/b.bin": 100, "sub/empty": 0, "dt=1 +é.bin": 4 << 20}


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("stage") / "bucket"
    for name, size in SIZES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(os.urandom(size))
    return root


@pytest.fixture(scope="module")
def s3(bucket: Path) -> Iterator[str]:
    with servers.s3(bucket.parent) as address:
        yield address


def assert_same(bucket: Path, copy: Path) -> None:
    names = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    assert names == {*SIZES, ".millhead-stage"}
    assert filecmp.cmpfiles(bucket, copy, list(SIZES), shallow=False)[0] == list(SIZES)


def test_a_prefix_of_s3_is_copied_once(bucket: Path, s3: str, tmp_path: Path) -> None:
    storage = {"key": servers.KEY, "secret": servers.SECRET, "endpoint_url": s3}
    done = millhead.stage("s3://bucket", tmp_path / "copy", storage_options=storage)
    total = sum(SIZES.values())
    assert done == {"files": 4, "bytes": total, "copied": 4, "copied_bytes": total, "skipped": 0}
    assert_same(bucket, tmp_path / "copy")
    done = millhead.stage("s3://bucket/", tmp_path / "copy", storage_options=storage)
    assert (done["copied"], done["copied_bytes"], done["skipped"]) == (0, 0, 4)


def test_a_directory_is_copied_and_what_is_missing_again(bucket: Path, tmp_path: Path) -> None:
    millhead.stage(bucket, tmp_path / "copy")
    (tmp_path / "copy" / "a.bin").unlink()
    (tmp_path / "copy" / "sub/dir/b.bin").write_bytes(b"short")
    done = millhead.stage(bucket, tmp_path / "copy")
    assert (done["copied"], done["skipped"]) == (2, 2)
    assert_same(bucket, tmp_path / "copy")


def test_a_copy_that_was_killed_goes_on(bucket: Path, tmp_path: Path) -> None:
    objects = {"/big": os.urandom(60_000_000)}
    with fault_server(objects) as server:
        server.latency_s = 0.05
        program = "import sys, millhead; millhead.stage(sys.argv[1], sys.argv[2], in_flight=1)"
        arguments = [sys.executable, "-c", program, f"{server.address}/big", str(tmp_path / "copy")]
        with subprocess.Popen(arguments) as copying:
            while len(server.requests) < 4:
                assert copying.poll() is None
            copying.kill()
        assert not (tmp_path / "copy" / "big").exists()
        assert millhead.stage(f"{server.address}/big", tmp_path / "copy")["copied"] == 1
    assert (tmp_path / "copy" / "big").read_bytes() == objects["/big"]


def test_of_two_processes_one_copies(bucket: Path, tmp_path: Path) -> None:
    with fault_server({"/big": os.urandom(20_000_000)}) as server:
        server.latency_s = 0.1
        program = "import sys, millhead; print(millhead.stage(sys.argv[1], sys.argv[2])['copied'])"
        arguments = [sys.executable, "-c", program, f"{server.address}/big", str(tmp_path / "copy")]
        both = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        assert sorted(one.communicate(timeout=60)[0].strip() for one in both) == ["0", "1"]


def test_what_cannot_be_copied_is_said(bucket: Path, s3: str, tmp_path: Path) -> None:
    storage = {"key": servers.KEY, "secret": servers.SECRET, "endpoint_url": s3}
    with pytest.raises(FileNotFoundError, match="there is nothing below s3://bucket/none/"):
        millhead.stage("s3://bucket/none", tmp_path / "copy", storage_options=storage)
    with pytest.raises(FileNotFoundError):
        millhead.stage(tmp_path / "none", tmp_path / "copy")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cannot write into"):
        millhead.stage(bucket, tmp_path / "file")
