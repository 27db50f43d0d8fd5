"""The walk of docs/architecture.md: how many Python frames of ours a batch passes."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import millhead.torch
import torch
from torch.utils.data import Dataset, get_worker_info

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = str(Path(millhead.torch.__file__).parent)
BATCH = 4


class Frames:
    """Counts the calls of our functions in this process."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        self.count += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)


class Counted(Dataset[torch.Tensor]):
    """A sample is the number of our frames that its worker has passed."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        info: Any = get_worker_info()
        return torch.tensor([info.dataset.frames.count])


def count_in_worker(worker: int) -> None:
    info: Any = get_worker_info()
    info.dataset.frames = Frames()
    sys.setprofile(info.dataset.frames)


def test_a_batch_passes_as_many_frames_as_the_page_says() -> None:
    loader = millhead.torch.DataLoader(
        Counted(), batch_size=BATCH, num_workers=2, worker_init_fn=count_in_worker
    )
    iterator, frames, batches = iter(loader), Frames(), []
    for _ in range(20):  # until the slots are there
        next(iterator)
    for _ in range(10):
        time.sleep(0.05)  # so that nothing is waited for
        sys.setprofile(frames)
        batch = next(iterator)
        sys.setprofile(None)
        batches.append(int(batch[0, 0]))
    in_worker = {later - one for one, later in zip(batches, batches[2:], strict=False)}
    page = (ROOT / "docs" / "architecture.md").read_text()
    said = re.search(r"passes (\d+) Python frames of ours in the trainer and (\d+) in its\s", page)
    assert said is not None
    assert (frames.count / len(batches), in_worker) == (int(said[1]), {int(said[2])})
