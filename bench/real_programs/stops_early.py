"""A loop that fails in its fifth batch: too little to judge by."""

TRUTH = {"causes": ["unclear"], "most_promised": 1.0}

import time

import torch
from common import DataLoader, device, settings
from torch.utils.data import Dataset


class Slow(Dataset):
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.02)
        return torch.full((64,), float(index))


if __name__ == "__main__":
    for at, _batch in enumerate(DataLoader(Slow(), **settings(batch_size=8, num_workers=2))):
        device(0.02)
        if at == 4:
            raise ValueError("loss is nan")
