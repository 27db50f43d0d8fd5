"""Zarr stores joined along a dimension: every window is that of the arrays put together."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest

zarr = pytest.importorskip("zarr")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "helpers"))

import zarr_stores
from millhead._data_options import DataOptions
from millhead.dataset import Dataset

WHOLE = np.random.default_rng(4).integers(-90, 90, (23, 12, 9)).astype("i2")
LENGTHS = [5, 1, 11, 6]  # along time; 11 is three chunks of 4, the last one cut
DIMS = ["time", "lat", "lon"]


def store_of(path: Path, data: np.ndarray, **kind: Any) -> Path:
    """A store with `t`, and coordinates where they are given."""
    version, time = kind.pop("zarr_format", 3), kind.pop("time", None)
    units, lat, attributes = kind.pop("units", ""), kind.pop("lat", None), kind.pop("attrs", {})
    lats = np.arange(data.shape[1]) if lat is None else lat
    root = zarr.create_group(path, zarr_format=version)

    def add(name: str, values: np.ndarray, dims: list[str], **more: Any) -> Any:
        named = {"dimension_names": dims} if version == 3 else {}
        array = root.create_array(name, data=values, **named, **more)
        if version == 2:
            array.attrs["_ARRAY_DIMENSIONS"] = dims
        return array

    kind = {"chunks": (4, 5, 9)} | kind
    add("t", data, DIMS, **kind).attrs.update(attributes)
    add("lat", lats, ["lat"])
    add("height", np.arange(data.shape[1] * 9).reshape(-1, 9), ["lat", "lon"])
    if time is not None:
        add("time", np.asarray(time), ["time"]).attrs["units"] = units
    return path


def cut(data: np.ndarray = WHOLE, lengths: list[int] = LENGTHS) -> list[np.ndarray]:
    return np.split(data, np.cumsum(lengths)[:-1])


def stores(folder: Path, **kind: Any) -> list[Path]:
    """One for each length; their time runs on."""
    begins = np.cumsum([0, *LENGTHS])
    return [
        store_of(folder / f"{n}.zarr", part, time=np.arange(begins[n], begins[n + 1]), **kind)
        for n, part in enumerate(cut())
    ]


def opened(paths: list[Any], fields: tuple[str, ...] = ("t",), **options: Any) -> Dataset:
    options = {"window": {"time": 3, "lat": 4}, "decode": None} | options
    return Dataset(paths, fields, output="numpy", options=DataOptions(**options))


def check(paths: list[Any], whole: np.ndarray, window: tuple[int, ...], stride: tuple[int, ...],
          **options: Any) -> None:  # fmt: skip
    data = opened(paths, window=dict(zip(DIMS, window, strict=True)),
                  stride=dict(zip(DIMS, stride, strict=True)), **options)  # fmt: skip
    places = list(zarr_stores.windows(whole.shape, window, stride))
    assert len(data) == len(places)
    batch = data[list(range(len(data)))]
    for number, place in enumerate(places):
        np.testing.assert_array_equal(batch["t"][number], whole[place])


KINDS: list[dict[str, Any]] = [
    {},
    {"zarr_format": 2},
    {"shards": (8, 10, 9)},
    {"compressors": None},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("window", [(1, 12, 9), (3, 4, 5), (23, 3, 9), (12, 12, 1)], ids=str)
def test_windows_cross_the_seams(
    tmp_path: Path, kind: dict[str, Any], window: tuple[int, ...]
) -> None:
    check(stores(tmp_path, **kind), WHOLE, window, (1, 3, 2))


def test_chunks_may_differ_along_the_joined_dimension(tmp_path: Path) -> None:
    paths = [
        store_of(tmp_path / f"{n}.zarr", part, chunks=(max(len(part), 1), 5, 9))
        for n, part in enumerate(cut())
    ]
    check(paths, WHOLE, (4, 5, 9), (1, 2, 1))


def test_any_dimension_can_be_the_one(tmp_path: Path) -> None:
    for axis, dim in enumerate(DIMS):
        parts = np.array_split(WHOLE, 3, axis)
        lats = np.array_split(np.arange(WHOLE.shape[1]), 3)
        paths = [
            store_of(
                tmp_path / f"{dim}{n}.zarr", part, chunks=(2, 2, 2),
                lat=lats[n] if dim == "lat" else None, time=np.arange(len(part)),
            )
            for n, part in enumerate(parts)
        ]  # fmt: skip
        check(paths, WHOLE, (4, 5, 4), (3, 2, 1), join=dim)
        if dim == "lat":  # whose coordinate goes on, and that of time does not
            check(paths, WHOLE, (4, 5, 4), (3, 2, 1))


def test_targets_lie_in_other_stores(tmp_path: Path) -> None:
    data = opened(
        stores(tmp_path), ("t", "target"),
        window={"time": 2}, stride={"time": 1}, target={"time": 9},
    )  # fmt: skip
    assert len(data) == 23 - 1 - 9
    for number in range(len(data)):
        sample = data[number]
        np.testing.assert_array_equal(sample["t"], WHOLE[number : number + 2])
        np.testing.assert_array_equal(sample["target"], WHOLE[number + 9 : number + 11])


def test_arrays_without_the_dimension_are_the_first_stores(tmp_path: Path) -> None:
    sample = opened(stores(tmp_path), ("t", "height", "time", "_origin"), window={"time": 4})[1]
    assert sample["time"].tolist() == [4, 5, 6, 7]
    assert sample["_origin"].tolist() == [4, 0, 0]
    np.testing.assert_array_equal(sample["height"], np.arange(12 * 9).reshape(12, 9))


def test_each_store_is_decoded_by_its_own_attributes(tmp_path: Path) -> None:
    scales = [0.5, 0.25, 2.0, 4.0]
    paths = [
        store_of(tmp_path / f"{n}.zarr", part, attrs={"scale_factor": scale, "add_offset": 1.0})
        for n, (part, scale) in enumerate(zip(cut(), scales, strict=True))
    ]
    whole = np.concatenate(
        [
            part * np.float32(scale) + np.float32(1)
            for part, scale in zip(cut(), scales, strict=True)
        ]
    )
    check(paths, whole, (4, 12, 9), (1, 1, 1), decode="cf")
    steps = "t: normalize mean=3 std=2 | cast f64"
    check(paths, ((whole - 3) / 2).astype("f8"), (4, 12, 9), (1, 1, 1), decode="cf", pipeline=steps)


def test_zip_archives_and_references_are_joined_too(tmp_path: Path) -> None:
    zips, references = [], []
    for n, part in enumerate(cut()):
        path = tmp_path / f"{n}.zarr.zip"
        with zarr.storage.ZipStore(path, mode="w") as store:
            store_of(store, part)
        zips.append(path)
        folder = store_of(tmp_path / f"{n}.zarr", part, zarr_format=2)
        refs = {
            str(file.relative_to(folder)): [str(file)] if file.name[0] != "." else file.read_text()
            for file in sorted(folder.rglob("*"))
            if file.is_file()
        }
        references.append(tmp_path / f"{n}.json")
        references[-1].write_text(json.dumps({"version": 1, "refs": refs}))
    check(zips, WHOLE, (7, 12, 9), (1, 1, 1))
    check(references, WHOLE, (7, 12, 9), (1, 1, 1))
    with pytest.raises(millhead.Error, match=r"0\.zarr\.zip is one file and .*1\.zarr is a dir"):
        opened([zips[0], tmp_path / "1.zarr"])


def test_times_are_selected_over_all_stores(tmp_path: Path) -> None:
    """xarray writes the days since the first one of each file."""
    begins = np.cumsum([0, *LENGTHS])
    paths = [
        store_of(
            tmp_path / f"{n}.zarr", part, time=np.arange(len(part)),
            units=str(np.datetime64("2001-01-30") + begins[n]).join(["days since ", ""]),
        )
        for n, part in enumerate(cut())
    ]  # fmt: skip
    data = opened(
        paths, window={"time": 2}, stride={"time": 1}, select={"time": ("2001-02", "2001-02-13")}
    )
    assert len(data) == 12
    np.testing.assert_array_equal(data[0]["t"], WHOLE[2:4])
    with pytest.raises(ValueError, match=r"time is in 'days since 2001-01-30' in .*0\.zarr and in"):
        opened(paths, ("t", "time"))


def test_the_same_samples_in_every_order(tmp_path: Path) -> None:
    paths = stores(tmp_path)
    for shuffle in (False, True, "blocks", "torch"):
        seen = []
        with millhead.Loader(
            paths, 4, window={"time": 3}, stride={"time": 1}, shuffle=shuffle, output="numpy",
            fields=["t", "_index"], decode=None,
        ) as loader:  # fmt: skip
            for batch in loader:
                for number, values in zip(batch["_index"].tolist(), batch["t"], strict=True):
                    np.testing.assert_array_equal(values, WHOLE[number : number + 3])
                    seen.append(number)
        assert sorted(seen) == list(range(21))


# --- what does not fit


def refused(paths: list[Path], said: str, **options: Any) -> None:
    with pytest.raises((ValueError, millhead.Error), match=said) as caught:
        opened(paths, **options)
    assert "\n" not in str(caught.value)


def test_what_does_not_fit_is_refused_with_both_stores(tmp_path: Path) -> None:
    first = store_of(tmp_path / "a.zarr", WHOLE[:5], time=np.arange(5))
    later = np.arange(5, 10)

    def other(name: str, data: np.ndarray = WHOLE[5:10], **kind: Any) -> list[Path]:
        return [first, store_of(tmp_path / f"{name}.zarr", data, **{"time": later} | kind)]

    refused(
        other("chunks", chunks=(4, 3, 9)),
        r"chunks of 5 along lat in .*a\.zarr and of 3 in .*chunks\.zarr",
    )
    refused(
        other("type", WHOLE[5:10].astype("i4")),
        r"t is stored in one type in .*a\.zarr .*type\.zarr",
    )
    refused(other("shape", WHOLE[5:10, :6]), r"lat is 12 long in .*a\.zarr and 6 in .*shape\.zarr")
    flipped = np.arange(12)[::-1]
    refused(
        other("lat", lat=flipped),
        r"the coordinate lat of .*a\.zarr is not that of .*lat\.zarr",
        join="time",
    )
    refused(
        other("cf", attrs={"scale_factor": 0.5}),
        r"t is decoded to one type in .*a\.zarr .*cf\.zarr",
        decode="cf",
    )
    refused(
        other("back", time=np.arange(3, 8)), r"time does not go on from .*a\.zarr to .*back\.zarr"
    )
    check([first, tmp_path / "back.zarr"], WHOLE[:10], (5, 12, 9), (1, 1, 1), join="time")
    line = zarr.create_group(tmp_path / "line.zarr")
    for name in ("t", "time"):
        line.create_array(name, data=np.arange(5), dimension_names=["time"])
    same = [tmp_path / "line.zarr"] * 2
    refused(same, r"line\.zarr and .*line\.zarr have the same coordinates", window={"time": 1})
    refused([first, first], "dimension 'tme' to join .* along; did you mean 'time'", join="tme")
    empty = tmp_path / "other.zarr"
    zarr.create_group(empty).create_array("u", data=WHOLE, dimension_names=DIMS)
    refused([first, empty], r"other\.zarr has no array 't', as .*a\.zarr has", join="time")
    np.save(tmp_path / "x.npy", WHOLE)
    with pytest.raises(ValueError, match="takes no join"):
        Dataset([tmp_path / "x.npy"], options=DataOptions(join="time"))


def test_a_damaged_chunk_is_named_with_its_own_store(tmp_path: Path) -> None:
    paths = stores(tmp_path, compressors=[zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()])
    chunk = paths[2] / "t" / "c" / "1" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"x")
    data = opened(paths, window={"time": 1})
    with pytest.raises(millhead.Error, match=r"2\.zarr: array 't', chunk c/1/0/0: crc32c"):
        data[6 + 4]
    np.testing.assert_array_equal(data[6]["t"], WHOLE[6:7])
