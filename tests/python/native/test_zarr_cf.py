"""CF attributes of Zarr stores: values and types equal xarray's with mask_and_scale."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import millhead
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


UNITS = [
    ("hours since 1900-01-01 00:00:0.0", None, 884_000),
    ("days since 1850-1-1", "gregorian", 55_000),
    ("seconds since 2000-02-28T12:30:00", "standard", 20_000_000),
    ("minutes since 1999-12-31 23:59:30Z", "standard", 400_000),
]


def times_of(path: Path, units: str, calendar: str | None, first: int) -> Any:
    """A store with a number for every third day."""
    a_day = {"hours": 24, "days": 1, "seconds": 86400, "minutes": 1440}[units.split()[0]]
    times = first + 3 * a_day * np.arange(200)
    attributes = {"units": units} | ({"calendar": calendar} if calendar else {})
    data = xarray.Dataset({"t": ("time", np.arange(200))}, {"time": ("time", times, attributes)})
    data.to_zarr(path, consolidated=False)
    return times


def selected(path: Path, low: str, high: str) -> np.ndarray:
    options = DataOptions(select={"time": (low, high)})
    return np.asarray(Dataset(path, output="numpy", options=options)[0]["t"])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("units", "calendar", "first"), UNITS, ids=str)
def test_dates_select_as_in_xarray(
    tmp_path: Path, units: str, calendar: str | None, first: int
) -> None:
    path = tmp_path / "x.zarr"
    times_of(path, units, calendar, first)
    decoded = xarray.open_zarr(path, chunks=None, consolidated=False)["t"]
    a, b, c = (str(decoded["time"].values[n])[:10] for n in (0, 50, 130))
    for low, high in [(a, b), (b, c), (b[:7], c[:7]), (b[:4], b[:4])]:
        wanted = decoded.sel(time=slice(low, high)).values
        np.testing.assert_array_equal(selected(path, low, high), wanted)


OLD = [  # the day from which they count, in the proleptic calendar
    ("days since 0001-01-01 00:00:00", None, 730_000, "0000-12-30"),  # a day of Caesar's
    ("days since 0001-01-01", "proleptic_gregorian", 730_000, "0001-01-01"),
    ("hours since 1582-10-04", "standard", 3_660_000, "1582-10-14"),
    ("hours since 1582-10-15", "standard", 3_660_000, "1582-10-15"),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("units", "calendar", "first", "since"), OLD, ids=str)
def test_dates_before_1582_are_julian_in_the_standard_calendar(
    tmp_path: Path, units: str, calendar: str | None, first: int, since: str
) -> None:
    times = times_of(tmp_path / "x.zarr", units, calendar, first)
    unit = np.timedelta64(1, "h" if units.startswith("hours") else "D")
    days = (np.datetime64(since) + times * unit).astype("M8[D]")
    for low, high in [(0, 50), (50, 130)]:
        found = selected(tmp_path / "x.zarr", str(days[low]), str(days[high]))
        np.testing.assert_array_equal(found, np.arange(low, high + 1))


def test_dates_of_other_calendars_are_refused_by_name(tmp_path: Path) -> None:
    attributes = {"units": "days since 2000-01-01", "calendar": "noleap"}
    data = xarray.Dataset(
        {"t": ("time", np.arange(9))}, {"time": ("time", np.arange(9), attributes)}
    )
    data.to_zarr(tmp_path / "x.zarr", consolidated=False)
    with pytest.raises(millhead.Error, match="time is in the calendar noleap: select it by index"):
        Dataset(tmp_path / "x.zarr", options=DataOptions(select={"time": ("2000", "2001")}))
