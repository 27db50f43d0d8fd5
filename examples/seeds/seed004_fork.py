"""Distributed Data Loading Guide, snippet 3: the start method that some platforms need.

The document's lines: the DataLoader call, as it stands; the import says millhead.torch.
Added: a data set and a pass over it.
"""

from dummydataset import DummyDataset
from fingerprint import fingerprint
from millhead.torch import DataLoader

dataset = DummyDataset()

# Mac M1/M2
dataloader = DataLoader(
    dataset,
    num_workers=4,
    multiprocessing_context="fork",  # Required for Mac M1
)

batches = list(dataloader)
print(f"result: {dataloader.multiprocessing_context.get_start_method()}")
print(f"result: {len(batches)} batches {fingerprint(batches)}")
