"""Distributed Data Loading Guide, snippet 6: data that is ready and fits in memory.

The document's lines: the TensorDataset, as it stands; the import says millhead.torch.
Added: images and labels, and a loader that shuffles them.
"""

import numpy as np
import torch
from fingerprint import fingerprint
from millhead.torch import DataLoader, TensorDataset

images = np.random.default_rng(0).random((200, 3, 8, 8), dtype=np.float32)
labels = np.arange(200) % 10

# If data is already processed and fits in memory
dataset = TensorDataset(
    torch.tensor(images),
    torch.tensor(labels),
)

torch.manual_seed(0)
batches = list(DataLoader(dataset, batch_size=64, shuffle=True))
print(f"result: batches of {[len(images) for images, _ in batches]}")
print(f"result: {fingerprint(batches)}")
