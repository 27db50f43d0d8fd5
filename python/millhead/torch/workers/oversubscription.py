"""Too many workers, or too many threads in them, for the CPUs of this machine: said once."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from millhead import Advice, _core
from millhead.torch.loader_stats import advise
from millhead.torch.workers.dask_modes import Cluster, Streaming
from millhead.torch.workers.native_pools import VARIABLES

#: How launchers tell a training process how many there are on its machine, and its own number.
_LAUNCHERS = (
    ("LOCAL_WORLD_SIZE", "LOCAL_RANK"),  # torchrun
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),  # mpirun
    ("SLURM_NTASKS_PER_NODE", "SLURM_LOCALID"),  # srun
)

#: For each CPU: a few more workers than CPUs are good where they wait for data.
_TOO_MANY = 2

#: A worker's threads are judged once it was at work for this long.
_JUDGE_AFTER_NS = 1_000_000_000


def local_ranks() -> tuple[int, int]:
    """Training processes on this machine, and the number of this one."""
    for size, number in _LAUNCHERS:
        ranks = os.environ.get(size, "")
        if ranks.isdecimal() and int(ranks) > 0:
            rank = os.environ.get(number, "")
            return int(ranks), int(rank) if rank.isdecimal() else 0
    return 1, 0


def cpus_for(ranks: int) -> int:
    """CPUs that the training processes of this machine have together."""
    allowed = _core.cpus()
    own = len(os.sched_getaffinity(0))
    if ranks == 1 or allowed < own:  # the quota of a container is everybody's
        return allowed
    # A rank may be bound to CPUs of its own; whatever launched all of them is not.
    return max(own, *map(_cpus_of, _ancestors()))


def _ancestors() -> list[int]:
    found = []
    pid = os.getppid()
    while pid > 0:
        found.append(pid)
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            break
        pid = int(stat.rpartition(")")[2].split()[1])
    return found


def _cpus_of(pid: int) -> int:
    try:
        return len(os.sched_getaffinity(pid))
    except OSError:
        return 0


# --- workers ---


def check_workers(workers: int) -> None:
    """Before workers start: are there far more of them than CPUs, over all ranks?"""
    ranks, rank = local_ranks()
    text = too_many_workers(workers, ranks, cpus_for(ranks), len(os.sched_getaffinity(0)))
    if text is not None and rank == 0:  # one line for all of them
        advise("too-many-workers", text)


def too_many_workers(workers: int, ranks: int, cpus: int, affinity: int) -> str | None:
    """Words about workers that are too many; torch itself compares with the affinity alone."""
    if workers * ranks <= _TOO_MANY * cpus:
        return None
    fits = f"num_workers={_core.plan_workers(cpus, ranks)} leaves room for training"
    if ranks > 1:
        return (
            f"{workers * ranks} workers of {ranks} ranks on this machine's {cpus} CPUs "
            f"(num_workers={workers}): {fits}; see millhead plan cpus --ranks {ranks}"
        )
    if cpus < affinity:
        return (
            f"{workers} workers on {cpus} CPUs (the quota of this container): {fits}; "
            "see millhead plan cpus"
        )
    return None  # torch has said so


# --- threads ---


def check_threads(
    workers: list[dict[str, Any]], limit: int | None, streaming: Streaming | None = None
) -> None:
    """While workers run: do they keep far more threads running than there are CPUs?

    Threads that sleep harm nobody, so they are counted only where they did something. ``workers``
    are views of the consumer end.
    """
    ranks, rank = local_ranks()
    cpus = cpus_for(ranks)
    if rank != 0 or ranks * sum(view["threads"] for view in workers) <= _TOO_MANY * cpus:
        return
    running = sum(max(1.0, _others_running(view["pid"], view["busy_ns"])) for view in workers)
    if ranks * running <= _TOO_MANY * cpus or running < 1.5 * len(workers):
        return
    of_ranks = f" of {ranks} ranks" if ranks > 1 else ""
    with contextlib.suppress(Advice):  # where warnings are errors, the batch matters more
        advise(
            "too-many-threads",
            f"{ranks * len(workers)} workers{of_ranks} keep {ranks * running:.0f} threads running "
            f"on {cpus} CPUs (worker_threads={limit}): {_remedy(limit, streaming)}",
        )


def check_cluster(cluster: Cluster | None) -> None:
    """Before workers start: has each rank a dask cluster of its own, far too large together?"""
    ranks, rank = local_ranks()
    if ranks == 1 or rank != 0 or cluster is None or not cluster.own:
        return  # a single one is as large as somebody wanted it to be
    cpus = cpus_for(ranks)
    threads = ranks * (cluster.threads or 0)
    if threads > _TOO_MANY * cpus:
        advise(
            "too-many-threads",
            f"{ranks} ranks x {cluster.threads} threads of a dask cluster each are {threads} on this "
            f"machine's {cpus} CPUs ({cluster.address}): millhead.torch.shared_cluster() is one for "
            f"all of them; see millhead plan threads --shared --ranks {ranks}",
        )


def _remedy(limit: int | None, streaming: Streaming | None = None) -> str:
    if streaming is not None and streaming.mode == "threads" and streaming.threads != limit:
        return (
            f"dask has {streaming.threads} threads in each worker: leave its scheduler to "
            "worker_threads, or use fewer workers"
        )
    if limit != 1:
        return "worker_threads=1 keeps each pool of threads to one"
    given = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    asked = [text for text in given if not text.endswith("=1")]
    if asked:
        return f"{' and '.join(asked)} asks for them: unset it, or use fewer workers"
    return "have the dataset use fewer threads, or use fewer workers"


def _others_running(pid: int, busy_ns: int) -> float:
    """How many threads of a worker, but for its first, ran or waited for a CPU, on average, while
    it was at work; 0 where that was too short a time to tell."""
    if busy_ns < _JUDGE_AFTER_NS:
        return 0.0
    total_ns = 0
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        if file.parent.name != str(pid):
            with contextlib.suppress(OSError, ValueError):  # it has ended, or the kernel is mute
                ran_ns, waited_ns, _ = file.read_text(encoding="ascii").split()
                total_ns += int(ran_ns) + int(waited_ns)
    return total_ns / busy_ns
