"""next(iter(loader)) in every step, which starts the workers for one batch."""

TRUTH = {"causes": ["startup-bound"], "fix": "next(iter(loader))"}

import torch
from common import DataLoader, batches, device, settings
from torch.utils.data import TensorDataset

if __name__ == "__main__":
    own = settings(batch_size=16, num_workers=2)
    loader = DataLoader(TensorDataset(torch.rand(2000, 64)), shuffle=True, **own)
    for _step in range(batches(50)):
        next(iter(loader))
        device(0.02)
