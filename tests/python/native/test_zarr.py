"""Zarr stores: every window equals what zarr-python, which wrote the store, reads there."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

zarr = pytest.importorskip("zarr")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "helpers"))

from millhead._data_options import DataOptions
from millhead.dataset import Dataset
from zarr_stores import NAMES, random_store, windows


@pytest.mark.parametrize("seed", range(60))
def test_windows_of_random_stores_equal_zarr_python(tmp_path: Path, seed: int) -> None:
    path = random_store(tmp_path / "x.zarr", seed)
    array = zarr.open_group(path, mode="r")["x"]
    draw = np.random.default_rng(seed + 1000)
    window = tuple(int(draw.integers(1, n + 1)) for n in array.shape)
    stride = tuple(int(draw.integers(1, w + 2)) for w in window)
    names = NAMES[: array.ndim]
    options = DataOptions(
        window=dict(zip(names, window, strict=True)),
        stride=dict(zip(names, stride, strict=True)),
        decode=None,
    )
    dataset = Dataset(path, output="numpy", options=options)
    wanted = list(windows(array.shape, window, stride))
    assert len(dataset) == len(wanted)
    everything = array[...]
    chosen = draw.choice(len(wanted), min(len(wanted), 20), replace=False)
    for number in chosen.tolist():
        found = dataset[number]["x"]
        expected = everything[wanted[number]]
        assert found.dtype == expected.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found, expected, err_msg=f"{array.metadata}")
