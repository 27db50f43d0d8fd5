"""Datasets that use libraries with thread pools inside ``__getitem__``, and tell what they found.

Importable, and light to import: the libraries are loaded where they are used, as users do it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import get_worker_info

#: A number of threads that nobody has by default, to stand for a choice of the user's.
THREE = 3


def threads() -> int:
    """Threads of this process; millhead's watching one and one that tends pyarrow's heap, asleep, not counted."""
    names = []
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/comm") as file:
            names.append(file.read().strip())
    return len(names) - names.count("mh-watch") - names.count("jemalloc_bg_thd")


# ---- one function per library: real work, its result, and what the library's pool is set to ------


def use_numpy() -> tuple[int, Any]:
    import numpy as np
    import scipy.linalg  # noqa: F401 - dask imports it, and its BLAS has threads of its own
    from millhead.torch.workers import native_pools

    ones = np.ones((600, 600))
    blas = [pool for pool in native_pools.loaded() if isinstance(pool, native_pools.OpenBlas)]
    return int((ones @ ones).sum()), {p.now() for p in blas if "numpy" in p.library._name}.pop()


def use_torch() -> tuple[int, Any]:
    ones = torch.ones(1500, 1500)
    return int((ones * 2).sum(dtype=torch.int64)), torch.get_num_threads()


def use_cv2() -> tuple[int, Any]:
    import cv2
    import numpy as np

    image = np.full((1500, 1500, 3), 7, np.uint8)
    return int(cv2.GaussianBlur(image, (31, 31), 5).sum()), cv2.getNumThreads()


def use_dask() -> tuple[int, Any]:
    import dask
    import dask.array

    total = dask.array.ones((1000, 1000), chunks=100, dtype="i8").sum().compute()
    return int(total), dask.config.get("scheduler", None)


def use_zarr() -> tuple[int, Any]:
    import zarr

    array = zarr.create_array({}, shape=(200, 200), chunks=(20, 20), dtype="i4")
    array[:] = 3
    return int(array[:].sum()), zarr.config.get("threading.max_workers")


def use_numcodecs() -> tuple[int, Any]:
    import numcodecs
    import numpy as np

    numcodecs.blosc.use_threads = True  # it never would by itself in a daemon
    codec = numcodecs.Blosc()
    decoded = np.frombuffer(codec.decode(codec.encode(np.arange(1_000_000))), "i8")
    return int(decoded.sum()), numcodecs.blosc.get_nthreads()


def use_polars() -> tuple[int, Any]:
    import polars

    frame = polars.DataFrame({"a": range(10_000)})
    return int(frame.lazy().select(polars.col("a").sum()).collect().item()), (
        polars.thread_pool_size()
    )


class ImportsPolars:
    """Imports polars when unpickled, which starts threads, and gives the size of its pool."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return int(use_polars()[1])

    def __setstate__(self, state: dict[str, Any]) -> None:
        import polars

        self.imported = polars

    def __getstate__(self) -> dict[str, Any]:
        return {"imported": True}


LIBRARIES: dict[str, Callable[[], tuple[int, Any]]] = {
    "numpy": use_numpy,
    "torch": use_torch,
    "cv2": use_cv2,
    "dask": use_dask,
    "zarr": use_zarr,
    "numcodecs": use_numcodecs,
    "polars": use_polars,
}


class UsesLibraries:
    """Sample i uses library i // 2: with two workers and batches of one, each uses every library."""

    def __init__(self, *names: str) -> None:
        self.names = names or tuple(LIBRARIES)

    def __len__(self) -> int:
        return 2 * len(self.names)

    def __getitem__(self, index: int) -> dict[str, Any]:
        name = self.names[index // 2]
        before = threads()
        value, setting = LIBRARIES[name]()
        info = get_worker_info()
        facts = {
            "worker": info.id if info is not None else None,
            "library": name,
            "setting": setting,
            "started": threads() - before,
            "variables": {key: value for key, value in os.environ.items() if "THREADS" in key},
        }
        return {"value": value, "facts": json.dumps(facts)}


class OpensFile(UsesLibraries):
    """A template refuses to fork this, so that workers start one by one."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.file = open(__file__)  # noqa: SIM115 - it is to stay open


def choose_three(worker: int) -> None:
    """A ``worker_init_fn`` that sets what it can, of libraries that are not loaded before."""
    import cv2
    import dask
    import numcodecs
    import zarr

    os.environ["POLARS_MAX_THREADS"] = str(THREE)
    cv2.setNumThreads(THREE)
    dask.config.set(scheduler="threads", num_workers=THREE)
    zarr.config.set({"threading.max_workers": THREE})
    numcodecs.blosc.set_nthreads(THREE)


class Sleepers:
    """Each process that loads starts threads that only sleep."""

    def __init__(self, length: int, count: int) -> None:
        self.length = length
        self.count = count
        self.started = False

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if not self.started:
            self.started = True
            for _ in range(self.count):
                threading.Thread(target=threading.Event().wait, daemon=True).start()
        return index


class Multiplies:
    """Matrix products for a good while, by more threads than there are CPUs."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        import time

        import numpy as np
        from millhead.torch.workers import native_pools

        for pool in native_pools.loaded():
            if isinstance(pool, native_pools.OpenBlas):
                pool.set(4)
        ones = np.ones((700, 700))
        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            ones @ ones
        return index
