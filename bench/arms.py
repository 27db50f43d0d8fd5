"""The arms of a comparison: each is a process that builds one loader and runs blocks on command.

The runner starts ``python arms.py ARM DATA_DIR CELL`` in the arm's own environment and talks to it
in JSON lines: commands on stdin, answers on the descriptor that was stdout (whatever libraries
print goes to stderr). Between commands the process is blocked on the pipe and its workers are idle:
a block is a number of whole epochs, and no loader works ahead of an epoch that has not begun.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import workloads
from workloads import Cell

BIG_PARITY_BATCHES = 8  # of large batches only so many are fingerprinted
SEED = 7


class Arm(Protocol):
    """What the command loop needs of an arm."""

    def epoch(self) -> Iterable[Any]:
        """The batches of one epoch."""

    def stats(self, reset: bool) -> dict[str, Any]:
        """What the loader says about itself."""


class TorchLike:
    """A loader with torch's constructor: torch's own, torchdata's or millhead's."""

    def __init__(self, make: Any, cell: Cell, data_dir: Path) -> None:
        import torch

        torch.set_num_threads(1)
        random.seed(SEED)
        self._own_stats = hasattr(make, "stats")
        self._loader = make(
            workloads.dataset(cell, data_dir, tensors=True),
            batch_size=cell.batch_size,
            shuffle=cell.shuffle,
            num_workers=cell.workers,
            persistent_workers=cell.workers > 0,
            generator=torch.Generator().manual_seed(SEED),
        )

    def epoch(self) -> Iterable[Any]:
        return self._loader

    def stats(self, reset: bool) -> dict[str, Any]:
        if not self._own_stats:
            return {"path": "torch"}
        found = self._loader.stats(reset=reset)
        return {key: found[key] for key in ("path", "paths", "batches", "bytes_pickled")}


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
        from spdl.pipeline import PipelineBuilder

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
        import grain

        source = grain.MapDataset.source(workloads.dataset(cell, data_dir, tensors=False))
        options = grain.ReadOptions(
            num_threads=cell.workers, prefetch_buffer_size=2 * max(cell.workers, 1)
        )
        self._loader = source.batch(cell.batch_size).to_iter_dataset(options)

    def epoch(self) -> Iterable[Any]:
        return self._loader

    def stats(self, reset: bool) -> dict[str, Any]:
        return {"path": "grain"}


def unsuitable(arm: str, cell: Cell) -> str | None:
    """Why an arm cannot run a cell, or None."""
    if arm in ("spdl", "grain") and cell.kind not in workloads.NUMPY_KINDS:
        return "not applicable: makes NumPy batches from NumPy samples in order"
    if arm == "spdl" and cell.workers == 0:
        return "not applicable: always runs in threads"
    return None


def build(arm: str, cell: Cell, data_dir: Path) -> Arm:
    """Make the loader of an arm."""
    if arm == "spdl":
        return Spdl(cell, data_dir)
    if arm == "grain":
        return Grain(cell, data_dir)
    return TorchLike(loader_class(arm), cell, data_dir)


def loader_class(arm: str) -> Any:
    """The class of an arm with torch's constructor."""
    if arm == "millhead":
        import millhead.torch

        return millhead.torch.DataLoader
    if arm == "torchdata":
        from torchdata.stateful_dataloader import StatefulDataLoader

        return StatefulDataLoader
    from torch.utils.data import DataLoader

    return DataLoader


def digest(batch: Any) -> str:
    """A fingerprint of types, dtypes, shapes and values."""
    if isinstance(batch, (list, tuple)):
        return f"{type(batch).__name__}[{','.join(digest(item) for item in batch)}]"
    if isinstance(batch, dict):
        return f"dict[{','.join(f'{key}={digest(item)}' for key, item in batch.items())}]"
    if hasattr(batch, "dtype"):
        values = hashlib.sha256(np.ascontiguousarray(batch).tobytes()).hexdigest()[:32]
        return f"{type(batch).__name__}:{batch.dtype}:{tuple(batch.shape)}:{values}"
    return repr(batch)


def run_parity(arm: Arm, cell: Cell) -> dict[str, Any]:
    """Fingerprint the batches of an epoch."""
    most = BIG_PARITY_BATCHES if cell.kind == "big" else cell.batches
    return {"digests": [digest(b) if i < most else "" for i, b in enumerate(arm.epoch())]}


def run_block(arm: Arm, cell: Cell, seconds: float) -> dict[str, Any]:
    """Iterate whole epochs until the block is long enough."""
    epochs, batches, elapsed = 0, 0, 0.0
    start = time.perf_counter()
    while elapsed < seconds:
        for _ in arm.epoch():
            batches += 1
        epochs += 1
        elapsed = time.perf_counter() - start
    if batches != epochs * cell.batches:
        raise RuntimeError(f"{batches} batches in {epochs} epochs of {cell.batches}")
    return {"seconds": elapsed, "samples": epochs * cell.epoch_samples}


def serve(arm: Arm, cell: Cell, answers: Any) -> None:
    """Answer commands until stdin ends."""
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "parity":
            answer = run_parity(arm, cell)
        elif command["do"] == "block":
            answer = run_block(arm, cell, command["seconds"])
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
