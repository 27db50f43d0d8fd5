"""Zarr stores that tensorstore and zarrs wrote: windows against their own reads.

``helpers/foreign_stores.py`` made ``foreign_stores.zip`` with them.
"""

from __future__ import annotations

import itertools
import zipfile
from pathlib import Path

import millhead
import numpy as np
import pytest
import torch

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
