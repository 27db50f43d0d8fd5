"""One HDF5 file for all workers, behind a lock: h5py reads compressed chunks one at a time."""

TRUTH = {"causes": ["latency-bound"], "hot": "h5py."}

import multiprocessing

import h5py
import numpy as np
from common import DataLoader, batches, device, scratch, settings
from torch.utils.data import Dataset

ROWS, BATCH = 64, 4


class Rows(Dataset):
    def __init__(self, length: int) -> None:
        self.path, self.length = scratch() / "rows.h5", length
        self.lock, self.file = multiprocessing.Lock(), None
        if not self.path.exists():
            rows = np.random.default_rng(0).normal(size=(ROWS, 512, 512)).astype("f4").round(1)
            with h5py.File(self.path, "w") as file:
                file.create_dataset("rows", data=rows, chunks=(1, 512, 512), compression="gzip")

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        if self.file is None:
            self.file = h5py.File(self.path)
        with self.lock:
            return self.file["rows"][index % ROWS, :64]


if __name__ == "__main__":
    loader = DataLoader(Rows(batches(60) * BATCH), **settings(batch_size=BATCH, num_workers=4))
    for _batch in loader:
        device(0.01)
