"""Dask in workers: in the thread that asks, in a pool, or on the cluster of the training process.

A client does not survive a fork, because its threads stay behind, and a spawned worker knows nothing of
it. So workers get the address of the scheduler, and connect when dask first computes something there.
Dask is never imported here: where the program has not, there is nothing to do.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from millhead.torch.loader_stats import advise

#: What a client puts into dask's configuration.
_BY_CLIENT = ("dask.distributed", "distributed")
_SINGLE = ("sync", "synchronous", "single-threaded")
_THREADS = ("threads", "threading")


@dataclass(frozen=True)
class Cluster:
    """What a worker needs to connect."""

    address: str
    security: Any
    #: Of all its workers, when the trainer looked; None: nobody knows.
    threads: int | None
    #: Whether this process started it on this machine, so that each rank may have one.
    own: bool


@dataclass(frozen=True)
class Streaming:
    """How dask loads in a loader's workers: dask's names of its modes, as in ``millhead plan threads``."""

    mode: str
    #: Of one worker, or of the whole cluster; None: nobody knows.
    threads: int | None

    def total(self, workers: int) -> int | None:
        """Threads of so many workers, or of their cluster."""
        if self.threads is None or self.mode == "cluster":
            return self.threads
        return workers * self.threads


# --- in the training process ---


def cluster_in_use() -> Cluster | None:
    """The cluster that dask computes on in this process, if other processes can reach it."""
    client = _client_in_use()
    if client is None:
        return None
    address = str(client.scheduler.address)
    if address.startswith("inproc://"):
        reason = "it is inside this process: LocalCluster(processes=True) serves them, too"
    else:
        try:
            pickle.dumps(client.security)
            own = isinstance(client.cluster, sys.modules["distributed"].LocalCluster)
            return Cluster(address, client.security, _threads_of(client), own)
        except Exception as error:  # noqa: BLE001 - whatever a class of the user's raises
            reason = f"its security cannot be pickled, {type(error).__name__}"
    advise(
        "cluster-out-of-reach",
        f"workers compute by themselves what this process has its dask cluster compute ({address}): "
        f"{reason}",
    )
    return None


def _client_in_use() -> Any:
    distributed, dask = sys.modules.get("distributed"), sys.modules.get("dask")
    if distributed is None or dask is None:
        return None
    with contextlib.suppress(Exception):  # none, a closed one, or another version's ways
        if dask.config.get("scheduler", None) in (None, *_BY_CLIENT):
            client = distributed.Client.current()
            if client.status == "running" and client.scheduler is not None:
                return client
    return None


def _threads_of(client: Any) -> int | None:
    """One question to the scheduler, for its totals alone where this version of dask can ask so."""
    with contextlib.suppress(Exception):
        try:
            info = client.scheduler_info(n_workers=0)
        except TypeError:
            info = client.scheduler_info()
        if "total_threads" in info:
            return int(info["total_threads"])
        return sum(int(worker["nthreads"]) for worker in info["workers"].values())
    return None


def streaming_of(
    limit: int | None, cluster: Cluster | None, chosen: Streaming | None, start: str
) -> Streaming | None:
    """What workers that start now are told; None: nothing, or what has no name here."""
    if limit is None:
        return None
    if cluster is not None:
        return Streaming("cluster", cluster.threads)
    if chosen is not None:
        return chosen
    dask = sys.modules.get("dask")
    if start == "fork" and dask is not None and _chosen(dask):
        return None
    return Streaming("single-threaded" if limit == 1 else "threads", limit)


def choice_of_program() -> Streaming | None:
    """What the program has said about dask in this process; None: nothing, or what has no name here."""
    dask = sys.modules.get("dask")
    with contextlib.suppress(Exception):  # another version of dask
        if dask is not None and _chosen(dask):
            return _configured(dask)
    return None


def _configured(dask: Any) -> Streaming | None:
    """What the program's own configuration says: forked workers inherit it, others are told."""
    scheduler, pool = dask.config.get("scheduler", None), dask.config.get("pool", None)
    if isinstance(scheduler, ThreadPoolExecutor):
        return Streaming("threads", scheduler._max_workers)
    if scheduler in _SINGLE:
        return Streaming("single-threaded", 1)
    if scheduler is not None and scheduler not in _THREADS:
        return None
    if isinstance(pool, int):
        return Streaming("threads", pool)
    threads = getattr(pool, "_max_workers", None) or dask.config.get("num_workers", None)
    return Streaming("threads", threads or dask.system.CPU_COUNT)


