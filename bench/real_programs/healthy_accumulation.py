"""Gradients of four batches are added up before each update, on something like a device."""

TRUTH = {"causes": ["device-bound"], "healthy": True}

import torch
from common import DataLoader, batches, device, model, settings
from torch.utils.data import TensorDataset

if __name__ == "__main__":
    torch.set_num_threads(1)
    rows = torch.rand(batches(120) * 32, 512)
    loader = DataLoader(TensorDataset(rows), **settings(batch_size=32, num_workers=1))
    net, optimizer = model(512, width=2048)
    for step, (batch,) in enumerate(loader, 1):
        net(batch).square().mean().backward()
        device(0.02)
        if step % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
