"""Distributed Data Loading Guide, snippet 2: try several numbers of workers.

The document's lines: the loop over the worker counts, as it stands; the import says millhead.torch.
Changed: 3 repeats instead of 100.
Added: a data set, and a check that every count gives the same first batch.
Mind what it measures: `next(iter(loader))` starts new workers for every batch, so the time is that
of starting and stopping them. seed004_benchmark.py measures loading.
"""

import time

from dummydataset import DummyDataset
from fingerprint import fingerprint
from millhead.torch import DataLoader

REPEATS = 3
dataset = DummyDataset()

for num_workers in [0, 1, 2, 4, 8]:
    loader = DataLoader(dataset, batch_size=32, num_workers=num_workers)

    start = time.time()
    for _ in range(REPEATS):
        batch = next(iter(loader))
    elapsed = time.time() - start

    print(f"Workers: {num_workers}, Time: {elapsed:.2f}s")
    print(f"result: workers {num_workers}: {fingerprint([batch])}")