# --- in a worker ---


def _chosen(dask: Any) -> bool:
    """Whether the program has said how dask is to compute, and that can be done in a worker."""
    scheduler = dask.config.get("scheduler", None)
    if scheduler in _BY_CLIENT:
        return False  # the client that said so has stayed behind
    return any((scheduler, dask.config.get("pool", None), dask.config.get("num_workers", None)))


def settle(
    dask: Any, limit: int, cluster: Cluster | None, chosen: Streaming | None, forked: bool
) -> None:
    """Say in dask's configuration how it computes in this worker."""
    if forked:
        _leave_behind()
        _renew_pools(dask)
        if cluster is not None:
            _stop_listening(cluster.address)
    if cluster is not None:
        dask.config.set(scheduler=OnCluster(cluster))
    elif _chosen(dask):
        return
    elif chosen is not None and chosen.mode == "threads":  # said in the trainer, where it stayed
        dask.config.set(scheduler="threads", num_workers=chosen.threads)
    elif chosen is not None or limit == 1:
        dask.config.set(scheduler="synchronous")
    else:  # a pool of our own: dask's may have come by a fork, without its threads
        dask.config.set(scheduler="threads", pool=ThreadPoolExecutor(limit))


class OnCluster:
    """A scheduler for dask's configuration, which connects when it is first asked to compute."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._client: Any = None

    def __call__(self, graph: Any, keys: Any, **options: Any) -> Any:
        """The results that the keys name."""
        with self._lock:
            if self._client is None:
                self._client = self._connect()
        return self._client.get(graph, keys, **options)

    def _connect(self) -> Any:
        """A client, which from now on is dask's own choice; one may be there, made by the user."""
        distributed: Any = importlib.import_module("distributed")
        with contextlib.suppress(ValueError):
            client = distributed.Client.current()
            if client.scheduler is not None and client.scheduler.address == self._cluster.address:
                return client
        return distributed.Client(self._cluster.address, security=self._cluster.security)


#: What came by a fork: finalizers would wait for threads that are not here.
_left_behind: list[Any] = []


def _leave_behind() -> None:
    """Have nobody use, close or finalize clients and clusters whose threads are the trainer's."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return
    with contextlib.suppress(AttributeError):
        for client in list(distributed.Client._instances):
            _left_behind.append(client)
            client.status = "closed"  # it raises at once what it would wait for
    with contextlib.suppress(AttributeError):
        for cluster in list(distributed.SpecCluster._instances):
            _left_behind.append(cluster)
            cluster.status = distributed.Status.closed
    with contextlib.suppress(AttributeError):
        distributed.client._current_client.set(None)
    with contextlib.suppress(AttributeError):  # for large messages: its thread is not here
        distributed.utils._offload_executor = ThreadPoolExecutor(1)


def _renew_pools(dask: Any) -> None:
    """The pools that dask made in the trainer, and those it was given, have no threads here."""
    threaded: Any = sys.modules.get("dask.threaded")
    with contextlib.suppress(AttributeError):
        if threaded is not None:
            _left_behind.extend([threaded.default_pool, dict(threaded.pools)])
            threaded.default_pool = None
            threaded.pools.clear()
    for key in ("pool", "scheduler"):
        pool = dask.config.get(key, None)
        if isinstance(pool, ThreadPoolExecutor):
            _left_behind.append(pool)
            dask.config.set({key: ThreadPoolExecutor(pool._max_workers)})


def _stop_listening(address: str) -> None:
    """Let go of the scheduler's own socket, which came by the fork: when the trainer closes its cluster
    clients of it would still be let in, and wait for ever for an answer."""
    listening = _listening(address.rpartition(":")[2])
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing itself is gone
            if os.readlink(f"/proc/self/fd/{name}") in listening:
                # its number stays taken: an object of the trainer's still has it
                with open(os.devnull, "rb") as nothing:
                    os.dup2(nothing.fileno(), int(name), inheritable=False)


def _listening(port: str) -> set[str]:
    """What descriptors are called that listen at a port. They are shared with the trainer, as all
    others are: Python's socket objects would change how those behave there."""
    found = set()
    for table in ("tcp", "tcp6"):
        with (
            contextlib.suppress(OSError),
            open(f"/proc/self/net/{table}", encoding="ascii") as file,
        ):
            for words in map(str.split, file):
                _, local, _, state, *_, inode = words[:10]
                if state == "0A" and port.isdigit() and local.endswith(f":{int(port):04X}"):
                    found.add(f"socket:[{inode}]")
    return found
