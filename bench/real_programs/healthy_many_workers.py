"""More workers than CPUs, whose samples are cheap: nothing to win, and no alarm."""

TRUTH = {"causes": ["device-bound"], "healthy": True}

import torch
from common import DataLoader, batches, device, settings
from torch.utils.data import TensorDataset

if __name__ == "__main__":
    rows = torch.rand(batches(100) * 16, 256)
    own = settings(batch_size=16, num_workers=6, persistent_workers=True)
    for (_batch,) in DataLoader(TensorDataset(rows), **own):
        device(0.03)
