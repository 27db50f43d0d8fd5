"""Native batches on their way to a device: pinned memory, and ``to_device``.

There is no GPU here. Pinned memory is played by an allocator that fills a block again as soon as it is
given back, and knows for which blocks a copy to the device is still under way.
"""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest
import torch
from helpers.accelerator import Accelerator, needs_no_accelerator
from millhead.torch import to_device

COUNT = 120
BATCH = 8
RAGGED = "synthetic:count=40,shape=6x4,chunk=4,ragged"


@pytest.fixture
def path(tmp_path: Path) -> str:
    np.save(tmp_path / "x.npy", np.arange(COUNT * 16, dtype=np.float32).reshape(COUNT, 16))
    return str(tmp_path / "x.npy")


class PinnedBlocks:
    """Torch's pinned allocator: blocks by size, used again when nobody has them any more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free: list[torch.Tensor] = []
        self.made = self.reused = 0
        self.threads: set[str] = set()
        monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
        monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: self.pin(tensor))

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        self.threads.add(threading.current_thread().name)
        fits = [block for block in self.free if block.numel() >= tensor.nbytes]
        if fits:
            block = fits[0]
            self.free = [other for other in self.free if other is not block]
            self.reused += 1
        else:
            block = torch.empty(tensor.nbytes, dtype=torch.uint8)
            self.made += 1
        block.fill_(0xEE)
        pinned = block[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        pinned.copy_(tensor)
        weakref.finalize(pinned, self.free.append, block)
        return pinned


@needs_no_accelerator
def test_pinned_batches_are_blocks_of_torchs_allocator_and_nobody_else_fills_them(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = torch.from_numpy(np.load(path))
    blocks = PinnedBlocks(monkeypatch)
    with millhead.Loader(path, BATCH, pin_memory=True, threads=2, memory="1MB") as loader:
        assert loader.pin_memory is True
        kept = [batch["x"] for batch in loader]  # all of them, while the loader goes on
        assert blocks.made == COUNT // BATCH
        assert torch.equal(torch.cat(kept), rows)
        assert loader.stats()["batches_copied_out"] == 0  # a slot is free once it is pinned
        assert loader.stats()["stages"]["pin"]["count"] == COUNT // BATCH
        kept.clear()
        for number, batch in enumerate(loader):  # one at a time: torch's to use again
            assert torch.equal(batch["x"], rows[number * BATCH :][:BATCH])
        assert blocks.made == COUNT // BATCH
        assert blocks.reused == COUNT // BATCH
    assert blocks.threads == {threading.current_thread().name}


@needs_no_accelerator
def test_every_field_is_pinned_before_map_sees_it(
    path: str, accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def look(batch: dict[str, Any]) -> dict[str, Any]:
        seen.append(all(accelerator.has_pinned(tensor) for tensor in batch.values()))
        return batch

    with millhead.Loader(path, 50, fields=["_index", "x"], pin_memory=True, map=look) as loader:
        assert [len(batch["x"]) for batch in loader] == [50, 50, 20]
    assert seen == [True] * 3
    with millhead.Loader(RAGGED, 8, pin_memory=True) as loader, millhead.Loader(RAGGED, 8) as plain:
        for pinned, expected in zip(loader, plain, strict=True):
            assert accelerator.has_pinned(pinned["x"].values)
            for mine, other in zip(pinned["x"], expected["x"], strict=True):
                assert torch.equal(mine, other)


@needs_no_accelerator
def test_nothing_is_pinned_where_there_is_no_device(path: str) -> None:
    with millhead.Loader(path, 50, pin_memory=True) as loader:
        assert not any(batch["x"].is_pinned() for batch in loader)


def test_to_device_gives_native_batches_and_their_state(path: str) -> None:
    with millhead.Loader(path, BATCH, shuffle=True, seed=3) as plain:
        expected = [batch["x"] for batch in plain]
    loader = millhead.Loader(path, BATCH, shuffle=True, seed=3)
    device = to_device(loader, "cpu")
    assert len(device) == COUNT // BATCH
    iterator = iter(device)
    first = [next(iterator)["x"] for _ in range(4)]
    state = device.state_dict()
    device.load_state_dict(state)
    found = first + [batch["x"] for batch in device]
    assert all(torch.equal(mine, other) for mine, other in zip(found, expected, strict=True))
    moved = list(to_device(loader, "meta"))  # another device: every tensor of a batch is moved
    assert {batch["x"].device.type for batch in moved} == {"meta"}
    loader.close()
    with millhead.Loader(RAGGED, 8) as ragged:
        (first_ragged, *_) = to_device(ragged, "meta")
        assert first_ragged["x"].values.device.type == "meta"
