"""One sample in a hundred takes long: a large file among small ones."""

TRUTH = {"causes": ["tail-bound"]}

import time

import torch
from common import DataLoader, batches, device, settings
from torch.utils.data import Dataset

BATCH = 4


class Mixed(Dataset):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.25 if index % 97 == 40 else 0.002)
        return torch.full((64,), float(index))


if __name__ == "__main__":
    loader = DataLoader(Mixed(batches(200) * BATCH), **settings(batch_size=BATCH, num_workers=2))
    for _batch in loader:
        device(0.01)
