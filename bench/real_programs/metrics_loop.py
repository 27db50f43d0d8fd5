"""Metrics in NumPy after every step, in the training process."""

TRUTH = {"causes": ["main-bound"], "hot": "quantile"}

import numpy as np
import torch
from common import COST, DataLoader, batches, model, settings, train_step
from torch.utils.data import TensorDataset

if __name__ == "__main__":
    rows = batches(100) * 32
    loader = DataLoader(
        TensorDataset(torch.rand(rows, 512)), **settings(batch_size=32, num_workers=1)
    )
    net, optimizer = model(512)
    history = np.random.default_rng(0).random(round(400_000 * COST))
    for (batch,) in loader:
        loss = train_step(net, optimizer, batch)
        np.percentile(history + loss, [1, 25, 50, 75, 99])
