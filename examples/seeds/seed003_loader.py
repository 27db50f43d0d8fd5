"""Optimizing Data Loading and GPU Usage in PyTorch, snippet 1: a typical configuration.

The document's lines: the DataLoader call, as it stands.
Changed: the import says millhead.torch.
Added: a train_dataset in memory, a fixed seed, a pass over the batches. Without a GPU pin_memory=True
pins nothing and torch says so once.
"""

import torch
from fingerprint import fingerprint
from millhead.torch import DataLoader, TensorDataset

torch.manual_seed(0)
train_dataset = TensorDataset(torch.rand(500, 3, 16, 16), torch.arange(500))

train_loader = DataLoader(
    dataset=train_dataset,
    batch_size=128,
    shuffle=True,
    num_workers=4,
    pin_memory=True,
    prefetch_factor=2,
)

batches = list(train_loader)
print(f"result: batches of {[len(images) for images, _ in batches]}")
print(f"result: {fingerprint(batches)}")
