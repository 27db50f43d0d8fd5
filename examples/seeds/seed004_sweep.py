"""Distributed Data Loading Guide, snippet 2 as it is meant: numbers of workers, with error bars.

The document's lines: the loop over the worker counts and what it prints; the course behind it repeats
each measurement five times and plots mean and deviation.
Changed: millhead.watch measures, so that making workers, the first batch and the waits after it are
apart, and exactly as many batches are taken as are counted; 6 batches and 3 repeats instead of 100 and 5.
Added: a data set, and a check that all counts give the same batches.
"""

import statistics
from itertools import islice

import millhead
from dummydataset import DummyDataset
from fingerprint import fingerprint
from millhead.torch import DataLoader

BATCHES, REPEATS = 6, 3


def plus_minus(seconds: list[float]) -> str:
    return f"{1000 * statistics.mean(seconds):.1f}+-{1000 * statistics.stdev(seconds):.1f} ms"


def main() -> None:
    dataset = DummyDataset()
    for num_workers in [0, 1, 2, 4]:
        setup, first, waits, batches = [], [], [], []
        for _ in range(REPEATS):
            loader = DataLoader(dataset, batch_size=8, num_workers=num_workers)
            watched = millhead.watch(loader)
            batches += islice(watched, BATCHES)
            stats = watched.stats()
            setup.append(stats["setup_s"])
            first.append(stats["first_batch_s"])
            waits.append(stats["wait_s"]["mean"])
        print(
            f"Workers: {num_workers}, set-up {plus_minus(setup)}, first batch {plus_minus(first)}, "
            f"then {plus_minus(waits)} a batch"
        )
        print(f"result: workers {num_workers}: {len(batches)} batches {fingerprint(batches)}")


if __name__ == "__main__":
    main()
