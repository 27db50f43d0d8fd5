"""Runs one planted loop, watched: ``python planted.py RUN_DIRECTORY < LOOP``; prints its seconds.

Of a loop with several ranks this is one, named by RANK and WORLD_SIZE as torchrun does.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from functools import partial
from typing import Any

import disk
import millhead
import torch
import torch.distributed
import torch.utils.data
from millhead.data import Dummy, burn_python
from plants import BATCH, Loop


def _sleep_at_start(seconds: float, _worker: int) -> None:
    time.sleep(seconds)


class Reading(Dummy):
    """Samples that come from the disk."""

    def __init__(self, pieces: int, data: dict[str, Any]) -> None:
        super().__init__(**data)
        self.pieces = pieces

    def __getitem__(self, index: int) -> Any:
        disk.read(index * self.pieces, self.pieces)
        return super().__getitem__(index)


class Locked(Dummy):
    """Samples behind a lock that all workers share."""

    def __init__(self, seconds: float, data: dict[str, Any]) -> None:
        super().__init__(**data)
        self.seconds = seconds
        self.lock = multiprocessing.Lock()

    def __getitem__(self, index: int) -> Any:
        with self.lock:
            time.sleep(self.seconds)
        return super().__getitem__(index)


def loader_of(loop: Loop) -> Any:
    """The loop's DataLoader over a Dummy of its costs."""
    data = {"length": loop.batches * BATCH, "shape": (64,), **loop.data}
    dataset = Reading(loop.pieces, data) if loop.pieces else Dummy(**data)
    if loop.locked_s:
        dataset = Locked(loop.locked_s, data)
    options: dict[str, Any] = {"batch_size": BATCH, "num_workers": loop.workers}
    if "collate_cpu" in data:
        options["collate_fn"] = dataset.collate
    if loop.workers:
        options |= {
            "prefetch_factor": loop.prefetch,
            "persistent_workers": loop.persistent,
            "in_order": loop.in_order,
        }
        if loop.init_s:
            options["worker_init_fn"] = partial(_sleep_at_start, loop.init_s)
    if loop.loader == "torch":
        return torch.utils.data.DataLoader(dataset, **options)
    import millhead.torch

    return millhead.torch.DataLoader(dataset, **options)


def train(loop: Loop, run: str) -> float:
    """All epochs; the seconds they took."""
    watched = millhead.watch(loader_of(loop), run=run)
    began = time.perf_counter()
    for _ in range(loop.epochs):
        for _batch in watched:
            burn_python(loop.main_s)
            time.sleep(loop.step_s)  # the device's, so far as this thread can see
    return time.perf_counter() - began


def train_ranks(loop: Loop, run: str) -> float:
    """As one rank of several: they meet in every step, as gradients do."""
    torch.distributed.init_process_group("gloo")
    late = loop.slow_s if torch.distributed.get_rank() == loop.slow_rank else 0.0
    loader = loader_of(_later(loop, late))
    timer = millhead.StepTimer(run=run, quiet=True, sync=False)
    gradient = torch.zeros(1)
    torch.distributed.barrier()
    began = time.perf_counter()
    for _batch in timer.loop(loader):
        with timer.forward:
            time.sleep(loop.step_s / 2)
        with timer.backward:
            time.sleep(loop.step_s / 2)
            torch.distributed.all_reduce(gradient)
    seconds = time.perf_counter() - began
    torch.distributed.destroy_process_group()
    return seconds


def _later(loop: Loop, seconds: float) -> Loop:
    return Loop(**{**loop.__dict__, "data": {**loop.data, "latency": seconds / BATCH}})


def main() -> None:
    """Train, and tell how long it took."""
    torch.set_num_threads(1)
    loop = Loop(**json.load(sys.stdin))
    run = sys.argv[1]
    seconds = train_ranks(loop, run) if "RANK" in os.environ else train(loop, run)
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
