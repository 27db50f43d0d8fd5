"""Where this process stands among those of a run: rank, world, place on its machine, host."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any, NamedTuple

#: What launchers set for their processes: rank, how many ranks, rank on this machine.
LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
)


class RankInfo(NamedTuple):
    """One process of a run."""

    rank: int
    world: int
    local_rank: int
    host: str


def process_group() -> Any:
    """torch.distributed, where there are ranks to meet."""
    dist = sys.modules.get("torch.distributed")  # whoever has a process group has imported it
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def rank_info() -> RankInfo:
    """As the process group says, else the launcher; rank 0 of 1 without either."""
    host = socket.gethostname()
    for names in LAUNCHERS:
        rank, world, local = (os.environ.get(name, "") for name in names)
        if rank.isdecimal() and world.isdecimal() and int(rank) < int(world):
            found = RankInfo(int(rank), int(world), int(local) if local.isdecimal() else 0, host)
            break
    else:
        found = RankInfo(0, 1, 0, host)
    dist = process_group()
    if dist is None:
        return found
    local_rank = found.local_rank if found.world > 1 else dist.get_rank()
    return RankInfo(dist.get_rank(), dist.get_world_size(), local_rank, host)
