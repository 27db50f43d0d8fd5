"""An evaluation without an optimizer, most of which is a metric in NumPy."""

TRUTH = {"causes": ["main-bound"], "hot": "numpy"}

import numpy as np
import torch
from common import COST, DataLoader, batches, device, model, settings
from torch.utils.data import TensorDataset


def average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    """As evaluations compute it, of all classes at once."""
    hits = labels[np.argsort(-scores)]
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return float((precision * hits).sum() / hits.sum())


if __name__ == "__main__":
    torch.set_num_threads(1)
    rows = torch.rand(batches(80) * 32, 512)
    loader = DataLoader(TensorDataset(rows), **settings(batch_size=32, num_workers=1))
    net, _ = model(512)
    rng = np.random.default_rng(0)
    scores = rng.random(round(150_000 * COST))
    labels = rng.random(len(scores)) < 0.1
    with torch.no_grad():
        for (batch,) in loader:
            found = net(batch).numpy()
            device(0.01)
            average_precision(scores + found[0, 0], labels)
