"""What the documents' training script has around the lines their diffs show: data, model, ranks.

Imported by seed000_*.py and seed002_*.py. Two ranks talk over gloo on this machine's CPUs; the
language model is a few thousand numbers and its text is made up.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.utils.data import Dataset

RANKS = 2
ROWS, ROW_TOKENS, VOCABULARY = 64, 16, 50
SLOW_RANK, SLOW_ROW_S = 1, 0.004


class Tokens(Dataset[dict[str, list[int]]]):
    """Rows of tokens; on one rank reading a row is slow, as from a node with a bad disk."""

    def __init__(self, rank: int = 0) -> None:
        generator = torch.Generator().manual_seed(1)
        self.rows = torch.randint(VOCABULARY, (ROWS, ROW_TOKENS), generator=generator).tolist()
        self.row_s = SLOW_ROW_S if rank == SLOW_RANK else 0.0

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        time.sleep(self.row_s)
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def default_data_collator(rows: Sequence[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Stands for transformers.default_data_collator: lists in, a dictionary of tensors out."""
    return {key: torch.tensor([row[key] for row in rows]) for key in rows[0]}


class Output(NamedTuple):
    """What a language model of transformers returns, as far as the loop reads it."""

    loss: torch.Tensor


class LanguageModel(nn.Module):
    """Guesses each token from the one before."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.guess = nn.Sequential(nn.Embedding(VOCABULARY, 16), nn.Linear(16, VOCABULARY))

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Output:
        guesses = self.guess(input_ids[:, :-1])
        return Output(nn.functional.cross_entropy(guesses.flatten(0, 1), labels[:, 1:].flatten()))


class LocalTimer:
    """Adds up the time spent inside `with timer:`."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self.start


def report(losses: list[float], timers: dict[str, LocalTimer]) -> None:
    """Rank 0 prints every rank's losses, which must repeat, and times, which need not.

    Times are sums per step. A mean over uses of a timer would understate `waiting`, which a step
    uses three times.
    """
    per_step = {name: 1000 * timer.seconds / len(losses) for name, timer in timers.items()}
    everyone: list[Any] = [None] * RANKS
    dist.all_gather_object(everyone, (losses, per_step))
    if dist.get_rank() == 0:
        for rank, (its_losses, its_times) in enumerate(everyone):
            times = ", ".join(f"{name} {ms:.1f}" for name, ms in its_times.items())
            print(f"rank {rank}: ms per step: {times}")
            print(f"result: rank {rank}: losses {its_losses}")


def run_ranks(main: Callable[[int], None]) -> None:
    """Calls main(rank) in one process per rank, joined in a process group."""
    with tempfile.TemporaryDirectory(prefix="millhead-ranks-") as folder:
        meeting = Path(folder) / "meeting"
        # fork: the ranks need not import torch again
        torch.multiprocessing.start_processes(
            _rank, (main, f"file://{meeting}"), nprocs=RANKS, start_method="fork"
        )


def _rank(rank: int, main: Callable[[int], None], meeting: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=RANKS)
    try:
        main(rank)
    finally:
        gc.collect()  # models in cycles keep the group's threads, at which torch aborts at its exit
        dist.destroy_process_group()
