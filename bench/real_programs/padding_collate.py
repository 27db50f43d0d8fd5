"""Sequences padded to one length by a collate_fn in Python."""

TRUTH = {"causes": ["collate-bound"], "hot": "pad"}

import torch
from common import COST, DataLoader, batches, device, settings
from torch.utils.data import Dataset

BATCH = 32


class Sequences(Dataset):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> list[int]:
        return list(range(200 + index % 400))


def pad(batch: list[list[int]]) -> torch.Tensor:
    """One number at a time, as such functions are often written."""
    longest = max(len(one) for one in batch)
    rows = []
    for one in batch[: round(len(batch) * COST)]:
        row = []
        for at in range(longest):
            row.append(one[at] if at < len(one) else 0)
        rows.append(torch.tensor([float(value) * 0.5 for value in row]))
    return torch.stack(rows)


if __name__ == "__main__":
    own = {"batch_size": BATCH, "num_workers": 1, "collate_fn": pad}
    for _batch in DataLoader(Sequences(batches(150) * BATCH), **settings(**own)):
        device(0.002)
