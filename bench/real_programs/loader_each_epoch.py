"""A loader that is made anew for every epoch, whose workers open their data each time."""

TRUTH = {"causes": ["startup-bound"], "fix": "make the loader once"}

import time

import torch
from common import DataLoader, batches, device, settings
from torch.utils.data import Dataset


class Opened(Dataset):
    def __init__(self) -> None:
        self.file = None

    def __len__(self) -> int:
        return 24 * 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.file is None:
            time.sleep(0.4)
            self.file = index
        return torch.full((64,), float(index))


if __name__ == "__main__":
    own = settings(batch_size=8, num_workers=2)
    for _epoch in range(batches(8)):
        for _batch in DataLoader(Opened(), **own):
            device(0.02)
