"""Rows of a Parquet file read once with pyarrow, then trained on."""

TRUTH = {"causes": ["device-bound"], "healthy": True}

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from common import DataLoader, batches, device, scratch, settings
from torch.utils.data import Dataset


class Table(Dataset):
    def __init__(self, length: int) -> None:
        path = scratch() / "table.parquet"
        if not path.exists():
            columns = {f"c{at}": np.random.default_rng(at).random(5000) for at in range(16)}
            pq.write_table(pa.table(columns), path)
        table = pq.read_table(path)
        self.rows = np.stack([table[name].to_numpy() for name in table.column_names], axis=1)
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.rows[index % len(self.rows)])


if __name__ == "__main__":
    loader = DataLoader(Table(batches(80) * 32), **settings(batch_size=32, num_workers=2))
    for _batch in loader:
        device(0.02)
