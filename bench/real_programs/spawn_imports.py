"""Spawned workers that import large libraries, for a short run."""

TRUTH = {"causes": ["startup-bound"]}

import polars  # noqa: F401
import pyarrow.parquet  # noqa: F401
import torch
from common import DataLoader, batches, device, settings
from torch.utils.data import Dataset


class Numbers(Dataset):
    def __len__(self) -> int:
        return batches(60) * 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((64,), float(index))


if __name__ == "__main__":
    own = {"batch_size": 8, "num_workers": 2, "multiprocessing_context": "spawn"}
    for _batch in DataLoader(Numbers(), **settings(**own)):
        device(0.01)
