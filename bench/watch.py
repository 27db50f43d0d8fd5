#!/usr/bin/env python3
"""What ``millhead.watch`` and ``StepTimer`` cost: CPU time per batch with them and without, in turn.

    python bench/watch.py [--batches 300] [--rounds 5] [--json]

A loop with 10 ms steps, batches of 32 cheap samples, 0 and 2 workers, torch's loader and millhead's. CPU
time is that of the loop's process and of its workers, without starting them. The step sleeps: it takes
no CPU, and finds the caches cold, which makes everything dearer than in a loop that computes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import millhead
import millhead.torch
import torch
import torch.utils.data

STEP_S = 0.01
BATCH = 32
WARM_UP = 20


class Cheap(torch.utils.data.Dataset[torch.Tensor]):
    """Rows of a tensor, with code of its own."""

    def __init__(self, length: int) -> None:
        self.rows = torch.zeros(length, 16)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index]


def cpu_ns(pid: int) -> int:
    """Of a process and all that it started, with every thread."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            total += int((task / "schedstat").read_text().split()[0])
            total += sum(cpu_ns(int(child)) for child in (task / "children").read_text().split())
    return total


def plain(loader: Any) -> Any:
    """The loader as it is."""
    return loader


def timed(loader: Any) -> Iterator[Any]:
    """With the phases of a training step; the last one is the loop's sleep."""
    timer = millhead.StepTimer(quiet=True)
    for batch in timer.loop(loader):
        with timer.forward:
            pass
        with timer.backward:
            pass
        with timer.update:
            yield batch


MEANS: dict[str, Callable[[Any], Any]] = {"watch": millhead.watch, "StepTimer": timed}


def epoch(loader: Any, through: Callable[[Any], Any]) -> tuple[float, float]:
    """Microseconds of CPU and seconds per batch, once the loop runs steadily."""
    cpu, began, last = 0, 0.0, len(loader) - 1
    for number, _ in enumerate(through(loader)):
        if number == WARM_UP:
            cpu, began = cpu_ns(os.getpid()), time.monotonic()
        elif number == last:  # workers are idle: all batches are made
            cpu, began = cpu_ns(os.getpid()) - cpu, time.monotonic() - began
        time.sleep(STEP_S)
    return cpu / 1e3 / (last - WARM_UP), began / (last - WARM_UP)


def measure(
    means: str, loader_class: Any, workers: int, batches: int, rounds: int
) -> dict[str, Any]:
    """Microseconds per batch that it adds, by rounds of one epoch each."""
    dataset = Cheap(batches * BATCH)
    differences, shares = [], []
    for number in range(rounds):
        loaders = [loader_class(dataset, batch_size=BATCH, num_workers=workers) for _ in range(2)]
        order = (plain, MEANS[means]) if number % 2 == 0 else (MEANS[means], plain)
        found = {
            through: epoch(loader, through) for through, loader in zip(order, loaders, strict=True)
        }
        differences.append(found[MEANS[means]][0] - found[plain][0])
        shares.append(found[MEANS[means]][1] / found[plain][1] - 1)
    return {
        "means": means,
        "loader": loader_class.__module__.partition(".")[0],
        "workers": workers,
        "cpu_us_per_batch": round(statistics.median(differences), 1),
        "all": [round(us, 1) for us in differences],
        "share_of_step": round(statistics.median(differences) / (STEP_S * 1e6), 4),
        "longer": round(statistics.median(shares), 4),
    }


def main() -> None:
    """Measure, and print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        measure(means, loader_class, workers, options.batches, options.rounds)
        for means in MEANS
        for loader_class in (torch.utils.data.DataLoader, millhead.torch.DataLoader)
        for workers in (0, 2)
    ]
    if options.json:
        print(json.dumps({"step_s": STEP_S, "batch_size": BATCH, "rows": rows}))
        return
    for row in rows:
        print(
            f"{row['means']:9} {row['loader']:8} {row['workers']} workers:"
            f" {row['cpu_us_per_batch']:6.1f} us CPU per batch, {row['share_of_step']:.2%} of a {STEP_S * 1e3:.0f} ms step;"
            f" the steps took {row['longer']:+.2%}"
        )


if __name__ == "__main__":
    main()
