"""Whether the ranks mean the same data, asked without waiting for any of them.

A rank whose dataset is shorter ends its epoch sooner, and the others wait for it until the process
group gives up; with another seed some samples come twice and others never. So the first rank leaves a
description of its sampler in the process group's store, and every other one compares: one round trip
for each sampler, nobody waits. Only ranks at the same lines of the program are compared: one that looks
at a batch by itself is not taken for one that trains.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import weakref
from collections import Counter
from typing import Any

import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

from millhead._rank_info import process_group
from millhead.torch.loader_stats import advise

#: Samplers that were asked about, by id(): a class of the user's need not be hashable.
_asked: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
#: How often the same lines of the program have asked.
_times: Counter[str] = Counter()
#: What follows where ranks differ in it.
_FOLLOWS = {
    "length": "some end their epoch before the others, which then wait for ever",
    "drop_last": "some end their epoch before the others, which then wait for ever",
}


def compare_loader(loader: Any) -> None:
    """Compare the ranks of the loader's sampler, if it is one that shares samples out."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    for sampler in (loader.sampler, getattr(batch_sampler, "sampler", None)):
        if isinstance(sampler, DistributedSampler):
            return compare_sampler(sampler)


def compare_sampler(sampler: DistributedSampler[Any]) -> None:
    """Compare what this rank's sampler says with what the first rank's did: a line where they differ."""
    if _asked.get(id(sampler)) is sampler or not (mine := _description(sampler)):
        return
    _asked[id(sampler)] = sampler
    first = _first_description(mine)
    for name in mine:
        if name != "rank" and first[name] != mine[name]:
            what = "the dataset's length" if name == "length" else name
            return advise(
                "ranks disagree",
                f"ranks disagree about {what} (rank {mine['rank']}: {mine[name]}, rank "
                f"{first['rank']}: {first[name]}): "
                f"{_FOLLOWS.get(name, 'some samples come twice, others never')}; make them alike",
            )


def _description(sampler: DistributedSampler[Any]) -> dict[str, Any] | None:
    """To be compared, where every process of the group has its own share: not where some hold one
    replica together."""
    if process_group() is None:
        return None
    world, rank = dist.get_world_size(), dist.get_rank()
    with contextlib.suppress(Exception):  # a class of the user's may lack what torch's has
        if world > 1 and (sampler.num_replicas, sampler.rank) == (world, rank):
            return {
                "rank": rank,
                "length": len(sampler.dataset),  # type: ignore[arg-type]
                "shuffle": bool(sampler.shuffle),
                "seed": int(sampler.seed) if sampler.shuffle else None,
                "drop_last": bool(sampler.drop_last),
            }
    return None


def _first_description(mine: dict[str, Any]) -> dict[str, Any]:
    """What the rank said that came by here first: this one's own, if nobody else has."""
    key = _program_lines()
    _times[key] += 1
    # Private, but torch has no other way to the store of a group that it made itself.
    store = dist.distributed_c10d._get_default_store()
    with contextlib.suppress(RuntimeError):  # a store that cannot compare: nothing is known
        said = store.compare_set(f"millhead/{key}/{_times[key]}", "", json.dumps(mine))
        return {**mine, **json.loads(said)}
    return mine


def _program_lines() -> str:
    """Where the program is, in short, the same on every machine."""
    lines = hashlib.sha256()
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = os.path.basename(frame.f_code.co_filename)
        lines.update(f"{name}:{frame.f_lineno}\n".encode())
        frame = frame.f_back
    return lines.hexdigest()[:16]
