"""Training is quick to load; validation, after every epoch, is what the loop waits for."""

TRUTH = {"causes": ["cpu-bound", "python-bound"], "loader": "Photos", "hot": "PIL.", "gains": True}

import torch
from common import DataLoader, batches, device, settings
from pillow_jpeg import Photos
from torch.utils.data import TensorDataset

if __name__ == "__main__":
    training = DataLoader(TensorDataset(torch.rand(150 * 8, 64)), batch_size=8, num_workers=1)
    validation = DataLoader(Photos(24 * 8), **settings(batch_size=8, num_workers=0))
    for _epoch in range(max(2, batches(2))):
        for _batch in training:
            device(0.012)
        for _batch in validation:
            device(0.002)
