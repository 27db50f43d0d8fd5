"""Checks of output="jax", each run in a process of its own: JAX has threads, and other tests fork.

python -m helpers.jax_cases NAME DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import millhead
import numpy as np
import pytest

RAGGED = "synthetic:count=20,shape=6x4,chunk=4,ragged"


def values_are_numpys(tmp_path: Path) -> None:
    for dtype in ["bool", "u1", "<i2", "u2", ">i4", "u4", "f2", "f4", "c8"]:
        x = np.random.default_rng(1).integers(0, 2, (50, 7)).astype(dtype)
        np.save(tmp_path / "x.npy", x)
        with millhead.Loader(tmp_path / "x.npy", 8, fields=["x", "_index"], output="jax") as loader:
            for batch in loader:
                assert isinstance(batch["x"], jax.Array)
                assert batch["x"].dtype == x.dtype.newbyteorder("=")
                assert np.array_equal(np.asarray(batch["x"]), x[np.asarray(batch["_index"])])


def large_arrays_are_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((8, 1 << 18), np.float32))
    with millhead.Loader(tmp_path / "x.npy", 4, output="jax", memory="64MB") as loader:
        kept = [batch["x"] for batch in loader]
        assert loader.stats()["batches_copied_out"] == 0
    pointers = [array.unsafe_buffer_pointer() for array in kept]
    assert len(set(pointers)) == 2
    assert all(bool((array == 1).all()) for array in kept)  # after the loader was closed


def a_kept_batch_is_never_overwritten(tmp_path: Path) -> None:
    rows = np.arange(64, dtype=np.int32)[:, None].repeat(1 << 12, axis=1)
    np.save(tmp_path / "x.npy", rows)
    with millhead.Loader(tmp_path / "x.npy", 4, output="jax") as loader:
        kept = [jnp.sin(batch["x"]) if at % 2 else batch["x"] for at, batch in enumerate(loader)]
    for at in range(0, len(kept), 2):
        assert np.array_equal(np.asarray(kept[at]), rows[4 * at : 4 * at + 4])


def ragged_fields(_: Path) -> None:
    numpy_batch = next(iter(millhead.Loader(RAGGED, 8, output="numpy")))["x"]
    batch = next(iter(millhead.Loader(RAGGED, 8, output="jax")))["x"]
    assert isinstance(batch.values, jax.Array)
    assert batch.offsets.dtype == np.int64
    for ours, numpys in zip(batch, numpy_batch, strict=True):
        assert np.array_equal(np.asarray(ours), numpys)
    padded = batch.padded(7)
    assert isinstance(padded, jax.Array)
    assert np.array_equal(np.asarray(padded), numpy_batch.padded(7))
    with pytest.raises(TypeError, match=r"nested\(\) is torch's"):
        batch.nested()


def samples_by_number(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(12, dtype=np.float32).reshape(6, 2))
    data = millhead.open(tmp_path / "x.npy", output="jax")
    assert isinstance(data[4]["x"], jax.Array)
    assert data[[4, 1]]["x"].tolist() == [[8.0, 9.0], [2.0, 3.0]]


def pinned_memory_is_torchs(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(3))
    with pytest.raises(ValueError, match="pin_memory=True needs torch's tensors"):
        millhead.Loader(tmp_path / "x.npy", output="jax", pin_memory=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
