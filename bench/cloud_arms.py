"""cloud_arms - one way to load windows of a Zarr store in a bucket, with a fake step: JSON of what it cost.

    python bench/cloud_arms.py ARM STORE STEP_S ORDER.json LOG

STORE is ``s3://bucket/x.zarr`` of the server that AWS_ENDPOINT_URL names, or a local directory. ORDER.json has
the numbers of the windows, batch after batch: every arm reads the same ones. LOG gets the lines that
Earthmover's program writes, which ``millhead report`` reads. bench/cloud.py runs it.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

BATCH, SEED = 16, 1
PATCH = {"time": 3, "latitude": 48, "longitude": 48}
OVERLAP = {"time": 2, "latitude": 32, "longitude": 32}
STRIDE = {name: PATCH[name] - OVERLAP[name] for name in PATCH}
FIELDS = ("t", "u", "v")
#: Workers and threads of Dask, where an arm has them.
WORKERS = {
    "earthmover": (0, None),
    "earthmover_w4": (4, 4),
    "earthmover_w8": (8, 4),
    "torch_zarr": (4, None),
}


def filesystem_options() -> dict[str, Any]:
    return {"client_kwargs": {"endpoint_url": os.environ["AWS_ENDPOINT_URL"]}}


# --- what DataLoader's workers do


class Xbatcher:
    """Earthmover's: xarray over Dask arrays, patches by xbatcher."""

    def __init__(self, store: str, threads: int | None) -> None:
        self._store, self._threads = store, threads
        self._patches: Any = None

    def _open(self) -> Any:
        import dask
        import dask.cache
        import xarray
        import xbatcher

        dask.cache.Cache(1e10).register()
        if self._threads:
            dask.config.set(scheduler="threads", num_workers=self._threads)
        data = xarray.open_zarr(self._store, storage_options=filesystem_options(), chunks={})
        return xbatcher.BatchGenerator(
            data[list(FIELDS)], input_dims=PATCH, input_overlap=OVERLAP, preload_batch=False
        )

    def __len__(self) -> int:
        return 1 << 30  # the order says which ones there are

    def __getitem__(self, number: int) -> Any:
        import torch

        if self._patches is None:
            self._patches = self._open()
        found = self._patches[number].load()
        return torch.tensor(np.stack([found[name].values for name in FIELDS]))


class ZarrWindows:
    """What one writes with torch, zarr and s3fs alone."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._group: Any = None

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, number: int) -> Any:
        import torch
        import zarr

        if self._group is None:
            self._group = zarr.open_consolidated(self._store, storage_options=filesystem_options())
        shape = self._group[FIELDS[0]].shape
        counts = [(size - PATCH[d]) // STRIDE[d] + 1 for size, d in zip(shape, PATCH, strict=True)]
        at = np.unravel_index(number, counts)
        place = tuple(
            slice(int(i) * STRIDE[d], int(i) * STRIDE[d] + PATCH[d])
            for i, d in zip(at, PATCH, strict=True)
        )
        return torch.tensor(np.stack([self._group[name][place] for name in FIELDS]))


def torch_loader(arm: str, store: str, order: list[int]) -> Iterable[Any]:
    import torch.utils.data

    torch.set_num_threads(1)
    workers, threads = WORKERS[arm]
    dataset: Any = ZarrWindows(store) if arm == "torch_zarr" else Xbatcher(store, threads)
    extra: dict[str, Any] = {}
    if workers:
        extra = {
            "prefetch_factor": 3,
            "persistent_workers": True,
            "multiprocessing_context": "forkserver",
        }
    return torch.utils.data.DataLoader(dataset, BATCH, sampler=order, num_workers=workers, **extra)


# --- ours


def millhead_loader(store: str, batches: int) -> Any:
    import millhead

    storage = {"endpoint_url": os.environ["AWS_ENDPOINT_URL"]} if "://" in store else None
    return millhead.Loader(
        store, BATCH, fields=(*FIELDS, "_index"), window=PATCH, stride=STRIDE, shuffle="blocks", seed=SEED,
        limit_batches=batches, in_flight=64, storage_options=storage, cache=os.environ.get("BENCH_CACHE"),
    )  # fmt: skip


class Kept:
    """What all batches held, copied, so that the loop lets go of each as a training loop does."""

    def __init__(self, batches: int) -> None:
        shape = (batches, BATCH, len(FIELDS), *PATCH.values())
        self.samples = np.full(shape, np.nan, np.float32)  # memory is touched before the clock runs
        self.index: list[int] = []

    def keep(self, number: int, batch: Any) -> None:
        """Sample, field, time, latitude, longitude."""
        if not isinstance(batch, dict):
            self.samples[number] = batch
            return
        for at, name in enumerate(FIELDS):
            self.samples[number, :, at] = batch[name]
        self.index += batch["_index"].tolist()


# --- the loop


def cpu_seconds() -> float:
    """Of this process and all that it started and that still live."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return float(sum(spent.user + spent.system for spent in times))


class Log:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w")

    def line(self, event: str, **more: Any) -> float:
        now = time.time()
        print(json.dumps({"event": event, "time": now, **more}), file=self._file, flush=True)
        return now


def train(batches: Iterator[Any], kept: Kept, step_s: float, log: Log) -> list[float]:
    """All batches but the first, which set-up took: the wait for each."""
    waits = []
    for number in range(len(kept.samples)):
        if number:
            began = time.perf_counter()
            batch = next(batches)
            waits.append(time.perf_counter() - began)
            kept.keep(number, batch)
        start = log.line("training start", batch=number)
        time.sleep(step_s)
        log.line("training end", batch=number, duration=time.time() - start)
    return waits


def run(arm: str, store: str, step_s: float, order: list[int], log: Log) -> dict[str, Any]:
    count = len(order) // BATCH
    kept = Kept(count)
    cpu = cpu_seconds()
    begun = log.line("run start", data_params=store, locals={"arm": arm, "train_step_time": step_s})
    log.line("setup start")
    loader = millhead_loader(store, count) if arm == "millhead" else torch_loader(arm, store, order)
    batches = iter(loader)
    first = next(batches)
    setup_s = time.time() - begun
    kept.keep(0, first)
    del first
    log.line("setup end", duration=setup_s)
    cpu_after = cpu_seconds()
    epoch = log.line("epoch start", epoch=0)
    waits = train(batches, kept, step_s, log)
    took = time.time() - epoch
    log.line("epoch end", epoch=0, duration=took)
    cpu_end = cpu_seconds()
    log.line("run end", duration=time.time() - begun)
    return {
        "arm": arm,
        "step_s": step_s,
        "setup_s": setup_s,
        "au": count * step_s / (count * step_s + sum(waits)),
        "mean_wait_s": sum(waits) / len(waits),
        "rate": len(waits) * BATCH / max(sum(waits) + step_s * len(waits), 1e-9),
        "cpu_per_sample": (cpu_end - cpu) / (count * BATCH),
        "cpu_per_sample_steady": (cpu_end - cpu_after) / (len(waits) * BATCH),
        "sha256": hashlib.sha256(kept.samples.tobytes()).hexdigest(),
        "index": kept.index or order,
    }


def main() -> None:
    arm, store, step_s, order, log = sys.argv[1:]
    numbers = json.loads(Path(order).read_text())
    # what a program imports before it has a loader is not the loader's
    for module in ("torch.utils.data", "millhead") if arm == "millhead" else ("torch.utils.data",):
        importlib.import_module(module)
    found = run(arm, store, float(step_s), numbers, Log(Path(log)))
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
