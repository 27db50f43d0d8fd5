"""One dask cluster for all training processes of a machine, so that its threads are counted once.

All ranks meet before the block. Afterwards nobody waits for a rank that failed: its exception must end
the program, while others may be in the middle of a step that needs it. Who is still there is what the
scheduler knows anyway, from its connections.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist

from millhead.torch import core_available
from millhead.torch.ranks.rank0_first import gather_from_all, is_alone, machine, reporting_failure

_NAME = "shared_cluster"
#: How often the rank that has the cluster looks whether the others have left.
_LOOK_EVERY_S = 0.05


@contextlib.contextmanager
def shared_cluster(
    workers: int | None = None,
    threads: int | None = None,
    memory_limit: str | float | None = "auto",
    dashboard: str | int | None = None,
) -> Iterator[Any]:
    """On each machine, one dask cluster for all ranks and for the workers of their loaders.

    The first rank of a machine starts it, all of them connect, and it ends when all of them have left
    the block. A rank that raises an exception leaves at once; if it has the cluster, that ends too.
    Without ranks it is this process's cluster. Gives the client, which dask uses from then on.

        with millhead.torch.shared_cluster(workers=2, threads=4):
            train(DataLoader(dataset, num_workers=4))

    Args:
        workers: Processes of the cluster.
        threads: Threads of each. Without the two: what ``millhead plan threads`` advises for this
            machine's CPUs and ranks.
        memory_limit: Of each process, as dask has it: bytes, ``"4GB"``, a share, ``"auto"`` or None.
        dashboard: Where dask's dashboard listens: a port, or an address such as ``":8787"``.

    Raises:
        ModuleNotFoundError: ``dask[distributed]`` is not installed.
        RuntimeError: another rank could not start or reach its cluster; several ranks and no process
            group.
    """
    with contextlib.ExitStack() as stack:
        if is_alone(_NAME):
            cluster = stack.enter_context(_start(1, workers, threads, memory_limit, dashboard))
            yield stack.enter_context(_connect(cluster.scheduler_address))
            return
        machines = gather_from_all(machine())
        here = [rank for rank, name in enumerate(machines) if name == machines[dist.get_rank()]]
        cluster = None
        with reporting_failure(_NAME):
            if here[0] == dist.get_rank():
                start = _start(len(here), workers, threads, memory_limit, dashboard)
                cluster = stack.enter_context(start)
        addresses = gather_from_all(None if cluster is None else cluster.scheduler_address)
        with reporting_failure(_NAME):
            client = stack.enter_context(_connect(addresses[here[0]]))
        clients = gather_from_all(client.id)
        yield client
        if cluster is not None:
            _await_others(cluster, {clients[rank] for rank in here[1:]})


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise ModuleNotFoundError(
            f"millhead: dask's clusters cannot be imported ({_NAME}; {error}): install "
            "dask[distributed]",
            name="distributed",
        ) from error
    return distributed


def _start(
    ranks: int,
    workers: int | None,
    threads: int | None,
    memory_limit: str | float | None,
    dashboard: str | int | None,
) -> Any:
    """A cluster on this machine, to be entered."""
    distributed = _distributed()
    advised = _advised(ranks)
    # Without a dashboard its port would still be asked for, and somebody may have it.
    none = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    return distributed.LocalCluster(
        n_workers=advised[0] if workers is None else workers,
        threads_per_worker=advised[1] if threads is None else threads,
        memory_limit=memory_limit,
        dashboard_address=f":{dashboard}" if isinstance(dashboard, int) else dashboard,
        scheduler_kwargs=none if dashboard is None else {},
    )


def _advised(ranks: int) -> tuple[int, int]:
    """Workers and threads of a cluster for so many ranks."""
    if core_available.why_not is not None:
        return 1, 2
    from millhead import _core
    from millhead.torch.workers.oversubscription import cpus_for

    return _core.plan_cluster(cpus_for(ranks), ranks)


def _connect(address: str) -> Any:
    """A client, to be entered. By the address: a client that knows the cluster would seem to have one
    of its own on each rank."""
    return _distributed().Client(address)


def _await_others(cluster: Any, clients: set[str]) -> None:
    """Until the clients of the other ranks are closed, or gone with their processes."""
    while not clients.isdisjoint(tuple(cluster.scheduler.clients)):
        time.sleep(_LOOK_EVERY_S)
