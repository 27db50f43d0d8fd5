"""One process does the work, the others wait and then find it done: downloads, preprocessing.

All ranks meet three times, over a process group of their own on the CPU: before the work, when those that
go first have done it, and when everybody has. What they exchange there is who failed, so that no rank
waits for one that is gone.
"""

from __future__ import annotations

import contextlib
import os
import socket
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from millhead._mounts import mount_of
from millhead._rank_info import process_group
from millhead.torch.ranks.world import launched

#: A download may take longer than the few minutes after which collective operations give up.
_PATIENCE = timedelta(days=1)
#: Of an exception, for the other ranks.
_MOST_CHARACTERS = 500


def rank0_first() -> contextlib.AbstractContextManager[bool]:
    """Rank 0 runs the block, then all others do; everybody leaves it together.

    For work whose result all ranks see, on a mount they share: the others find it done. Gives True
    where this process goes first. Every rank has to come by. With one process it does nothing.

        with millhead.torch.rank0_first():
            data = download_and_unpack("/shared/data")    # returns at once where it is there already

    Raises:
        RuntimeError: on the other ranks, where one raised an exception (the others do not enter the
            block if it was rank 0); several ranks and no process group.
    """
    return _in_turn("rank0_first", lambda: bool(dist.get_rank() == 0))


def local_rank0_first() -> contextlib.AbstractContextManager[bool]:
    """As :func:`rank0_first`, but the first rank of each machine goes first: for local disks."""
    return _in_turn("local_rank0_first", _is_first_here)


def auto_rank0_first(path: str | os.PathLike[str]) -> contextlib.AbstractContextManager[bool]:
    """:func:`rank0_first` where ``path`` is on a network mount on every rank, else
    :func:`local_rank0_first`. The path need not be there yet."""

    def goes_first() -> bool:
        is_shared = all(gather_from_all(mount_of(path).is_network()))
        return bool(dist.get_rank() == 0) if is_shared else _is_first_here()

    return _in_turn("auto_rank0_first", goes_first)


def is_alone(name: str) -> bool:
    """Whether there is nobody to wait for. Raises where there is, and no way to speak to them."""
    if process_group() is not None:
        return dist.get_world_size() == 1
    world = launched()
    if world is not None and world.size > 1:
        raise RuntimeError(
            f"millhead: rank {world.rank} of {world.size} has no process group ({name}; "
            f"{world.source}): call torch.distributed.init_process_group() before it, or unset the "
            "variables if this process is alone"
        )
    return True


@contextlib.contextmanager
def _in_turn(name: str, goes_first: Callable[[], bool]) -> Iterator[bool]:
    if is_alone(name):
        yield True
        return
    first = goes_first()
    gather_from_all(None)  # all are here, and connected: from now on a rank that dies is noticed
    if not first:
        _meet(name)
    with reporting_failure(name):
        yield first
    if first:
        _meet(name)


@contextlib.contextmanager
def reporting_failure(name: str) -> Iterator[None]:
    """Let the others know how the block ended."""
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(RuntimeError):  # nobody is left to hear it
            gather_from_all(" ".join(f"{type(error).__name__}: {error}".split())[:_MOST_CHARACTERS])
        raise
    _meet(name)


def _meet(name: str) -> None:
    """Wait for all; raises where one of them failed."""
    failed = {rank: said for rank, said in enumerate(gather_from_all(None)) if said is not None}
    if failed:
        rank, said = next(iter(failed.items()))
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        raise RuntimeError(
            f"millhead: rank {rank}{more} failed and the others stop ({name}): {said}"
        )


def _is_first_here() -> bool:
    machines = gather_from_all(machine())
    return machines.index(machines[dist.get_rank()]) == dist.get_rank()


def machine() -> str:
    """This machine or container: names alone may be alike."""
    from millhead import _environment  # not in every import of millhead.torch

    return f"{socket.gethostname()} {_environment.boot_id()}"


#: The process group of all ranks, and ours beside it. Torch keeps them, until the program destroys them:
#: threads of a group that is still there when the interpreter ends would abort it.
_groups: tuple[weakref.ref[Any], weakref.ref[Any]] | None = None


def gather_from_all(mine: Any) -> list[Any]:
    """What each rank says, in their order. Waits for all of them."""
    global _groups
    world = dist.group.WORLD
    if _groups is None or _groups[0]() is not world:
        ours = dist.new_group(backend="gloo", timeout=_PATIENCE)
        _groups = weakref.ref(world), weakref.ref(ours)
    said: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(said, mine, group=_groups[1]())
    return said
