"""Keeps batches in a list, many more than there are slots, and looks at all of them at the end.

    python keep.py 100000

Small batches of one tensor and of several, then fewer with leaves of 64 KB and more. Prints JSON:
how many were kept, by how much descriptors and mappings grew with their number (or stayed when
all batches were gone), and how many batches had changed. The exit status is 1 when a batch changed or descriptors or mappings grew.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from helpers import procs

WORKERS = 2
WARM = 40  # batches until every slot and buffer exists
LARGE_SHARE = 100  # one large batch for so many small ones
LARGE_LEAF = (96, 1024)  # 393 216 bytes of float32
MAPS_ALLOWED = 64  # the allocator's own, for memory that is really kept


class Numbered:
    """Samples made from their index, so that a batch can be checked from its number alone."""

    def __init__(self, length: int, make: Callable[[int], Any]) -> None:
        self.length = length
        self.make = make

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def one_tensor(index: int) -> Any:
    return torch.full((4,), float(index))


def several_tensors(index: int) -> Any:
    return {
        "x": torch.full((2, 3), float(index)),
        "y": index,
        "z": (torch.full((5,), index, dtype=torch.int32), index / 2),
    }


def one_large(index: int) -> Any:
    return torch.full(LARGE_LEAF, float(index))


def large_and_small(index: int) -> Any:
    return [torch.full(LARGE_LEAF, float(index)), index]


def leaves(value: Any) -> list[torch.Tensor]:
    """Tensors of a batch, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return [leaf for part in parts for leaf in leaves(part)]


def is_intact(make: Callable[[int], Any], number: int, batch: Any) -> bool:
    """Whether a batch of one sample still holds what sample ``number`` gives."""
    for leaf in leaves(batch):
        wanted = number / 2 if leaf.dtype is torch.float64 else number
        if leaf.shape[0] != 1 or not bool((leaf == wanted).all()):
            return False
    return len(leaves(batch)) == {one_tensor: 1, several_tensors: 4, one_large: 1}.get(make, 2)


def keep(make: Callable[[int], Any], count: int) -> dict[str, int]:
    """Keeps ``count`` batches; growth is counted from the state after the first few."""
    import millhead.torch

    kept: list[Any] = []
    gc.collect()
    before = len(procs.descriptors())
    loader = millhead.torch.DataLoader(Numbered(count, make), num_workers=WORKERS)
    fds = maps = 0
    for number, batch in enumerate(loader):
        kept.append(batch)
        if number == min(WARM, count - 1):
            fds, maps = len(procs.descriptors()), procs.map_count()
        if number == count - 1:
            fds, maps = len(procs.descriptors()) - fds, procs.map_count() - maps
    del loader, batch
    gc.collect()
    count_kept = len(kept)
    corrupt = sum(not is_intact(make, number, batch) for number, batch in enumerate(kept))
    kept.clear()
    gc.collect()
    procs.wait_until(lambda: len(procs.descriptors()) <= before)
    return {
        "kept": count_kept,
        "fds_delta": max(fds, len(procs.descriptors()) - before),
        "maps_delta": maps,
        "corrupt": corrupt,
    }


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    torch.set_num_threads(1)
    small, large = max(count // 2, 1), max(count // 2 // LARGE_SHARE, 1)
    scenes = [(one_tensor, small), (several_tensors, small)]
    scenes += [(one_large, large), (large_and_small, large)]
    results = [keep(make, number) for make, number in scenes]
    report = {
        "kept": sum(result["kept"] for result in results),
        "fds_delta": max(result["fds_delta"] for result in results),
        "maps_delta": max(result["maps_delta"] for result in results),
        "corrupt": sum(result["corrupt"] for result in results),
    }
    print(json.dumps(report))
    wrong = report["corrupt"] or report["fds_delta"] > 0 or report["maps_delta"] > MAPS_ALLOWED
    return 1 if wrong or report["kept"] < count else 0


if __name__ == "__main__":
    sys.exit(main())
