"""JPEG files decoded in the training process: no worker, a device that waits."""

TRUTH = {"causes": ["cpu-bound", "python-bound"], "hot": "PIL.", "gains": True}

from common import DataLoader, batches, device, settings
from pillow_jpeg import Photos

if __name__ == "__main__":
    loader = DataLoader(Photos(batches(50) * 4), **settings(batch_size=4, num_workers=0))
    for _batch in loader:
        device(0.03)
