"""A training program as they are: pictures with a map of heights, torch's own DataLoader, a loop.

    python examples/train.py FOLDER [ARGUMENT=VALUE...]

ARGUMENT is one of the DataLoader's, VALUE is JSON: ``num_workers=4 persistent_workers=true``;
``loader=millhead`` takes millhead's class; ``latency=8`` lets every picture wait 8 ms first, as one in
an object store would. A sample is a JPEG file that Pillow decodes, and a chunk
of a Zarr array. The training step is a stand-in for an accelerator: it takes its time and leaves the
CPUs alone.
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
import zarr
from PIL import Image
from torch.utils.data import DataLoader, Dataset

EPOCHS, BATCH_SIZE, SIDE = 3, 8, 128
STEP_S = 0.03


class Scenes(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """A folder of pictures, and a Zarr array with a map of heights for each."""

    def __init__(self, folder: Path, latency_ms: float) -> None:
        self.files = sorted(folder.glob("*/*.jpg"))
        self.latency_ms = latency_ms
        self.store = folder / "heights.zarr"
        self.heights: Any = None

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.heights is None:  # here: zarr has a thread, which a worker's fork would lose
            self.heights = zarr.open_array(self.store, mode="r")
        if self.latency_ms:
            time.sleep(self.latency_ms / 1000)
        with Image.open(self.files[index]) as opened:
            picture = opened.convert("RGB").resize((SIDE, SIDE))
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1)
        return pixels, torch.from_numpy(np.asarray(self.heights[index]))


def train_step(pictures: torch.Tensor, heights: torch.Tensor) -> None:
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
    warnings.filterwarnings("ignore", "This DataLoader will create")  # told by the doctor if so
    scenes = Scenes(Path(folder), given.pop("latency", 0))
    workers_stay = given.get("num_workers", 0) > 0
    loader = loader_class(
        scenes,
        **{"batch_size": BATCH_SIZE, "shuffle": True, "persistent_workers": workers_stay} | given,
    )
    for epoch in range(EPOCHS):
        began = time.perf_counter()
        for pictures, heights in loader:
            train_step(pictures, heights)
        print(f"epoch {epoch}: {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
