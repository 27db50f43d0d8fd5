"""Optimizing the pipeline: Data, Dask's execution modes under a loader's workers.

The document's lines: `dask.config.set(scheduler="single-threaded")`,
`dask.config.set(scheduler="threads", num_workers=dask_threads)`, and LocalCluster with Client.
Added: a small Zarr array to read, the data set whose __getitem__ makes Dask read one chunk of it, a
loader per mode, and the mode and all its threads as the loader tells them. The more Dask does at once,
the fewer workers the loader needs. With a cluster they only ask for chunks, which its processes read;
torch's loader has none then, because a client's threads do not survive the fork of its workers.
Every mode must give the same numbers.
"""

import tempfile
from pathlib import Path

import dask
import dask.array
import numpy as np
import torch
import zarr
from dask.distributed import Client, LocalCluster
from fingerprint import fingerprint
from millhead.torch import DataLoader, Dataset

STEPS, STEP_SHAPE = 24, (16, 32)
IS_MILLHEADS = hasattr(DataLoader, "stats")


class Weather(Dataset):
    """Steps in time of an array on disk; one is read when it is asked for."""

    def __init__(self, path):
        self.path = path
        self.steps = None

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        if self.steps is None:  # opened where it is used: each worker has its own
            self.steps = dask.array.from_zarr(self.path)
        return torch.from_numpy(self.steps[index].compute())


def show(mode, dataset, num_workers):
    loader = DataLoader(dataset, batch_size=4, num_workers=num_workers)
    batches = list(loader)
    print(f"result: {mode}: {len(batches)} batches {fingerprint(batches)}")
    if IS_MILLHEADS:
        print(f"streaming: {loader.stats()['streaming']}")


def main():
    dask_threads = 2
    with tempfile.TemporaryDirectory(prefix="millhead-weather-") as folder:
        path = str(Path(folder) / "weather.zarr")
        zarr.create_array(
            path,
            data=np.random.default_rng(0).random((STEPS, *STEP_SHAPE), dtype=np.float32),
            chunks=(1, *STEP_SHAPE),
        )

        with dask.config.set(scheduler="single-threaded"):
            show("single-threaded", Weather(path), num_workers=2)

        with dask.config.set(scheduler="threads", num_workers=dask_threads):
            show("threads", Weather(path), num_workers=1)

        with (
            LocalCluster(
                n_workers=1, threads_per_worker=dask_threads, dashboard_address=None
            ) as cluster,
            Client(cluster),
        ):
            show("cluster", Weather(path), num_workers=2 if IS_MILLHEADS else 0)


if __name__ == "__main__":
    main()
