"""The document's stand-in for your own data set: rows that take a while to load."""

from __future__ import annotations

import time

import torch
from torch.utils.data import Dataset

ROWS, ROW_S = 64, 0.002


class DummyDataset(Dataset[torch.Tensor]):
    """Row i is made from i alone, so every way of loading it must give the same numbers."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(ROW_S)
        return torch.arange(index, index + 32, dtype=torch.float32)
