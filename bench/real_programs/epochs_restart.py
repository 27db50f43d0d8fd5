"""Many short epochs, whose workers open their data anew each time."""

TRUTH = {"causes": ["startup-bound"], "fix": "persistent_workers=True", "gains": True}

import time

import torch
from common import DataLoader, batches, device, settings
from torch.utils.data import Dataset


class Opened(Dataset):
    def __init__(self) -> None:
        self.file = None

    def __len__(self) -> int:
        return 20 * 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.file is None:
            time.sleep(0.25)  # an index read, a connection made
            self.file = index
        return torch.full((64,), float(index))


if __name__ == "__main__":
    loader = DataLoader(Opened(), **settings(batch_size=8, num_workers=2))
    for _epoch in range(batches(8)):
        for _batch in loader:
            device(0.02)
