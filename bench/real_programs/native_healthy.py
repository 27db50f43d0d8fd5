"""The native loader, and a loop that it keeps up with."""

TRUTH = {"causes": ["device-bound"], "healthy": True, "loaders": ["torch"]}

import millhead
import numpy as np
from common import batches, device, scratch, settings

if __name__ == "__main__":
    path = scratch() / "near.npy"
    if not path.exists():
        np.save(path, np.zeros((2000, 4096), "f4"))
    loader = millhead.Loader(
        str(path), shuffle=True, limit_batches=batches(100), **settings(batch_size=16)
    )
    for _batch in loader:
        device(0.02)
