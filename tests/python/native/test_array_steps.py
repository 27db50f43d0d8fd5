"""What becomes of arrays' values after decoding; where windows begin; coordinates on request."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest

zarr = pytest.importorskip("zarr")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "helpers"))

import zarr_stores  # noqa: F401  (zarr's event loop begins there)

WINDOW = {"time": 2, "lat": 3}
TEMPERATURE = np.arange(6 * 9, dtype="f4").reshape(6, 9) / 7 + 270
PACKED = np.arange(6 * 9, dtype="i2").reshape(6, 9)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("steps") / "a.zarr"
    root = zarr.create_group(path)

    def add(name: str, data: np.ndarray, dims: list[str], **attributes: Any) -> None:
        chunks = tuple(4 for _ in data.shape)
        array = root.create_array(
            name, shape=data.shape, chunks=chunks, dtype=data.dtype, dimension_names=dims
        )
        array[...] = data
        array.attrs.update(attributes)

    holes = TEMPERATURE.copy()
    holes[1::2, ::4] = np.nan
    add("t2m", holes, ["time", "lat"])
    add("u10", PACKED, ["time", "lat"], scale_factor=0.5, _FillValue=13)
    add("lat", np.linspace(-40, 40, 9), ["lat"])
    add("mask", np.arange(9, dtype="i4"), ["lat"])
    return path


def samples(store: Path, **options: Any) -> dict[str, np.ndarray]:
    data = millhead.open(store, output="numpy", window=WINDOW, **options)
    batch: dict[str, np.ndarray] = data[list(range(len(data)))]
    return batch


def cut(data: np.ndarray) -> np.ndarray:
    """All windows, in order."""
    return np.stack([data[t : t + 2, x : x + 3] for t in (0, 2, 4) for x in (0, 3, 6)])


def test_steps_are_numpys_in_their_order(store: Path) -> None:
    text = "t2m: normalize mean=273 std=4 | nan -9 | cast f16; u10: nan 0 | cast i32"
    batch = samples(store, pipeline=text, fields=["t2m", "u10"])
    holes = TEMPERATURE.copy()
    holes[1::2, ::4] = np.nan
    normal = (holes - np.float32(273)) / np.float32(4)
    wanted = np.where(np.isnan(normal), np.float32(-9), normal).astype("f2")
    np.testing.assert_array_equal(batch["t2m"], cut(wanted))
    packed = np.where(PACKED == 13, 0, PACKED * np.float32(0.5)).astype("i4")
    np.testing.assert_array_equal(batch["u10"], cut(packed))
    assert batch["u10"].dtype == "int32"


def test_without_names_the_steps_are_for_all_fields(store: Path) -> None:
    batch = samples(store, pipeline="cast f64", fields=["t2m", "u10", "lat"])
    assert {array.dtype.name for array in batch.values()} == {"float64"}


def test_the_origin_is_where_a_window_begins(store: Path) -> None:
    batch = samples(store, fields=["_origin", "t2m", "_index"], select={"lat": slice(1, 9)})
    origins = [(t, x) for t in (0, 2, 4) for x in (1, 4)]
    assert batch["_origin"].tolist() == [list(origin) for origin in origins]
    assert batch["_origin"].dtype == "int64"
    assert batch["_index"].tolist() == list(range(6))
    with millhead.Loader(
        store, 2, window=WINDOW, fields=["t2m", "_origin"], shuffle="blocks", output="numpy"
    ) as loader:
        for found in loader:
            for (t, x), values in zip(found["_origin"], found["t2m"], strict=True):
                kept = ~np.isnan(values)
                np.testing.assert_array_equal(values[kept], TEMPERATURE[t : t + 2, x : x + 3][kept])


def test_coordinates_come_when_they_are_named_and_lower_arrays_always(store: Path) -> None:
    assert set(samples(store)) == {"t2m", "u10", "mask"}
    batch = samples(store, fields=["t2m", "lat", "mask"])
    wanted = np.linspace(-40, 40, 9).reshape(3, 3)
    np.testing.assert_array_equal(batch["lat"], np.tile(wanted, (3, 1)))
    np.testing.assert_array_equal(batch["mask"], np.tile(np.arange(9).reshape(3, 3), (3, 1)))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("t2n: nan 0", "'t2n', which is not a field; did you mean 't2m'"),
        ("normalise mean=0 std=1", "no step 'normalise'; did you mean 'normalize'"),
        ("normalize mean=0", "needs mean=M and std=S"),
        ("normalize mean=0 std=0", "divides by it"),
        ("normalize mean=x std=1", "takes a number, not 'x'"),
        ("normalize sd=1 mean=0", "not 'sd=1'"),
        ("nan", "takes a number"),
        ("cast f8", "not 'f8'"),
        ("cast f16 | nan 0", "nan stands after cast"),
        ("nan 0 | nan 1", "nan stands after nan"),
        ("t2m: nan 0; t2m: cast f16", "says twice what to do with t2m"),
        ("t2m:", "missing"),
        ("nan 0 | ", "missing"),
        ("nan 0 " + 200 * "0", "too long"),
    ],
)
def test_steps_that_make_no_sense_are_refused(store: Path, text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        samples(store, pipeline=text, fields=["t2m", "u10"])


def test_arrays_take_no_profile(store: Path) -> None:
    with pytest.raises(ValueError, match="arrays take no profile"):
        samples(store, profile="fast")
