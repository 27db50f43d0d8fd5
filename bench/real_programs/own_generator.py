"""Batches from a generator written by hand, which no loader makes ahead of the loop."""

TRUTH = {
    "causes": ["python-bound", "cpu-bound"],
    "fix": "millhead.prefetch(",
    "loaders": ["torch"],
}

import random

import millhead
import torch
from common import batches, device, settings


def made(count: int):
    """Batches of random walks, in Python."""
    rng = random.Random(0)
    for _ in range(count):
        rows = []
        for _ in range(16):
            at, walk = 0.0, []
            for _ in range(500):
                at += rng.random() - 0.5
                walk.append(at)
            rows.append(walk)
        yield torch.tensor(rows)


if __name__ == "__main__":
    settings()
    for _batch in millhead.watch(made(batches(200))):
        device(0.01)
