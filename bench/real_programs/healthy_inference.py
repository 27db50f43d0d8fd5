"""Inference without an optimizer: a network on the CPU, then a device that the loop waits for."""

TRUTH = {"causes": ["device-bound"], "healthy": True}

import torch
from common import DataLoader, batches, device, model, settings
from torch.utils.data import TensorDataset

if __name__ == "__main__":
    torch.set_num_threads(1)
    rows = torch.rand(batches(150) * 64, 512)
    loader = DataLoader(TensorDataset(rows), **settings(batch_size=64, num_workers=1))
    net, _ = model(512, width=4096)
    with torch.no_grad():
        for (batch,) in loader:
            net(batch)
            device(0.02)
