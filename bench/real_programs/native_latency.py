"""The native loader with few reads under way, far from its data."""

TRUTH = {"causes": ["latency-bound"], "fix": "in_flight=", "gains": True, "loaders": ["torch"]}

import millhead
import numpy as np
from common import batches, device, scratch, settings

BATCH = 16

if __name__ == "__main__":
    path = scratch() / "far.npy"
    if not path.exists():
        np.save(path, np.zeros((20_000, 4096), "f4"))
    own = settings(batch_size=BATCH, in_flight=2)
    loader = millhead.Loader(
        str(path),
        shuffle=True,
        simulate="latency=5ms",
        limit_batches=batches(100),
        memory="64MB",
        **own,
    )
    for _batch in loader:
        device(0.01)
