"""Rows of a dask array over zarr, computed one by one by dask's threads."""

TRUTH = {"causes": ["cpu-bound", "python-bound"], "hot": "dask"}

import dask.array
import numpy as np
import zarr
from common import DataLoader, batches, device, scratch, settings
from torch.utils.data import Dataset

ROWS, BATCH = 512, 4


class Rows(Dataset):
    def __init__(self, length: int) -> None:
        path = scratch() / "dask.zarr"
        if not path.exists():
            data = np.random.default_rng(0).normal(size=(ROWS, 64, 64)).astype("f4").round(1)
            zarr.create_array(str(path), shape=data.shape, chunks=(32, 64, 64), dtype="f4")[:] = (
                data
            )
        array = dask.array.from_zarr(str(path))
        self.rows, self.length = array * 2 - 1, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        return self.rows[index * 37 % ROWS].compute()


if __name__ == "__main__":
    loader = DataLoader(Rows(batches(60) * BATCH), **settings(batch_size=BATCH, num_workers=1))
    for _batch in loader:
        device(0.01)
