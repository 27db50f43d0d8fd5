"""Distributed Data Loading Guide, snippet 7: measure a loader over some batches.

The document's lines: the function and the loop over the configurations; the import says
millhead.torch.
Changed: 6 batches instead of 100; batch[0].cuda() became .to(DEVICE), which is the GPU where there is
one; the loop goes through the progress bar that the document imports, silent where there is no
terminal; the batches are kept, to be compared.
Added: a data set.
"""

import time

import torch
from dummydataset import DummyDataset
from fingerprint import fingerprint
from millhead.torch import DataLoader
from tqdm import tqdm

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dataset = DummyDataset()
seen = []


def benchmark_dataloader(loader, num_batches=6):
    start = time.time()
    for i, batch in enumerate(tqdm(loader, disable=None)):
        if i >= num_batches:
            break
        # Simulate GPU transfer
        batch[0].to(DEVICE)
        seen.append(batch)
    return time.time() - start


# Compare configurations
for workers in [0, 2, 4, 8]:
    loader = DataLoader(dataset, batch_size=8, num_workers=workers)
    time_taken = benchmark_dataloader(loader)
    print(f"Workers={workers}: {time_taken:.2f}s")
    print(f"result: workers {workers}: {len(seen)} batches {fingerprint(seen)}")
    seen.clear()
