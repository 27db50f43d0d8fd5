"""One arm of arrays.py in a process of its own: windows of a Zarr array, by millhead or a peer.

    array_arms.py ARM JOB.json       prints JSON: patches, seconds, cpu_s, decodes (or null)

Every arm reads the same patches in the same order, and keeps at most ``memory`` bytes of chunks where
it can keep any. Arms that are slow stop after ``seconds``; the rate is of what they did.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np


def cpu_seconds() -> float:
    """Of this process and the children it has waited for."""
    own, ended = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime


def slices(origin: list[int], window: list[int]) -> tuple[slice, ...]:
    return tuple(slice(at, at + length) for at, length in zip(origin, window, strict=True))


def batches_of(job: dict[str, Any]) -> list[list[list[int]]]:
    size = job["batch"]
    return [job["origins"][at : at + size] for at in range(0, len(job["origins"]), size)]


def millhead_batches(job: dict[str, Any]) -> Iterator[int]:
    """Yields once for the start, then for every batch the patches in it."""
    import millhead

    yield 0  # opening is timed, because threads begin there
    loader = millhead.Loader(
        job["store"], job["batch"], window=dict(zip(job["dims"], job["window"], strict=True)),
        shuffle=job["shuffle"], seed=1, threads=job["threads"], memory=job["memory"],
        output="numpy", decode=None, limit_batches=len(batches_of(job)),
    )  # fmt: skip
    for number, batch in enumerate(loader, 1):
        if number == len(batches_of(job)):  # and before the next epoch's are decoded
            job["decodes"] = loader._core_numbers()["units_decoded"]
        yield len(batch["f"])
    loader.close()


def tensorstore_batches(job: dict[str, Any]) -> Iterator[int]:
    import tensorstore as ts  # type: ignore[import-not-found,unused-ignore]

    context = ts.Context({
        "data_copy_concurrency": {"limit": job["threads"]},
        "file_io_concurrency": {"limit": 4},
        "cache_pool": {"total_bytes_limit": job["memory"]},
    })  # fmt: skip
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": job["store"] + "/f"}}
    array = ts.open(spec, context=context, recheck_cached_data=False).result()
    out = np.empty((job["batch"], *job["window"]), np.float32)
    yield 0
    for batch in batches_of(job):
        reads = [array[slices(origin, job["window"])].read() for origin in batch]
        for at, read in enumerate(reads):
            out[at] = read.result()
        yield len(batch)


def zarr_batches(job: dict[str, Any], zarrs: bool) -> Iterator[int]:
    import zarr

    zarr.config.set({"threading.max_workers": job["threads"]})
    if zarrs:
        zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    array = zarr.open_array(job["store"] + "/f", mode="r")
    out = np.empty((job["batch"], *job["window"]), np.float32)
    yield 0
    for batch in batches_of(job):
        for at, origin in enumerate(batch):
            out[at] = array[slices(origin, job["window"])]
        yield len(batch)


class Patches:
    """A dataset for torch's DataLoader, as users write it."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.array: Any = None  # opened by whoever reads first

    def __len__(self) -> int:
        return len(self.job["origins"])

    def __getitem__(self, number: int) -> Any:
        import zarr

        if self.array is None:
            self.array = zarr.open_array(self.job["store"] + "/f", mode="r")
        return self.array[slices(self.job["origins"][number], self.job["window"])]


def dataloader_batches(job: dict[str, Any]) -> Iterator[int]:
    import torch

    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(Patches(job), job["batch"], num_workers=job["threads"])
    yield 0
    for batch in loader:
        yield len(batch)


def xbatcher_batches(job: dict[str, Any]) -> Iterator[int]:
    """Its own grid of patches, which is ours, in our order."""
    import dask
    import xarray
    import xbatcher  # type: ignore[import-not-found,unused-ignore]

    dask.config.set(scheduler="threads", num_workers=job["threads"])
    data = xarray.open_zarr(job["store"], consolidated=False, decode_cf=False)["f"]
    sizes = dict(zip(job["dims"], job["window"], strict=True))
    grid = xbatcher.BatchGenerator(data, sizes, preload_batch=False)
    along = [n // w for n, w in zip(job["shape"], job["window"], strict=True)]
    yield 0
    for batch in batches_of(job):
        numbers = [
            np.ravel_multi_index(
                [o // w for o, w in zip(origin, job["window"], strict=True)], along
            )
            for origin in batch
        ]
        yield len(np.stack(dask.compute(*[grid[int(number)].data for number in numbers])))


ARMS = {
    "millhead": millhead_batches,
    "tensorstore": tensorstore_batches,
    "zarr": lambda job: zarr_batches(job, zarrs=False),
    "zarrs": lambda job: zarr_batches(job, zarrs=True),
    "dataloader": dataloader_batches,
    "xbatcher": xbatcher_batches,
}


def main() -> None:
    name, path = sys.argv[1:]
    with open(path) as file:
        job = json.load(file)
    batches = ARMS[name.removesuffix("-again")](job)
    next(batches)
    began, used, patches = time.perf_counter(), cpu_seconds(), 0
    for count in batches:
        patches += count
        if name.startswith("millhead"):
            continue  # to its end, so that decodes are of all patches
        if time.perf_counter() - began > job["seconds"]:
            break
    seconds = time.perf_counter() - began
    batches.close()
    print(json.dumps({"patches": patches, "seconds": seconds, "cpu_s": cpu_seconds() - used,
                      "decodes": job.get("decodes")}))  # fmt: skip


if __name__ == "__main__":
    main()
