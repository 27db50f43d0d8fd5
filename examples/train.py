"""A training program as they are: a Dataset that decodes pictures, torch's own DataLoader, a loop.

    python examples/train.py FOLDER [ARGUMENT=VALUE...]

ARGUMENT is one of the DataLoader's, VALUE is JSON: ``num_workers=4 persistent_workers=true``;
``loader=millhead`` takes millhead's class. Each picture comes from a store that answers after some
milliseconds, as object stores and network file systems do. The training step is a stand-in for an
accelerator: it takes its time and leaves the CPUs alone.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

EPOCHS, BATCH_SIZE, SIDE = 3, 8, 64
ANSWER_S = 0.008  # until the store answers
STEP_S = 0.03


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """A folder per class, a file per picture."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*/*.jpg"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path = self.files[index]
        time.sleep(ANSWER_S)
        with Image.open(path) as opened:
            opened.draft("RGB", (SIDE, SIDE))
            picture = opened.convert("RGB").resize((SIDE, SIDE))
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1), int(path.parent.name)


def train_step(pictures: torch.Tensor, labels: torch.Tensor) -> None:
    """Where forward, backward and the optimizer would be."""
    time.sleep(STEP_S)


def settings(arguments: list[str]) -> dict[str, Any]:
    """``name=value`` pairs as arguments of a DataLoader."""
    given: dict[str, Any] = {}
    for argument in arguments:
        name, _, value = argument.partition("=")
        given[name] = value if name == "loader" else json.loads(value)
    return given


def main(folder: str, *arguments: str) -> None:
    """Train for some epochs."""
    given = settings(list(arguments))
    loader_class = DataLoader
    if given.pop("loader", "torch") == "millhead":
        from millhead.torch import DataLoader as loader_class
    # Torch counts CPUs only; these workers sleep most of the time.
    warnings.filterwarnings("ignore", "This DataLoader will create")
    workers_stay = given.get("num_workers", 0) > 0
    loader = loader_class(
        Pictures(Path(folder)),
        **{"batch_size": BATCH_SIZE, "shuffle": True, "persistent_workers": workers_stay} | given,
    )
    for epoch in range(EPOCHS):
        began = time.perf_counter()
        for pictures, labels in loader:
            train_step(pictures, labels)
        print(f"epoch {epoch}: {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
