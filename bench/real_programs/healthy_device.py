"""A device that computes on while the thread has launched its step, and sleeps in .item()."""

TRUTH = {"causes": ["device-bound"], "healthy": True}

import torch
from common import DataLoader, batches, device, model, settings, train_step
from pillow_jpeg import Photos

if __name__ == "__main__":
    torch.set_num_threads(1)
    loader = DataLoader(Photos(batches(60) * 2), **settings(batch_size=2, num_workers=1))
    net, optimizer = model(3 * 32 * 32)
    for batch in loader:
        small = torch.nn.functional.adaptive_avg_pool2d(batch.float(), 32)
        train_step(net, optimizer, small)
        device(0.06)
