"""A small training program that is killed at some step and goes on when started again.

    python trained.py DIRECTORY WORKERS DISPATCH KILL_AT

Appends the loss of every step to DIRECTORY/losses, in hexadecimal. Dropout draws from torch's generator,
noise in the samples from all three, the step size from Python's.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

import numpy as np
import torch
from millhead.torch import Checkpoint, DataLoader, Dataset

EPOCHS = 3


class Noisy(Dataset[tuple[torch.Tensor, float]]):
    """Numbers with noise, as augmentation has it."""

    def __len__(self) -> int:
        return 42

    def __getitem__(self, index: int) -> tuple[torch.Tensor, float]:
        noise = random.random() + float(np.random.rand()) + torch.rand(4)
        return torch.full((4,), float(index)) / 42 + noise, index % 3


def main() -> None:
    directory, workers, dispatch, kill_at = sys.argv[1:]
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = DataLoader(
        Noisy(),
        batch_size=4,
        shuffle=True,
        num_workers=int(workers),
        dispatch=dispatch,
        snapshot_rng=dispatch == "batch",
    )
    checkpoint = Checkpoint(Path(directory) / "progress.json", loader, generators=True)
    state = checkpoint.load()
    if "weights" in state:
        trained = torch.load(Path(directory) / state["weights"])
        model.load_state_dict(trained["model"])
        optimizer.load_state_dict(trained["optimizer"])

    while state["epoch"] < EPOCHS:
        for numbers, labels in loader:
            optimizer.param_groups[0]["lr"] = 0.01 * (1 + random.random())
            loss = (model(numbers)[:, 0] - labels).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state["global_step"] += 1
            with open(Path(directory) / "losses", "a", encoding="ascii") as file:
                file.write(f"{loss.item().hex()}\n")
            state["weights"] = f"weights-{state['global_step']}.pt"
            trained = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(trained, Path(directory) / state["weights"])
            checkpoint.save(state)
            if state["global_step"] == int(kill_at):
                os.kill(os.getpid(), signal.SIGKILL)
        state["epoch"] += 1


if __name__ == "__main__":
    main()
