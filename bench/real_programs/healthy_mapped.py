"""A mapped array that is read for more than a minute: its pages are the kernel's, and no leak."""

TRUTH = {"causes": ["device-bound"], "healthy": True}

import numpy as np
import torch
from common import DataLoader, batches, device, scratch, settings
from torch.utils.data import Dataset

ROWS = 8000


class Rows(Dataset):
    def __init__(self, length: int) -> None:
        path = scratch() / "mapped.npy"
        if not path.exists():
            np.save(path, np.ones((ROWS, 1 << 18), "u1"))
        self.rows, self.length = np.load(path, mmap_mode="r"), length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.rows[index * 37 % ROWS].copy())


if __name__ == "__main__":
    loader = DataLoader(Rows(min(batches(1300), 1500) * 4), **settings(batch_size=4, num_workers=2))
    for _batch in loader:
        device(0.05)
