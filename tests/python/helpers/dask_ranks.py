"""Ranks with one dask cluster, run by torchrun: `dask_ranks.py CASE DIRECTORY`.

Each rank writes DIRECTORY/CASE.RANK.json: what it found.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import distributed
import torch
import torch.distributed as dist
from millhead.torch import shared_cluster
from millhead.torch.workers import dask_cluster

from helpers import dask_cases


def tell(directory: Path, case: str, found: Any) -> None:
    text = json.dumps(found, default=sorted)
    (directory / f"{case}.{dist.get_rank()}.json").write_text(text)


def slow_pid() -> int:
    time.sleep(1)
    return os.getpid()


def share(directory: Path) -> Any:
    """Two workers on each rank; the rank that has the cluster leaves first."""
    path = dask_cases.array(directory / str(dist.get_rank()))
    with shared_cluster(workers=1, threads=2) as client:
        found = dask_cases.load(dask_cases.Weather(path))
        found["threads"] = list(client.nthreads().values())
        dist.barrier()
        if dist.get_rank() == 1:  # while the other leaves
            found["late"] = client.submit(slow_pid).result()
    found["after"] = client.status
    return found


def machines(directory: Path) -> Any:
    """As if each rank were on a machine of its own."""
    dask_cluster.machine = lambda: f"machine {dist.get_rank()}"  # type: ignore[assignment]
    path = dask_cases.array(directory / str(dist.get_rank()))
    with shared_cluster(workers=1, threads=1):
        return dask_cases.load(dask_cases.Weather(path))


def fails(directory: Path) -> Any:
    """The first rank cannot start a cluster, later the second cannot connect."""

    def refuse(*arguments: Any, **more: Any) -> Any:
        raise OSError("no room for this")

    found = []
    for rank, name in ((0, "LocalCluster"), (1, "Client")):
        kept = getattr(distributed, name)
        if dist.get_rank() == rank:
            setattr(distributed, name, refuse)
        try:
            with shared_cluster(workers=1, threads=1):
                found.append("entered")
        except (OSError, RuntimeError) as error:
            found.append(f"{type(error).__name__}: {error}")
        setattr(distributed, name, kept)
    return found


def ends(directory: Path, end: Callable[[], None]) -> None:
    """A rank ends while the other is in a step that needs it."""
    with shared_cluster(workers=1, threads=1):
        dist.barrier()
        if dist.get_rank() == int(os.environ["ENDING_RANK"]):
            end()
        dist.all_reduce(torch.ones(1))


def forsaken(directory: Path) -> str:
    """The second rank is killed, and nobody ends the first for it."""
    with shared_cluster(workers=1, threads=1):
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return "left"


def raise_error() -> None:
    raise ValueError("this rank has enough")


CASES: dict[str, Callable[[Path], Any]] = {
    case.__name__: case for case in (share, machines, fails, forsaken)
}


def main() -> None:
    cases, directory = sys.argv[1].split(","), Path(sys.argv[2])
    dist.init_process_group("gloo")
    for case in cases:
        if case == "raise":
            ends(directory, raise_error)
        elif case == "kill":
            ends(directory, lambda: os.kill(os.getpid(), signal.SIGKILL))
        else:
            tell(directory, case, CASES[case](directory))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
