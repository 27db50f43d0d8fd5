"""Dask inside a loader's workers: what `python dask_cases.py CASE DIRECTORY` found, as JSON.

In processes of their own: tests of libraries that nobody has imported yet run in pytest's.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import dask.array
import numpy as np
import torch
import zarr
from distributed import Client, LocalCluster
from millhead.torch import DataLoader, shared_cluster

STEPS, SHAPE = 12, (4, 8)
STARTS = ("fork", "template", "spawn", "forkserver")


def with_pid(chunk: Any) -> Any:
    """The chunk, and behind it the process that has read it."""
    return np.concatenate([chunk.ravel(), [os.getpid()]]).astype("f8")[None]


class Weather:
    """Steps of a Zarr array; each is a chunk that dask reads."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.steps: Any = None

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> Any:
        if self.steps is None:
            self.steps = dask.array.from_zarr(self.path)
        step = self.steps[index : index + 1]
        size = int(np.prod(SHAPE)) + 1
        read = step.map_blocks(with_pid, drop_axis=2, chunks=(1, size), dtype="f8").compute()[0]
        return torch.from_numpy(read[:-1]), int(read[-1]), os.getpid()


class OpensFile(Weather):
    """A template refuses to fork this, so that workers start one by one."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.file = open(__file__)  # noqa: SIM115 - it is to stay open


class Plain:
    """Does not use dask."""

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> int:
        return index


class Configured(Plain):
    """What dask is told to use, in the process that loads."""

    def __getitem__(self, index: int) -> str:
        return str(dask.config.get("scheduler", None))


def meets(barrier: threading.Barrier) -> bool:
    """Whether as many tasks as the barrier waits for are computed at the same time."""
    try:
        barrier.wait(10)
    except threading.BrokenBarrierError:
        return False
    return True


class AtOnce(Plain):
    """How many of four tasks dask computes at once, in the process that loads: none, or all."""

    def __init__(self, start: str) -> None:
        self.start = start

    def __len__(self) -> int:
        return 1

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.start in ("spawn", "forkserver"):  # see OpensFile
            self.file = open(__file__)  # noqa: SIM115 - it is to stay open

    def __getitem__(self, index: int) -> int:
        barrier = threading.Barrier(4)
        return sum(dask.compute(*(dask.delayed(meets)(barrier) for _ in range(4))))  # type: ignore[attr-defined]


class ChoosesItself(Configured):
    """Says how dask is to compute when it arrives in a worker."""

    def __init__(self) -> None:
        self.scheduler = "single-threaded"

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        dask.config.set(scheduler=self.scheduler)


class Large(Plain):
    """Answers that dask decodes in a thread of its own."""

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(dask.array.full(2_000_000, index, chunks=-1, dtype="f8").compute())


class HoldsClient(Plain):
    """Uses a client of the training process."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def __getitem__(self, index: int) -> Any:
        return self.client.submit(abs, -index).result()


class HoldsFutures(Plain):
    """Has its data in the cluster's memory."""

    def __init__(self) -> None:
        self.numbers = dask.array.arange(STEPS, chunks=1).persist()

    def __getitem__(self, index: int) -> int:
        return int(self.numbers[index].compute())


