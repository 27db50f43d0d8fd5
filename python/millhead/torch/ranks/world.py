"""Which rank of how many this process is: from arguments, torch.distributed or the launcher."""

from __future__ import annotations

import os
from typing import NamedTuple

from millhead._rank_info import LAUNCHERS, process_group

#: Rank and size, the launcher nearest to the process first: torchrun may itself have been started
#: by Slurm or MPI, once per node, and its numbers are then the right ones.
_LAUNCHERS = tuple((rank, size) for rank, size, _ in LAUNCHERS)


class World(NamedTuple):
    """A place among processes, and who said so."""

    rank: int
    size: int
    source: str


def replica(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    """Both numbers, with what was not given looked up: ``(num_replicas, rank)``.

    Raises:
        ValueError: nobody knows, or those who do contradict each other.
    """
    if num_replicas is not None and rank is not None:
        return num_replicas, rank
    world = _process_group() or launched()
    if world is None:
        raise ValueError(_unknown())
    if rank is None and num_replicas not in (None, world.size):
        raise ValueError(
            f"num_replicas is {num_replicas}, but this is rank {world.rank} of {world.size} "
            f"({world.source}): pass rank= too, among the {num_replicas}"
        )
    return (
        world.size if num_replicas is None else num_replicas,
        world.rank if rank is None else rank,
    )


def replica_or_alone(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    """As :func:`replica`, but a process that nobody told anything is rank 0 of 1.

    Raises:
        ValueError: what was said contradicts itself, is not complete, or names no rank.
    """
    if num_replicas is None and rank is None and _process_group() is None and not _variables_set():
        return 1, 0
    num_replicas, rank = replica(num_replicas, rank)
    if not 0 <= rank < num_replicas:
        raise ValueError(f"rank should be 0 to {num_replicas - 1}, but got {rank}")
    return num_replicas, rank


def _process_group() -> World | None:
    dist = process_group()
    if dist is None:
        return None
    return World(dist.get_rank(), dist.get_world_size(), "torch.distributed")


def launched() -> World | None:
    """What the environment says; RANK and WORLD_SIZE before all others, which must agree.

    None: nothing. Raises ValueError where it makes no sense.
    """
    worlds = [found for names in _LAUNCHERS if (found := _launched_by(*names)) is not None]
    if not worlds:
        return None
    first, last = worlds[0], worlds[-1]
    if first.source != "/".join(_LAUNCHERS[0]) and first[:2] != last[:2]:
        raise ValueError(
            f"{first.source} say rank {first.rank} of {first.size}, {last.source} say rank "
            f"{last.rank} of {last.size} (environment): set RANK and WORLD_SIZE, or pass "
            "num_replicas= and rank="
        )
    return first


def _launched_by(rank_name: str, size_name: str) -> World | None:
    """What one launcher says; None without both variables."""
    texts = os.environ.get(rank_name), os.environ.get(size_name)
    if None in texts:
        return None
    rank, size = (int(text) if text and text.isdecimal() else -1 for text in texts)
    if not 0 <= rank < size:
        raise ValueError(
            f"{rank_name}={texts[0]!r} and {size_name}={texts[1]!r} name no rank (environment): "
            "correct them, or pass num_replicas= and rank="
        )
    return World(rank, size, f"{rank_name}/{size_name}")


def _variables_set() -> list[str]:
    """The launchers' variables that are set."""
    return [name for names in _LAUNCHERS for name in names if name in os.environ]


def _unknown() -> str:
    """What is missing, for an error message."""
    lone = _variables_set()
    found = f"only {', '.join(lone)} set" if lone else "none set"
    pairs = ", ".join("/".join(names) for names in _LAUNCHERS)
    return (
        f"num_replicas and rank are unknown (no process group; of {pairs}: {found}): call "
        "torch.distributed.init_process_group, start with torchrun, or pass num_replicas= and rank="
    )
