"""Two loaders drawn from in turn: pictures, which the loop waits for, and numbers that are there."""

TRUTH = {"causes": ["cpu-bound", "python-bound"], "loader": "Photos", "hot": "PIL."}

import torch
from common import DataLoader, batches, device, settings
from pillow_jpeg import Photos
from torch.utils.data import TensorDataset

if __name__ == "__main__":
    count = batches(50)
    numbers = DataLoader(TensorDataset(torch.rand(count * 4, 64)), batch_size=4, num_workers=1)
    pictures = DataLoader(Photos(count * 4), **settings(batch_size=4, num_workers=1))
    for _both in zip(numbers, pictures, strict=True):
        device(0.01)
