"""A network trained on the CPU, with a loader that keeps up."""

TRUTH = {"causes": ["device-bound"], "healthy": True}

import torch
from common import DataLoader, batches, model, settings, train_step
from torch.utils.data import TensorDataset

if __name__ == "__main__":
    torch.set_num_threads(1)
    rows = batches(150) * 64
    loader = DataLoader(
        TensorDataset(torch.rand(rows, 512)), **settings(batch_size=64, num_workers=1)
    )
    net, optimizer = model(512, width=2048)
    for (batch,) in loader:
        train_step(net, optimizer, batch)
