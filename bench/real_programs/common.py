"""What the real programs share: the loader, settings that a fix may change, a device to wait for, data on a disk.

A program's TRUTH says what is wrong with it. `real_truth.py` reads it, runs the program under the doctor,
applies the fix through REAL_SETTINGS, and runs it again. REAL_LOADER chooses whose DataLoader it is.
"""

from __future__ import annotations

import atexit
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

if os.environ.get("REAL_LOADER", "torch") == "millhead":
    from millhead.torch import DataLoader
else:
    from torch.utils.data import DataLoader

__all__ = ["COST", "DataLoader", "batches", "device", "model", "scratch", "settings", "train_step"]

#: How many batches: a program runs at three lengths.
LENGTH = float(os.environ.get("REAL_LENGTH", "1"))
_CHANGED: dict[str, Any] = json.loads(os.environ.get("REAL_SETTINGS", "{}"))
#: What a sample costs, beside what it costs as written.
COST = float(_CHANGED.pop("cost", 1.0))


def batches(count: int) -> int:
    """As many as this length asks for."""
    return max(4, round(count * LENGTH))


_began: list[float] = []


def _tell_seconds() -> None:
    Path(os.environ["REAL_SECONDS"]).write_text(f"{time.perf_counter() - _began[0]}")


def settings(**own: Any) -> dict[str, Any]:
    """A DataLoader's arguments: the program's own, and what a fix changes.

    They are asked for just before the loop: from here to the program's end counts as its time."""
    if not _began and "REAL_SECONDS" in os.environ:
        _began.append(time.perf_counter())
        atexit.register(_tell_seconds)
    changed = {**own, **_CHANGED}
    if not changed.get("num_workers"):
        for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context"):
            changed.pop(name, None)
    return changed


def device(seconds: float) -> None:
    """A device that computes while this thread sleeps."""
    time.sleep(seconds)


def scratch() -> Path:
    """A directory for the program's data, kept between runs."""
    path = Path(tempfile.gettempdir()) / "millhead-real-programs"
    path.mkdir(exist_ok=True)
    return path


def model(features: int, width: int = 256) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A small network and its optimizer."""
    net = torch.nn.Sequential(
        torch.nn.Linear(features, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)
    )
    return net, torch.optim.SGD(net.parameters(), lr=0.01)


def train_step(
    net: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor
) -> float:
    """Forward, backward, update."""
    optimizer.zero_grad()
    loss = net(batch.flatten(1)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()
