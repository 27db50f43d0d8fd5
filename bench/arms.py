"""The arms of a comparison: each is a process that builds one loader and runs blocks on command.

The runner starts ``python arms.py ARM DATA_DIR CELL`` in the arm's own environment and talks to it
in JSON lines: commands on stdin, answers on the descriptor that was stdout (whatever libraries
print goes to stderr). Between commands the process is blocked on the pipe and its workers are idle:
a block is a number of whole epochs or calls (see blocks.py), and no loader works ahead of an epoch
that has not begun.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import blocks
import numpy as np
import workloads
from blocks import Arm
from workloads import Cell

SEED = 7


class TorchLike:
    """A loader with torch's constructor: torch's own, torchdata's or millhead's."""

    def __init__(self, make: Any, cell: Cell, data_dir: Path) -> None:
        import torch

        torch.set_num_threads(1)
        random.seed(SEED)
        self._make, self._cell = make, cell
        self._dataset = workloads.dataset(cell, data_dir, tensors=True)
        self._loader = self.loader(cell.workers)

    def loader(self, workers: int) -> Any:
        """A loader over the dataset; its workers start when it is iterated."""
        import torch

        cell = self._cell
        extra: dict[str, Any] = {} if cell.in_order else {"in_order": False}
        if cell.dispatch != "batch" and hasattr(self._make, "stats"):
            extra["dispatch"] = cell.dispatch
        if cell.snapshot_rng and hasattr(self._make, "stats"):
            extra["snapshot_rng"] = True
        if cell.block == "memory":
            extra["worker_init_fn"] = workloads.read_whole_list
        return self._make(
            self._dataset,
            batch_size=cell.batch_size,
            shuffle=cell.shuffle,
            sampler=workloads.sampler(cell),
            num_workers=workers,
            persistent_workers=workers > 0 and cell.persistent,
            prefetch_factor=cell.prefetch,
            multiprocessing_context=cell.start,
            generator=torch.Generator().manual_seed(SEED),
            **extra,
        )

    def epoch(self) -> Iterable[Any]:
        found: Iterable[Any] = self._loader
        return found

    def stats(self, reset: bool) -> dict[str, Any]:
        if not hasattr(self._make, "stats"):
            return {"path": "torch"}
        found = self._loader.stats(reset=reset)
        return {key: found[key] for key in ("path", "paths", "start", "batches", "bytes_pickled")}


class IndexSelect:
    """``index_select`` of a batch's rows by a tensor made beforehand: the goal, not a loader."""

    def __init__(self, cell: Cell, data_dir: Path) -> None:
        import torch
        from torch.utils.data import BatchSampler, SequentialSampler

        torch.set_num_threads(1)
        (self._rows,) = workloads.dataset(cell, data_dir, tensors=True).tensors
        order = BatchSampler(SequentialSampler(self._rows), cell.batch_size, drop_last=False)
        self._indices = [torch.tensor(numbers) for numbers in order]

    def epoch(self) -> Iterator[Any]:
        return ([self._rows.index_select(0, index)] for index in self._indices)

    def stats(self, reset: bool) -> dict[str, Any]:
        return {"path": "index_select"}


class Spdl:
    """SPDL's thread pipeline; one task fetches and collates a whole batch, its cheapest use here.

    A pipeline runs once, so every epoch builds one: that start is part of the figure.
    """

    def __init__(self, cell: Cell, data_dir: Path) -> None:
        self._dataset = workloads.dataset(cell, data_dir, tensors=False)
        self._cell = cell

    def _fetch(self, indices: range) -> np.ndarray:
        return np.array([self._dataset[i] for i in indices])

    def _indices(self) -> Iterator[range]:
        size, end = self._cell.batch_size, len(self._dataset)
        return (range(start, min(start + size, end)) for start in range(0, end, size))

    def epoch(self) -> Iterator[Any]:
        from spdl.pipeline import PipelineBuilder  # type: ignore[import-not-found]

        threads = self._cell.workers
        builder = PipelineBuilder().add_source(self._indices())
        builder = builder.pipe(self._fetch, concurrency=threads, output_order="input")
        pipeline = builder.add_sink(2 * threads).build(num_threads=threads)
        with pipeline.auto_stop():
            yield from pipeline.get_iterator(timeout=60)

    def stats(self, reset: bool) -> dict[str, Any]:
        return {"path": "spdl"}


class Grain:
    """Grain's map dataset read by threads (its processes are slower on few cores)."""

    def __init__(self, cell: Cell, data_dir: Path) -> None:
        logging.getLogger("absl").setLevel(logging.ERROR)  # it misses jax and says so
        import grain  # type: ignore[import-not-found]

        source = grain.MapDataset.source(workloads.dataset(cell, data_dir, tensors=False))
        options = grain.ReadOptions(
            num_threads=cell.workers, prefetch_buffer_size=2 * max(cell.workers, 1)
        )
        self._loader = source.batch(cell.batch_size).to_iter_dataset(options)

    def epoch(self) -> Iterable[Any]:
        found: Iterable[Any] = self._loader
        return found

    def stats(self, reset: bool) -> dict[str, Any]:
        return {"path": "grain"}


def unsuitable(arm: str, cell: Cell) -> str | None:
    """Why an arm cannot run a cell, or None."""
    if arm in ("spdl", "grain") and cell.kind not in workloads.NUMPY_KINDS:
        return "not applicable: makes NumPy batches from NumPy samples in order"
    if arm == "spdl" and cell.workers == 0:
        return "not applicable: always runs in threads"
    if arm == "index_select" and cell.workers:
        return "not applicable: has no workers"
    return None


def build(arm: str, cell: Cell, data_dir: Path) -> Arm:
    """Make the loader of an arm."""
    if arm == "spdl":
        return Spdl(cell, data_dir)
    if arm == "grain":
        return Grain(cell, data_dir)
    if arm == "index_select":
        return IndexSelect(cell, data_dir)
    return TorchLike(loader_class(arm), cell, data_dir)


def loader_class(arm: str) -> Any:
    """The class of an arm with torch's constructor."""
    if arm == "millhead":
        import millhead.torch

        return millhead.torch.DataLoader
    if arm == "torchdata":
        from torchdata.stateful_dataloader import (  # type: ignore[import-not-found]
            StatefulDataLoader,
        )

        return StatefulDataLoader
    from torch.utils.data import DataLoader

    return DataLoader


def serve(arm: Arm, cell: Cell, answers: Any) -> None:
    """Answer commands until stdin ends."""
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "parity":
            answer = blocks.parity(arm, cell)
        elif command["do"] == "block":
            answer = blocks.run(arm, cell, command["seconds"])
        else:
            answer = arm.stats(command["reset"])
        print(json.dumps(answer), file=answers, flush=True)


def main() -> int:
    """Build the arm named on the command line and serve it."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as autogroup:
        autogroup.write("-20")  # only with privileges; otherwise the machine has to be quiet
    name, data_dir, cell = sys.argv[1], Path(sys.argv[2]), Cell(**json.loads(sys.argv[3]))
    arm = build(name, cell, data_dir)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    serve(arm, cell, answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
