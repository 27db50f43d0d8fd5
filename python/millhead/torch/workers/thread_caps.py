"""One number for all thread pools of a worker (``worker_threads``), where the user gave none.

W workers whose libraries each start a thread per CPU get in each other's way. What is set already
stays: variables of the environment, a scheduler of dask's, ``cv2.setNumThreads``. And since all of
this happens before ``worker_init_fn``, what that says comes last.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from millhead._import_hook import when_imported
from millhead.torch.workers import dask_modes, native_pools


@dataclass
class Caps:
    """What the trainer decides for its workers."""

    #: Threads of a pool; None: everything is left alone.
    limit: int | None
    #: Variables for libraries that a worker has yet to load.
    variables: dict[str, str]
    #: What forked workers change: found by the trainer, because every object that a worker touches
    #: is a page to copy.
    sizes: native_pools.Sizes | None = None
    #: Where the trainer has dask compute, and its workers too.
    cluster: dask_modes.Cluster | None = None
    #: What the trainer's configuration of dask says, for workers that do not inherit it.
    chosen: dask_modes.Streaming | None = None


def decide(limit: int | None) -> Caps:
    """The caps of workers that start now, from this process's environment."""
    if limit is None:
        return Caps(None, {})
    variables = dict.fromkeys(native_pools.not_set(), str(limit))
    cluster, chosen = dask_modes.cluster_in_use(), dask_modes.choice_of_program()
    return Caps(limit, variables, cluster=cluster, chosen=chosen)


def cap(caps: Caps, start: str) -> None:
    """In a worker, before any code of the user's: keep its pools small."""
    sizes = native_pools.sizes(caps.limit, start) if caps.sizes is None else caps.sizes
    for pool, threads in sizes:
        pool.set(threads)
    os.environ.update(caps.variables)
    forked = start == "fork"
    # Torch's loader has 1 here. A pool of OpenMP's that the trainer used hangs in a forked worker.
    most = 1 if caps.limit is None or forked else caps.limit
    torch.set_num_threads(1 if most == 1 else min(most, len(os.sched_getaffinity(0))))
    if caps.limit is None:
        return
    for name in ("dask", *_KNOWN):
        came_by_fork = forked and name in sys.modules
        when_imported(name, functools.partial(_cap_module, name, caps, came_by_fork))


# --- libraries in Python that need a call ---


def _cap_opencv(cv2: Any, limit: int, forked: bool) -> None:
    most = 1 if forked else limit
    if cv2.getNumThreads() == cv2.getNumberOfCPUs() > most:
        # 0: no pool at all. Any other number may wait for threads that stayed in the trainer.
        cv2.setNumThreads(0 if most == 1 else most)


def _cap_numcodecs(numcodecs: Any, limit: int, forked: bool) -> None:
    blosc = numcodecs.blosc
    if blosc.get_nthreads() == min(8, os.cpu_count() or 1) > limit:  # what its import sets
        blosc.set_nthreads(limit)


def _cap_zarr(zarr: Any, limit: int, forked: bool) -> None:
    # Not async.concurrency: those are requests under way, which take no thread and hide latency.
    if zarr.config.get("threading.max_workers") is None:
        zarr.config.set({"threading.max_workers": limit})


_KNOWN: dict[str, Callable[[Any, int, bool], None]] = {
    "cv2": _cap_opencv,
    "numcodecs": _cap_numcodecs,
    "zarr": _cap_zarr,
}


def _cap_module(name: str, caps: Caps, forked: bool, module: Any) -> None:
    limit = caps.limit or 1
    # Another version of the library may lack what is asked for: then its pool stays as it is.
    with contextlib.suppress(Exception):
        if name == "dask":
            dask_modes.settle(module, limit, caps.cluster, caps.chosen, forked)
        else:
            _KNOWN[name](module, limit, forked)
