"""Eight workers that multiply matrices, each with as many BLAS threads as there are CPUs.

Ours have one thread each, so that there it is many workers and no crowd of pools."""

TRUTH = {
    "causes": ["oversubscribed"],
    "causes_millhead": ["oversubscribed", "cpu-bound"],
    "gains": True,
}

import numpy as np
from common import DataLoader, batches, device, settings
from torch.utils.data import Dataset

BATCH = 4


class Projected(Dataset):
    def __init__(self, length: int) -> None:
        self.length = length
        self.matrix = np.random.default_rng(0).normal(size=(400, 400))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        x = self.matrix
        for _ in range(4):
            x = x @ self.matrix
        return x[0].astype("f4")


if __name__ == "__main__":
    loader = DataLoader(Projected(batches(80) * BATCH), **settings(batch_size=BATCH, num_workers=8))
    for _batch in loader:
        device(0.01)
