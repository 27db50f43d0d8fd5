"""Formats behind URLs: what a folder, a store or a list of references gives there is what it gives on a disk."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest
import zarr
from helpers import pictures, servers

PIPELINE = "decode | resize 24 | center_crop 16"
WINDOW = {"y": 2, "x": 30}


def make_pictures(root: Path) -> None:
    """Folders in folders, names between which a slash sorts, and what does not count."""
    rng = np.random.default_rng(4)
    names = ["a/1.jpg", "a/b/2.jpg", "a/b-x/3.jpg", "a/b/c d/4.jpg", "a/z.jpg"]
    names += ["a b/5.jpg", "a-b/6.jpg", "ü/7+é.jpg", "n/.hidden.jpg", "n/8.jpg"]
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pictures.jpeg(root / name, rng, 40, 30, "4:2:0")
    (root / "n" / "notes.txt").write_text("not a picture")


def make_store(path: Path) -> None:
    group = zarr.create_group(path, zarr_format=2)
    array = group.create_array("x", shape=(40, 30), chunks=(4, 30), dtype="i2", compressors=None)
    array.attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]
    array[...] = np.arange(1, 1201).reshape(40, 30)
    zarr.consolidate_metadata(path, zarr_format=2)


def make_references(path: Path, url: str) -> None:
    """A kerchunk file whose chunks are ranges of a raw file, by name and by a template."""
    raw = np.arange(1, 1201, dtype="<i2").tobytes()
    path.with_name("raw.bin").write_bytes(b"header" + raw)
    meta = {"zarr_format": 2, "shape": [40, 30], "chunks": [4, 30], "dtype": "<i2", "order": "C"}
    meta |= {"compressor": None, "filters": None, "fill_value": 0}
    refs: dict[str, Any] = {
        ".zgroup": '{"zarr_format": 2}',
        "x/.zarray": json.dumps(meta),
        "x/.zattrs": json.dumps({"_ARRAY_DIMENSIONS": ["y", "x"]}),
    }
    for chunk in range(10):
        refs[f"x/{chunk}.0"] = ["{{u}}/raw.bin", 6 + 240 * chunk, 240]
    text = json.dumps({"version": 1, "templates": {"u": url}, "refs": refs})
    path.write_text(text)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    bucket = tmp_path_factory.mktemp("data") / "bucket"
    make_pictures(bucket / "train")
    make_store(bucket / "x.zarr")
    make_references(bucket / "refs-s3.json", "s3://bucket")
    for number in range(2500):  # a page of a listing has 1000
        folder = bucket / "many" / f"class{number % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:05}.txt").write_bytes(b"%d" % number)
    return bucket


@pytest.fixture(scope="module")
def s3(bucket: Path) -> Iterator[dict[str, str]]:
    with servers.s3(bucket.parent) as address:
        yield {"key": servers.KEY, "secret": servers.SECRET, "endpoint_url": address}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)


def epoch(data: Any, **arguments: Any) -> dict[str, np.ndarray[Any, Any]]:
    with millhead.Loader(data, 2, output="numpy", **arguments) as loader:
        parts = list(loader)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def assert_same(got: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert list(got) == list(wanted)
    for name, values in wanted.items():
        np.testing.assert_array_equal(got[name], values)


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_prefix_of_s3_is_a_folder_of_pictures(
    bucket: Path, s3: dict[str, str], slash: str
) -> None:
    options = {"pipeline": PIPELINE, "shuffle": True, "seed": 5}
    wanted = epoch(bucket / "train", **options)
    got = epoch(f"s3://bucket/train{slash}", storage_options=s3, in_flight=32, **options)
    assert len(wanted["label"]) == 9
    assert_same(got, wanted)
    local = millhead.open(bucket / "train", pipeline=PIPELINE)
    remote = millhead.open(f"s3://bucket/train{slash}", pipeline=PIPELINE, storage_options=s3)
    assert remote.classes == local.classes == ["a", "a b", "a-b", "n", "ü"]


def test_keys_and_bytes_of_a_prefix(bucket: Path, s3: dict[str, str]) -> None:
    fields = ["bytes", "_key", "label"]
    local = millhead.open(bucket / "train", fields)
    remote = millhead.open("s3://bucket/train", fields, storage_options=s3)
    for number in range(len(local)):
        for name in fields:
            one, other = local[number][name], remote[number][name]
            assert bytes(np.asarray(one).tobytes()) == bytes(np.asarray(other).tobytes())


def test_a_listing_of_many_pages(s3: dict[str, str], bucket: Path) -> None:
    wanted = epoch(bucket / "many", fields=["label", "_index"])
    assert_same(epoch("s3://bucket/many/", fields=["label", "_index"], storage_options=s3), wanted)
    assert len(wanted["label"]) == 2500


def test_the_cache_asks_for_the_listing_alone(
    bucket: Path, s3: dict[str, str], tmp_path: Path
) -> None:
    options = {"pipeline": PIPELINE, "storage_options": s3, "cache": f"{tmp_path}/cache"}
    first = epoch("s3://bucket/train", **options)
    with millhead.Loader("s3://bucket/train", 2, output="numpy", **options) as loader:
        list(loader)
    stats = loader.stats()
    assert stats["requests"]["count"] == 0 and stats["cache"]["misses"] == 0
    pictures.jpeg(bucket / "train/a/1.jpg", np.random.default_rng(9), 40, 30, "4:2:0")
    second = epoch("s3://bucket/train", **options)
    changed = [at for at in range(9) if (first["image"][at] != second["image"][at]).any()]
    assert changed == [0]


def test_what_is_not_there_is_said(s3: dict[str, str]) -> None:
    with pytest.raises(FileNotFoundError, match="not found|no such|there is no"):
        millhead.open("s3://bucket/trian/", storage_options=s3)
    with pytest.raises(ValueError, match="listed anew"):
        millhead.open("s3://bucket/train", index="x.idx", storage_options=s3)


def test_a_store_in_s3_and_behind_every_web_server(
    bucket: Path, s3: dict[str, str], tmp_path: Path
) -> None:
    wanted = epoch(bucket / "x.zarr", window=WINDOW)
    assert_same(epoch("s3://bucket/x.zarr", window=WINDOW, storage_options=s3), wanted)
    locations = f"location /shown/ {{ alias {bucket}/; autoindex on; }}"
    with servers.nginx(tmp_path, bucket, locations) as address:
        assert_same(epoch(f"{address}/x.zarr", window=WINDOW), wanted)  # 403 for the folder
        assert_same(epoch(f"{address}/shown/x.zarr", window=WINDOW), wanted)  # a page of links
        with pytest.raises(millhead.Error, match="none of the formats"):
            millhead.open(f"{address}/shown/train")


def test_references_are_read_from_where_they_lie(
    bucket: Path, s3: dict[str, str], tmp_path: Path
) -> None:
    wanted = epoch(bucket / "x.zarr", window=WINDOW)
    assert_same(epoch("s3://bucket/refs-s3.json", window=WINDOW, storage_options=s3), wanted)
    with servers.nginx(tmp_path, bucket) as address:
        make_references(bucket / "refs.json", address)
        assert_same(epoch(f"{address}/refs.json", window=WINDOW), wanted)
        assert_same(epoch(bucket / "refs.json", window=WINDOW), wanted)


def test_braces_stand_for_many_urls(bucket: Path, tmp_path: Path) -> None:
    for year in range(9, 12):
        make_store(bucket / f"y-{year:02}.zarr")
        np.save(bucket / f"n-{year}.npy", np.arange(year))
    stores = [bucket / f"y-{year:02}.zarr" for year in range(9, 12)]
    wanted = epoch(stores, window=WINDOW, join="y")
    assert len(wanted["x"]) == 60
    with servers.nginx(tmp_path, bucket) as address:
        assert_same(epoch(f"{address}/y-{{09..11}}.zarr", window=WINDOW, join="y"), wanted)
        with pytest.raises(ValueError, match="goes down"):
            millhead.open(f"{address}/y-{{11..9}}.zarr", window=WINDOW)
    assert_same(epoch(f"{bucket}/y-{{09..11}}.zarr", window=WINDOW, join="y"), wanted)
    (bucket / "{1..2}.npy").write_bytes((bucket / "n-9.npy").read_bytes())
    assert len(millhead.open(bucket / "{1..2}.npy")) == 9  # a file that is called so
