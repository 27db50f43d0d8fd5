"""Zarr stores that tensorstore and zarrs wrote: windows against their own reads.

``helpers/foreign_stores.py`` made ``foreign_stores.zip`` with them.
"""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "helpers"))

ARCHIVE = Path(__file__).with_name("foreign_stores.zip")
NAMES = ["time", "level", "lat", "lon"]

with zipfile.ZipFile(ARCHIVE) as kept:
    STORES = sorted(name[:-4] for name in kept.namelist() if name.endswith(".npy"))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("foreign")
    with zipfile.ZipFile(ARCHIVE) as kept:
        kept.extractall(folder)
    return folder


def test_both_writers_are_there() -> None:
    assert {name.split("-")[0] for name in STORES} == {"tensorstore2", "tensorstore3", "zarrs3"}
    assert len(STORES) == 60


@pytest.mark.parametrize("name", STORES)
def test_every_window_is_what_the_writer_reads(stores: Path, name: str) -> None:
    wanted = np.load(stores / f"{name}.npy")
    draw = np.random.default_rng(len(name) + int(name[-2:]))
    # version 2 has no names of dimensions without xarray's attribute
    dims = [f"dim_{k}" if "2-" in name else NAMES[k] for k in range(wanted.ndim)]
    window = {dim: int(draw.integers(1, n + 1)) for dim, n in zip(dims, wanted.shape, strict=True)}
    stride = {dim: int(draw.integers(1, size + 1)) for dim, size in window.items()}
    data = millhead.open(stores / name, window=window, stride=stride, decode=None, output="torch")
    (field,) = data.fields
    starts = [
        range(0, n - window[dim] + 1, stride[dim])
        for dim, n in zip(dims, wanted.shape, strict=True)
    ]
    origins = list(itertools.product(*starts))
    assert len(data) == len(origins)
    tensor = data[list(range(len(data)))][field]
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.uint16)
    batch = tensor.numpy()
    assert batch.dtype == wanted.dtype
    for got, origin in zip(batch, origins, strict=True):
        part = tuple(slice(o, o + window[dim]) for dim, o in zip(dims, origin, strict=True))
        np.testing.assert_array_equal(got, wanted[part])


# --- with attributes, against xarray


def group_of(path: Path, store: Path, attributes: dict[str, Any], days: np.ndarray) -> Path:
    """A group with a foreign store as `t`, which gets the attributes, and times for its first
    dimension."""
    zarr = pytest.importorskip("zarr")
    version = 2 if "2-" in store.name else 3
    root = zarr.create_group(path, zarr_format=version)
    shutil.copytree(store, path / "t")
    metadata = path / "t" / (".zarray" if version == 2 else "zarr.json")
    told = json.loads(metadata.read_text())
    dims = NAMES[: len(told["shape"])]
    if version == 2:
        told["fill_value"] = attributes.pop("_FillValue", None)
        (path / "t" / ".zattrs").write_text(json.dumps({**attributes, "_ARRAY_DIMENSIONS": dims}))
    else:
        fill = attributes.get("_FillValue")
        if isinstance(fill, float):  # as xarray writes it
            attributes["_FillValue"] = base64.b64encode(struct.pack("<d", fill)).decode()
        told |= {"attributes": attributes, "dimension_names": dims}
    metadata.write_text(json.dumps(told))
    named = {"dimension_names": ["time"]} if version == 3 else {}
    time = root.create_array("time", data=days, **named)
    time.attrs.update({"units": "days since 2000-12-30 06:00:00", "_ARRAY_DIMENSIONS": ["time"]})
    return path


def cf_attributes(draw: np.random.Generator, values: np.ndarray) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if draw.random() < 0.7:
        found["scale_factor"] = float(draw.choice([0.01, 0.5, 3.0]))
    if draw.random() < 0.7:
        found["add_offset"] = float(draw.choice([273.15, -1.0]))
    name = str(draw.choice(["_FillValue", "missing_value", ""]))
    if name:
        found[name] = values.flat[int(draw.integers(values.size))].item()
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", STORES)
def test_cf_and_times_are_those_of_xarray(stores: Path, tmp_path: Path, name: str) -> None:
    xarray = pytest.importorskip("xarray")
    values = np.load(stores / f"{name}.npy")
    draw = np.random.default_rng(int(name[-2:]) + 7)
    if values.dtype.kind not in "iuf" or values.ndim == 0:
        pytest.skip("nothing to decode")
    if b"bfloat16" in (stores / name / "zarr.json").read_bytes() if "3-" in name else False:
        pytest.skip("xarray has no bfloat16")
    days = 1 + np.arange(values.shape[0]) * 9  # 0 is the fill value of version 2
    attributes = cf_attributes(draw, values)
    path = group_of(tmp_path / "g.zarr", stores / name, dict(attributes), days)
    kind = {"chunks": None, "consolidated": False}
    expected = xarray.open_zarr(path, decode_times=False, **kind)["t"]
    whole = millhead.open(path, fields=["t"], output="numpy")[0]["t"]
    assert whole.dtype == expected.dtype, attributes
    np.testing.assert_array_equal(whole, expected.values, err_msg=str(attributes))
    times = xarray.open_zarr(path, **kind)["t"]
    for first, last in (("2000-12-30", "2001-01-20"), ("2001", "2001"), ("2001-01-02", "2009-01")):
        wanted = times.sel(time=slice(first, last)).values
        options: dict[str, Any] = {"select": {"time": (first, last)}, "fields": ["t"]}
        if wanted.shape[0] == 0:
            with pytest.raises(ValueError, match="no value of time is from"):
                millhead.open(path, **options)
            continue
        np.testing.assert_array_equal(
            millhead.open(path, output="numpy", **options)[0]["t"], wanted
        )
