"""Distributed Data Loading Guide, snippet 4: page-locked batches, which a GPU copies faster.

The document's lines: the DataLoader call, as it stands; the import says millhead.torch.
Added: a data set, a pass over it, and a look at whether its batches are pinned: without a GPU they
cannot be, and torch says so once.
"""

import torch
from dummydataset import DummyDataset
from fingerprint import fingerprint
from millhead.torch import DataLoader

dataset = DummyDataset()

# When data fits in GPU memory
dataloader = DataLoader(
    dataset,
    pin_memory=True,  # Accelerates CPU→GPU transfer
)

batches = list(dataloader)
pinned = torch.cuda.is_available() and all(batch.is_pinned() for batch in batches)
print(f"result: a GPU: {torch.cuda.is_available()}, pinned: {pinned}")
print(f"result: {len(batches)} batches {fingerprint(batches)}")
