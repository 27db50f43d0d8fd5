"""Datasets whose workers grow, for limits on their memory. Importable, and light to import."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

MB = 2**20
#: Between two looks at its memory a worker may let 50 ms pass: no batch of four is faster than that.
PAUSE_S = 0.014


class Growing:
    """Keeps some megabytes for each sample, and asks all three generators.

    ``text`` makes samples that fit into no slot.
    """

    def __init__(self, length: int = 60, megabytes: int = 6, text: bool = False) -> None:
        self.length = length
        self.megabytes = megabytes
        self.text = text
        self.kept: list[Any] = []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        self.kept.append(np.ones(self.megabytes * MB, dtype=np.uint8))
        time.sleep(PAUSE_S)
        sample = index, random.random(), np.random.random(2), torch.rand(3)
        return (*sample, "x" * (index % 7) * 1000) if self.text else sample


class OwnCount(Growing):
    """Counts its samples where hooks can see it."""

    def __init__(self) -> None:
        super().__init__()
        self.given = 0

    def __getitem__(self, index: int) -> Any:
        self.given += 1
        return (*super().__getitem__(index), self.given)

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given = state["given"]


class Garbage(Growing):
    """Leaves memory that a collection of garbage gives back."""

    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        cycle: list[Any] = [self.kept.pop()]
        cycle.append(cycle)
        return sample


class Opened(Growing):
    """Opens a file as it is unpickled, so that no template serves."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.file = open(__file__, encoding="utf-8")  # noqa: SIM115 - that is the point


class Balloon:
    """One sample takes far too much: the first so many times that a worker is asked for it."""

    def __init__(self, place: str, times: int, at: int = 21) -> None:
        self.place = place
        self.times = times
        self.at = at

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> Any:
        sample = index, random.random(), np.random.random(2), torch.rand(3)
        if index == self.at and self.times and get_worker_info() is not None:
            asked = len(os.listdir(self.place))
            if asked < self.times:
                (Path(self.place) / str(asked)).touch()
                kept = np.ones(200 * MB, dtype=np.uint8)
                time.sleep(60)
                del kept
        return sample


class TwoBalloons:
    """The first samples of batches 0 and 1, of four each, take far too much the first time."""

    def __init__(self, place: str) -> None:
        self.place = Path(place)

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> int:
        asked = self.place / str(index)
        if index in (0, 4) and not asked.exists():
            asked.touch()
            kept = np.ones(200 * MB, dtype=np.uint8)
            time.sleep(60)
            del kept
        return index


class Dying(Growing):
    """Kills its worker in the middle of a batch."""

    def __getitem__(self, index: int) -> Any:
        if index == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Quitting(Growing):
    """Ends its worker in the middle of a batch; the process has far too much memory only then."""

    def __getitem__(self, index: int) -> Any:
        if index == 9:
            threading.Thread(target=_grow_at_exit).start()
            sys.exit(3)
        return index


def _grow_at_exit() -> None:
    """Waits until the main thread waits for this one, then takes memory for a while."""
    main = threading.main_thread().ident
    assert main is not None
    names: set[str] = set()
    while "_shutdown" not in names:
        time.sleep(0.01)
        frames = traceback.walk_stack(sys._current_frames()[main])
        names = {frame.f_code.co_name for frame, _ in frames}
    kept = np.ones(300 * MB, dtype=np.uint8)
    time.sleep(1.0)
    del kept


class Stream(IterableDataset[Any]):
    """A worker's part of a range; each sample keeps some memory."""

    def __init__(self, length: int = 60) -> None:
        self.length = length
        self.kept: list[Any] = []

    def _numbers(self) -> range:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return range(first, self.length, step)

    def _sample(self, number: int) -> Any:
        self.kept.append(np.ones(6 * MB, dtype=np.uint8))
        time.sleep(PAUSE_S)
        return number, random.random(), np.random.random(2), torch.rand(3)

    def __iter__(self) -> Iterator[Any]:
        for number in self._numbers():
            yield self._sample(number)


class HookedStream(Stream):
    """The same, and it can be told where to begin."""

    def __init__(self) -> None:
        super().__init__()
        self.given = 0
        self.begin = 0

    def __iter__(self) -> Iterator[Any]:
        self.given, self.begin = self.begin, 0
        for number in self._numbers()[self.given :]:
            self.given += 1
            yield self._sample(number)
        self.given = 0

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given = self.begin = state["given"]
