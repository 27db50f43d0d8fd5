"""One file for all workers, behind a lock that polls as filelock does."""

TRUTH = {"causes": ["latency-bound"], "most_promised": 1.2, "hot": "filelock"}

import time

import numpy as np
from common import DataLoader, batches, device, scratch, settings
from filelock import FileLock
from torch.utils.data import Dataset

BATCH = 4


class Locked(Dataset):
    def __init__(self, length: int) -> None:
        self.length = length
        self.path = scratch() / "one.npy"
        np.save(self.path, np.zeros((64, 1024), "f4"))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        with FileLock(f"{self.path}.lock", poll_interval=0.005):
            time.sleep(0.008)  # a library that reads one sample at a time
            return np.load(self.path)[index % 64]


if __name__ == "__main__":
    loader = DataLoader(Locked(batches(40) * BATCH), **settings(batch_size=BATCH, num_workers=4))
    for _batch in loader:
        device(0.01)