class Elsewhere:
    """A worker_init_fn that connects to a cluster of its own choice."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __call__(self, worker: int) -> None:
        self.client = Client(self.address)


#: No dashboard, and no port that another cluster of this machine may have.
QUIET = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}


def cluster() -> Any:
    return LocalCluster(n_workers=1, threads_per_worker=2, scheduler_kwargs=QUIET)


def pids_of(cluster: Any) -> list[int]:
    return [worker.pid for worker in cluster.workers.values()]


def array(directory: Path) -> str:
    directory.mkdir(exist_ok=True)
    path = directory / "weather.zarr"
    if not path.exists():
        data = np.random.default_rng(0).random((STEPS, *SHAPE), dtype=np.float32)
        zarr.create_array(str(path), data=data, chunks=(1, *SHAPE))
    return str(path)


def load(dataset: Any, start: str = "fork", **arguments: Any) -> dict[str, Any]:
    """An epoch of two workers: its numbers, who read them and who asked."""
    if start == "template":
        start = "spawn"
    arguments = {"num_workers": 2, "multiprocessing_context": start, "timeout": 40, **arguments}
    found: dict[str, Any] = {"numbers": [], "readers": set(), "askers": set()}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader: Any = DataLoader(dataset, batch_size=2, **arguments)
        for numbers, readers, askers in loader:
            found["numbers"] += numbers.flatten().tolist()
            found["readers"].update(readers.tolist())
            found["askers"].update(askers.tolist())
    stats = loader.stats()
    return {
        **found,
        "start": stats["start"],
        "streaming": stats["streaming"],
        "advice": [str(item.message) for item in caught if "millhead" in str(item.message)],
    }


def modes(directory: Path) -> dict[str, Any]:
    """Each way to start workers with each mode."""
    path = array(directory)

    def dataset(start: str) -> Weather:
        return OpensFile(path) if start in ("spawn", "forkserver") else Weather(path)

    found: dict[str, Any] = {
        "alone": load(Weather(path), num_workers=0, multiprocessing_context=None, timeout=0)
    }
    for start in STARTS:
        found[f"{start} single-threaded"] = load(dataset(start), start)
        found[f"{start} threads"] = load(dataset(start), start, worker_threads=3)
    with cluster() as ours, Client(ours):
        found["cluster"] = pids_of(ours)
        for start in STARTS:
            found[f"{start} cluster"] = load(dataset(start), start)
    return found


def choices(directory: Path) -> dict[str, Any]:
    """What the program has said itself, while it has a cluster."""
    data = Weather(array(directory))
    found: dict[str, Any] = {}
    with cluster() as ours, Client(ours):
        with dask.config.set(scheduler="single-threaded"):
            found["single-threaded"] = load(data)
        with dask.config.set(scheduler="threads", num_workers=4):
            found["threads"] = load(data, num_workers=8)
        plain: Any = DataLoader(Plain(), num_workers=2)
        list(plain)
        found["plain"] = plain.stats()["threads_seen"]
        untouched: Any = DataLoader(
            Configured(), num_workers=1, worker_threads=None, multiprocessing_context="spawn"
        )
        found["None"] = next(iter(untouched)), untouched.stats()["streaming"]
        with cluster() as theirs:
            found["theirs"] = pids_of(theirs)
            found["init"] = load(data, worker_init_fn=Elsewhere(theirs.scheduler_address))
            found["init spawn"] = load(
                data, "template", worker_init_fn=Elsewhere(theirs.scheduler_address)
            )
    return found


def carried(directory: Path) -> dict[str, Any]:
    """What the program has said itself, for workers that inherit nothing."""
    data = Weather(array(directory))
    found: dict[str, Any] = {}
    ways: dict[str, dict[str, Any]] = {
        "single-threaded": {"scheduler": "single-threaded"},
        "number": {"num_workers": 4},
        "threads": {"scheduler": "threads", "num_workers": 4},
        "pool": {"pool": ThreadPoolExecutor(4)},
        "executor": {"scheduler": ThreadPoolExecutor(4)},
        "processes": {"scheduler": "processes"},
    }
    for name, way in ways.items():
        with dask.config.set(way):
            found[name] = load(data, "template", worker_threads=3)
    with dask.config.set(scheduler="threads", num_workers=4), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # workers start one by one
        for start in STARTS:
            kind = "spawn" if start == "template" else start
            loader: Any = DataLoader(AtOnce(start), num_workers=1, multiprocessing_context=kind)
            found[f"{start} at once"] = [int(number) for number in loader]
        own: Any = DataLoader(ChoosesItself(), num_workers=1, multiprocessing_context="spawn")
        found["own"] = next(iter(own))
    return found


def inside(directory: Path) -> dict[str, Any]:
    """A cluster that no other process can reach."""
    with LocalCluster(processes=False, scheduler_kwargs=QUIET) as ours, Client(ours):
        return {start: load(Weather(array(directory)), start) for start in ("fork", "template")}


def forks(directory: Path) -> dict[str, Any]:
    """What comes by a fork: the client, its futures, its threads, and what listens."""
    with cluster() as ours, Client(ours) as client:
        Large()[0]  # the thread that decodes is there before the fork
        large = [int(batch[0, -1]) for batch in DataLoader(Large(), num_workers=2, timeout=40)]
        loader = DataLoader(HoldsFutures(), num_workers=2, timeout=40)
        futures = [int(number) for batch in loader for number in batch]
        try:
            next(iter(DataLoader(HoldsClient(client), num_workers=1, timeout=40)))
            held = ""
        except Exception as error:  # noqa: BLE001 - to look at
            held = f"{type(error).__name__}: {error}"
    return {"large": large, "futures": futures, "held": held}


def pools(directory: Path) -> dict[str, Any]:
    """Pools of threads that the training process has used."""
    data = Weather(array(directory))
    ways: dict[str, dict[str, Any]] = {
        "number": {"scheduler": "threads", "num_workers": 3},
        "default": {"scheduler": "threads"},
        "pool": {"pool": ThreadPoolExecutor(3)},
        "executor": {"scheduler": ThreadPoolExecutor(3)},
    }
    found = {}
    for name, way in ways.items():
        with dask.config.set(way):
            data[0]
            found[name] = load(data)
    return found


def outlived(directory: Path) -> str:
    """Workers that go on when the cluster is closed."""
    dask.config.set({"distributed.comm.timeouts.connect": "2s"})
    with cluster() as ours, Client(ours):
        loader = DataLoader(
            Weather(array(directory)), num_workers=1, persistent_workers=True, timeout=40
        )
        list(loader)
    try:
        list(loader)
    except Exception as error:  # noqa: BLE001 - to look at
        return f"{type(error).__name__}: {error}"
    return ""


def alone(directory: Path) -> dict[str, Any]:
    """A shared cluster without ranks."""
    with shared_cluster(workers=1, threads=2) as client:
        inside = load(Weather(array(directory)))
        threads = client.nthreads()
    return {**inside, "threads": list(threads.values()), "after": load(Weather(array(directory)))}


def waits(directory: Path) -> None:
    """Stays in the block until it is ended."""
    with shared_cluster(workers=1, threads=1):
        iterator = iter(DataLoader(Weather(array(directory)), num_workers=1))
        next(iterator)
        print("ready", flush=True)
        sys.stdin.read()


CASES: dict[str, Callable[[Path], Any]] = {
    case.__name__: case
    for case in (modes, choices, carried, inside, forks, pools, outlived, alone, waits)
}

if __name__ == "__main__":
    result = CASES[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps(result, default=sorted))
