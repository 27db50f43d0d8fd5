"""What the machine and the container allow, asked before workers start."""

from __future__ import annotations

import os
import resource

from millhead import _core
from millhead.torch.loader_stats import advise

#: Descriptors of this process: per worker (spill memory, a handle, two ends of pipes), and besides.
_PER_WORKER = 4
_BESIDES = 16

#: Private memory of a worker before it has loaded anything, about: a fork's, a new interpreter's.
FORKED_BYTES = 16 * 2**20
SPAWNED_BYTES = 192 * 2**20


def in_words(size: int) -> str:
    """A number of bytes, for people."""
    value = float(size)
    for unit in ("bytes", "KB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def check_descriptors(workers: int, more: int = 0) -> None:
    """Make room for the workers' descriptors, ``more`` for each than usual, or say how many are
    missing."""
    needed = len(os.listdir("/proc/self/fd")) + (_PER_WORKER + more) * workers + _BESIDES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard == resource.RLIM_INFINITY or needed <= hard:
        more = needed if hard == resource.RLIM_INFINITY else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
        return
    raise RuntimeError(
        f"millhead: {workers} workers need {needed} file descriptors, and the limit is {hard} "
        "(RLIMIT_NOFILE): use fewer workers, or have the limit raised"
    )


def check_room(size: int) -> None:
    """Refuse to pickle a dataset into memory that is not there."""
    available = _core.memory()[1]
    if size > available:
        raise MemoryError(
            f"millhead: the dataset takes {in_words(size)} when pickled for its workers, and "
            f"{in_words(available)} of memory are available: let it load its data when asked for "
            "a sample, not before"
        )


def warn_of_memory(workers: int, each: int) -> None:
    """Advise where starting workers would need memory that is not there."""
    available = _core.memory()[1]
    needed = workers * each
    if needed > available:
        advise(
            "little-memory",
            f"{workers} workers need about {in_words(needed)} of memory before they load anything, "
            f"and {in_words(available)} are available: use fewer workers, or expect the "
            "out-of-memory killer",
        )


def affinity_of_process() -> frozenset[int] | None:
    """CPUs for workers, where the calling thread is bound to a single one and others are not.

    OpenMP runtimes bind threads to cores, the first one too, and every worker would inherit that.
    """
    if len(os.sched_getaffinity(0)) > 1:
        return None
    union: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        try:
            union |= os.sched_getaffinity(int(thread))
        except OSError:
            continue  # it has just ended
    return frozenset(union) if len(union) > 1 else None
