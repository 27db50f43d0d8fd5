"""CF attributes of Zarr stores: values and types equal xarray's with mask_and_scale."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

xarray = pytest.importorskip("xarray")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "helpers"))

import zarr_stores  # noqa: F401  (starts zarr's event loop)
from millhead._data_options import DataOptions
from millhead.dataset import Dataset

SHAPE = (6, 7)
ENCODINGS: list[dict[str, Any]] = [
    {},
    {"dtype": "i2", "scale_factor": 0.01, "add_offset": 273.15, "_FillValue": -32768},
    {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1},
    {"dtype": "u1", "add_offset": 3.0, "_FillValue": 255},
    {"dtype": "i4", "scale_factor": 0.25, "_FillValue": -999},
    {"dtype": "f4", "_FillValue": -9999.0},
    {"dtype": "f8", "_FillValue": float("nan")},
    {"dtype": "f4", "scale_factor": 2.0, "add_offset": 1.0, "_FillValue": float("nan")},
    {"dtype": "i2", "_FillValue": 7},
]


def written(path: Path, encoding: dict[str, Any], version: int, missing: Any = None) -> str:
    """A store that xarray wrote: `t` with some values missing, and its coordinates."""
    draw = np.random.default_rng(5)
    data = draw.integers(10, 90, SHAPE).astype("f8")
    data[draw.random(SHAPE) < 0.2] = np.nan
    if not encoding:
        data = data.astype("f4")
    stored = {**encoding, "chunks": (4, 3)}
    dataset = xarray.Dataset(
        {"t": (("y", "x"), data, {} if missing is None else {"missing_value": missing})},
        {"y": np.linspace(-30, 30, SHAPE[0]), "x": np.arange(SHAPE[1]) * 2.0},
    )
    dataset.to_zarr(path, encoding={"t": stored}, zarr_format=version, consolidated=True)
    return str(path)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_values_equal_xarray(tmp_path: Path, encoding: dict[str, Any], version: int) -> None:
    path = written(tmp_path / "x.zarr", encoding, version)
    for decode in ("cf", None):
        expected = xarray.open_zarr(
            path, mask_and_scale=decode == "cf", decode_times=False, chunks=None
        )["t"]
        options = DataOptions(window={"y": 2, "x": 7}, decode=decode)
        dataset = Dataset(path, output="numpy", options=options)
        assert list(dataset.fields) == ["t"]
        assert len(dataset) == 3
        for number in range(3):
            found = dataset[number]["t"]
            wanted = expected.isel(y=slice(2 * number, 2 * number + 2)).values
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)


def test_select_by_coordinate_equals_sel(tmp_path: Path) -> None:
    path = written(tmp_path / "x.zarr", {}, 3)
    expected = xarray.open_zarr(path, chunks=None)["t"].sel(y=slice(-20, 20), x=slice(3, 9))
    options = DataOptions(select={"y": (-20, 20), "x": (3, 9)})
    dataset = Dataset(path, output="numpy", options=options)
    np.testing.assert_array_equal(dataset[0]["t"], expected.values)


def test_a_coordinate_is_delivered_where_it_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "x.zarr", {}, 3)
    options = DataOptions(window={"y": 2, "x": 3})
    dataset = Dataset(path, ["t", "y"], output="numpy", options=options)
    assert len(dataset) == 6
    np.testing.assert_array_equal(dataset[2]["y"], np.linspace(-30, 30, 6)[2:4])
