"""Optimizing the pipeline: Data, snippet 2: put in your data set, then compare configurations.

The document's line: the import of DummyDataset as YourDataset, and in prose the configurations:
a baseline without workers, then workers, prefetch_factor, persistent_workers, pin_memory and the
start method.
Added: dummydataset.py, and the loop that the document's benchmark script has: three epochs with a
simulated training step, and how long the loop waited for its batches.
Changed: steps of 2 ms instead of 100 ms, worker counts for two cores instead of ten.
"""

import time
from typing import Any

import torch
from dummydataset import DummyDataset as YourDataset  # replace with your dataset
from fingerprint import fingerprint
from millhead.torch import DataLoader

EPOCHS, TRAIN_STEP_S = 3, 0.002
ON_GPU = torch.cuda.is_available()  # the document: pin_memory=True when using a GPU
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "baseline": {
        "num_workers": 0,
        "prefetch_factor": None,
        "persistent_workers": False,
        "pin_memory": False,
    },
    "workers": {"num_workers": 2, "persistent_workers": True, "pin_memory": ON_GPU},
    "higher prefetch_factor": {
        "num_workers": 2,
        "prefetch_factor": 4,
        "persistent_workers": True,
        "pin_memory": ON_GPU,
    },
    "forkserver": {
        "num_workers": 1,
        "persistent_workers": True,
        "multiprocessing_context": "forkserver",
    },
}


def main() -> None:
    for name, configuration in CONFIGURATIONS.items():
        loader = DataLoader(YourDataset(), batch_size=8, **configuration)
        batches, waited = [], 0.0
        for _ in range(EPOCHS):
            asked = time.perf_counter()
            for batch in loader:
                waited += time.perf_counter() - asked
                batches.append(batch)
                time.sleep(TRAIN_STEP_S)  # simulate model training
                asked = time.perf_counter()
        print(f"{name}: waited {1000 * waited / len(batches):.1f} ms for a batch")
        print(f"result: {name}: {len(batches)} batches {fingerprint(batches)}")


if __name__ == "__main__":
    main()
