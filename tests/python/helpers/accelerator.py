"""A faked accelerator: pinning is a copy, and what was asked for is kept."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

needs_no_accelerator = pytest.mark.skipif(
    torch.accelerator.is_available(), reason="needs a machine without an accelerator"
)


class Accelerator:
    """What a faked accelerator was asked for."""

    def __init__(self) -> None:
        self.pinned: list[torch.Tensor] = []  # kept, so that an id() stays its own
        self.threads: list[str] = []  # that pinned
        self.devices: list[tuple[str, int]] = []  # chosen by which thread
        self.refused: float | None = None  # a tensor that begins with it cannot be pinned

    def pin(self, tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
        if self.refused is not None and float(tensor.flatten()[0]) == self.refused:
            raise MemoryError("no pinned memory is left")
        copy = tensor.detach().clone()
        self.pinned.append(copy)
        self.threads.append(threading.current_thread().name)
        return copy

    def has_pinned(self, tensor: torch.Tensor) -> bool:
        return any(tensor is pinned for pinned in self.pinned)


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Accelerator:
    fake = Accelerator()

    def choose(index: int) -> None:
        fake.devices.append((threading.current_thread().name, index))

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 3)
    monkeypatch.setattr(torch.accelerator, "set_device_index", choose)
    monkeypatch.setattr(
        torch.Tensor, "pin_memory", lambda self, device=None: fake.pin(self, device)
    )
    return fake
