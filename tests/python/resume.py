"""Resume an epoch in a new process, and say what was the same.

    resume.py --n 10000 --batch-size 8 --prefetch 2 --at 700 --workers 2

prints a line of JSON: ``getitem_calls_before_first_batch`` (of samples that were consumed before),
``tail_equal`` (the same batches in the same order), ``remaining_equal`` (the same samples, each
once) and ``augmentation_equal`` (what workers drew at random, too). With ``--new-workers`` another
number of workers goes on, with ``--new-world`` another number of ranks.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from millhead.torch import DataLoader, DistributedSampler
from torch.utils.data import Dataset


class Noted(Dataset[Any]):
    """Numbers with random additions; notes in a file which were asked for."""

    def __init__(self, length: int, notes: Path) -> None:
        self.length = length
        self.calls = torch.from_file(str(notes), shared=True, size=length, dtype=torch.uint8)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, float]:
        self.calls[index] += 1
        return index, random.random() + np.random.random() + torch.rand(()).item()


def make_loader(options: argparse.Namespace, world: int, rank: int) -> DataLoader[Any]:
    """The loader of one rank."""
    notes = Path(options.directory) / f"calls-{options.run}-{rank}"
    notes.write_bytes(bytes(options.n))
    dataset = Noted(options.n, notes)
    workers = {"prefetch_factor": options.prefetch} if options.workers else {}
    order: dict[str, Any] = {"shuffle": True}
    if options.world > 1 or options.new_world:
        # Uneven: nothing is repeated to fill up ranks, so that every sample counts.
        sampler = DistributedSampler(dataset, world, rank, seed=options.seed, uneven=True)
        order = {"sampler": sampler}
    return DataLoader(
        dataset,
        batch_size=options.batch_size,
        num_workers=options.workers,
        snapshot_rng=True,
        **order,
        **workers,
    )


def plain(batches: list[Any]) -> list[Any]:
    """Batches as lists of (index, drawn)."""
    return [[batch[0].tolist(), batch[1].tolist()] for batch in batches]


def first_run(options: argparse.Namespace) -> dict[str, Any]:
    """Consume ``--at`` batches on every rank, save the state, and go on to the end."""
    torch.manual_seed(options.seed)
    seen: list[Any] = []
    rest: list[Any] = []
    states = []
    for rank in range(options.world):
        loader = make_loader(options, options.world, rank)
        iterator = iter(loader)
        seen += plain([next(iterator) for _ in range(options.at)])
        states.append(loader.state_dict())
        rest += plain(list(iterator))
    return {"states": states, "seen": seen, "rest": rest}


def second_run(options: argparse.Namespace, before: dict[str, Any]) -> dict[str, Any]:
    """Go on from the state, on as many ranks as there are now."""
    torch.manual_seed(options.seed + 1)
    consumed = [index for batch in before["seen"] for index in batch[0]]
    world = options.new_world or options.world
    calls = 0
    rest: list[Any] = []
    for rank in range(world):
        loader = make_loader(options, world, rank)
        # Any rank's state will do for another world; in the same one, each has its own.
        loader.load_state_dict(before["states"][rank if world == options.world else 0])
        iterator = iter(loader)
        first = next(iterator, None)
        calls += int(loader.dataset.calls[consumed].sum())
        rest += plain([] if first is None else [first, *iterator])
    return {"calls": calls, "rest": rest}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=10000)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--at", type=int, default=500, help="batches consumed before")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--new-workers", type=int)
    parser.add_argument("--world", type=int, default=1, help="ranks")
    parser.add_argument("--new-world", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="the default, and the only way")
    parser.add_argument("--run", choices=("first", "second"), help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if min(options.n, options.batch_size, options.prefetch, options.world) < 1:
        parser.error("--n, --batch-size, --prefetch and --world are at least 1")
    if min(options.workers, options.new_workers or 0) < 0 or (options.new_world or 0) < 0:
        parser.error("--workers, --new-workers and --new-world are not negative")
    batches = math.ceil(options.n // options.world / options.batch_size)
    if not 0 <= options.at <= batches:
        parser.error(f"--at {options.at}: a rank's epoch has {batches} batches")
    return options


def run_child(options: argparse.Namespace, run: str, directory: str) -> dict[str, Any]:
    """One of the two runs, in a process of its own."""
    workers = options.workers
    if run == "second" and options.new_workers is not None:
        workers = options.new_workers
    names = ("n", "batch_size", "prefetch", "at", "world", "new_world", "seed")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    command = [sys.executable, __file__, f"--run={run}", f"--directory={directory}", *arguments]
    subprocess.run([*command, f"--workers={workers}"], check=True)
    found: dict[str, Any] = json.loads((Path(directory) / f"{run}.json").read_text())
    return found


def compare(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What is the same."""
    tails = [[batch[0] for batch in run["rest"]] for run in (before, after)]
    samples = [sorted(itertools.chain.from_iterable(tail)) for tail in tails]
    return {
        "getitem_calls_before_first_batch": after["calls"],
        "tail_equal": tails[0] == tails[1],
        "remaining_equal": samples[0] == samples[1],
        "augmentation_equal": before["rest"] == after["rest"],
    }


def main() -> None:
    """Both runs, or the one that was asked for."""
    options = parse()
    warnings.filterwarnings("ignore", "This DataLoader will create")  # as many as were asked for
    if options.run is None:
        with tempfile.TemporaryDirectory() as directory:
            before = run_child(options, "first", directory)
            after = run_child(options, "second", directory)
            print(json.dumps(compare(before, after)))
        return
    folder = Path(options.directory)
    if options.run == "first":
        found = first_run(options)
    else:
        found = second_run(options, json.loads((folder / "first.json").read_text()))
    (folder / f"{options.run}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
