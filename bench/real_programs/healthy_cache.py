"""A dataset that keeps what it has decoded: memory grows until all is there."""

TRUTH = {"causes": ["device-bound"], "healthy": True}

import numpy as np
from common import DataLoader, batches, device, settings
from torch.utils.data import Dataset


class Kept(Dataset):
    def __init__(self) -> None:
        self.kept: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int):
        if index not in self.kept:
            self.kept[index] = np.full((128, 1024), index, "f4")
        return self.kept[index][:8]


if __name__ == "__main__":
    own = {"batch_size": 8, "num_workers": 2, "persistent_workers": True}
    loader = DataLoader(Kept(), **settings(**own))
    for _epoch in range(batches(4)):
        for _batch in loader:
            device(0.03)
