"""Augmentation in NumPy without workers, beside a network trained on the CPU."""

TRUTH = {"causes": ["cpu-bound", "python-bound"], "fix": "num_workers=", "gains": True}

import numpy as np
import torch
from common import DataLoader, batches, model, settings, train_step
from torch.utils.data import Dataset

BATCH = 16


class Augmented(Dataset):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        rng = np.random.default_rng(index)
        image = rng.random((3, 64, 64), dtype="f4")
        image = np.rot90(image, rng.integers(4), axes=(1, 2)) + rng.normal(size=(3, 64, 64)) * 0.1
        return torch.from_numpy(np.clip(image, 0, 1).astype("f4"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    loader = DataLoader(Augmented(batches(80) * BATCH), **settings(batch_size=BATCH, num_workers=0))
    net, optimizer = model(3 * 64 * 64, width=128)
    for batch in loader:
        train_step(net, optimizer, batch)
