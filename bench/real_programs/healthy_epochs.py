"""Epochs with workers that stay, checkpoints between them, and a loader that keeps up."""

TRUTH = {"causes": ["device-bound"], "healthy": True}

import torch
from common import DataLoader, batches, device, model, scratch, settings, train_step
from torch.utils.data import TensorDataset

if __name__ == "__main__":
    torch.set_num_threads(1)
    own = settings(batch_size=16, num_workers=1, persistent_workers=True)
    loader = DataLoader(TensorDataset(torch.rand(40 * 16, 512)), **own)
    net, optimizer = model(512)
    for _epoch in range(batches(4)):
        for (batch,) in loader:
            train_step(net, optimizer, batch)
            device(0.025)
        torch.save(net.state_dict(), scratch() / "checkpoint.pt")
