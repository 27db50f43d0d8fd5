"""Datasets for workers that start from a template: what they hold, and what unpickling them does.

Importable, and light to import: a template and every spawned worker does it.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

RECORD = 4096
LARGE = 2**20  # elements: well over what stays in the pickle stream


class Plain:
    """Gives the index."""

    def __init__(self, length: int = 8) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return index


class Augmented(Plain):
    """Asks all three generators, and tells the worker's number and seed."""

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None
        return (
            index,
            torch.rand(3),
            np.random.random(2),
            random.random(),
            info.id,
            info.seed % 2**62,
            [info.num_workers, len(info.dataset)],
        )


class Counted(Plain):
    """Leaves the pid of every process that unpickles it in a file."""

    def __init__(self, length: int, note: str) -> None:
        super().__init__(length)
        self.note = note

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        with open(self.note, "a") as file:
            file.write(f"{os.getpid()}\n")


class Added(Plain):
    """Gives the index and a number that the trainer may change."""

    def __init__(self, length: int, number: int) -> None:
        super().__init__(length)
        self.number = number

    def __getitem__(self, index: int) -> int:
        return index + self.number


def facts() -> dict[str, Any]:
    """What a process has from the one that started it."""
    parent = multiprocessing.parent_process()
    return {
        "pid": os.getpid(),
        "parent": parent.pid if parent is not None else None,
        "parent_alive": parent.is_alive() if parent is not None else None,
        "daemon": multiprocessing.current_process().daemon,
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "path": sys.path,
        "arguments": sys.argv,
        "cpus": sorted(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "blocked": sorted(int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    }


class Facts(Plain):
    """Gives the facts of the process that loads."""

    def __getitem__(self, index: int) -> str:
        return json.dumps(facts())


class Everything(Plain):
    """Holds much of what a dataset may hold, uses it, and tells how that went."""

    def __init__(self, context: Any, length: int = 8) -> None:
        super().__init__(length)
        self.lock = context.Lock()
        self.count = context.Value("i", 0)
        self.queue = context.Queue()
        self.shared = torch.zeros(length, dtype=torch.int64).share_memory_()
        self.array = np.zeros(LARGE, dtype=np.int64)
        self.tensor = torch.zeros(LARGE, dtype=torch.int64)
        self.whole = torch.zeros(LARGE)
        self.part = self.whole[100:200]
        self.read_only = np.zeros(4)
        self.read_only.flags.writeable = False

    def __getitem__(self, index: int) -> dict[str, Any]:
        with self.lock:
            self.count.value += 1
        self.queue.put(index)
        self.shared[index] = index + 1
        told = {
            "index": index,
            "before": [int(self.array[index]), int(self.tensor[index])],
            "writable": bool(self.array.flags.writeable),
            "was_read_only": bool(self.read_only.flags.writeable),
            "is_dataset": get_worker_info().dataset is self,  # type: ignore[union-attr]
        }
        self.array[index] = self.tensor[index] = index + 1
        self.part.fill_(index)
        told["after"] = [int(self.array[index]), int(self.tensor[index])]
        told["seen_in_whole"] = float(self.whole[150])
        return told

    def collate(self, samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Collates; a bound method belongs to the very dataset that the worker has."""
        same = self is get_worker_info().dataset  # type: ignore[union-attr]
        return [{**sample, "collated_by_dataset": same} for sample in samples]


class Holding(Plain):
    """Holds one thing."""

    def __init__(self, thing: Any) -> None:
        super().__init__()
        self.thing = thing


# ---- what happens while unpickling ---------------------------------------------------------------


class StartsThread(Plain):
    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.go = threading.Event()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            self.go.wait()
            self.go.clear()
            self.answer = True

    def __getitem__(self, index: int) -> int:
        """The index if the thread is there, -1 if nobody answers."""
        self.answer = False
        self.go.set()
        deadline = time.monotonic() + 5
        while not self.answer and time.monotonic() < deadline:
            time.sleep(0.001)
        return index if self.answer else -1


class SeedsGenerator(Plain):
    """Makes a generator when unpickled, and gives its numbers."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.generators = {"own": np.random.default_rng()}

    def __getitem__(self, index: int) -> float:
        return float(self.generators["own"].random())


class Long(IterableDataset[int]):
    """Counts, and has a state that no message can hold."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < 8:
            self.at += 1
            yield self.at

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "buffer": b"x" * 2**20}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


def write_records(path: Path, count: int) -> None:
    """A file of records, each with its own number at its beginning."""
    path.write_bytes(
        b"".join(number.to_bytes(8, "little").ljust(RECORD) for number in range(count))
    )


def read_record(file: Any, index: int) -> int:
    """A record's number, read the way that needs the file's position to be one's own."""
    file.seek(index * RECORD)
    time.sleep(0.0005)
    return int.from_bytes(file.read(8), "little")


class OpensFile(Plain):
    """Opens a file of records when unpickled and reads it with seek and read."""

    def __init__(self, length: int, path: str) -> None:
        super().__init__(length)
        self.path = path

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.file = io.FileIO(self.path)

    def __getitem__(self, index: int) -> int:
        return read_record(self.file, index)


def open_directory() -> int:
    """What a template must not have open when it forks."""
    return os.open(os.path.dirname(__file__), os.O_RDONLY)


class OpensAndCounts(Counted):
    """Leaves the pid of every process that unpickles it in a file, and a directory open."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.directory = open_directory()


class OpensFacts(Facts):
    """Opens a directory when unpickled, and gives the facts of the process that loads."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.directory = open_directory()


class OpensAugmented(Augmented):
    """Opens a directory when unpickled, and asks all three generators."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.directory = open_directory()


class Raises(Plain):
    def __setstate__(self, state: dict[str, Any]) -> None:
        raise LookupError("cannot be\nunpickled " + "x" * 100_000)


class Exits(Plain):
    def __setstate__(self, state: dict[str, Any]) -> None:
        os._exit(3)


class Prints(Plain):
    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        print("unpickled")
        print("unpickled", file=sys.stderr)


class Sleeps(Plain):
    """Sleeps when unpickled, having told so."""

    def __init__(self, note: str) -> None:
        super().__init__()
        self.note = note

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        Path(self.note).touch()
        time.sleep(30)


class Refuses(Plain):
    """Raises when pickled."""

    def __init__(self, make: Callable[[], Exception]) -> None:
        super().__init__()
        self.make = make

    def __getstate__(self) -> Any:
        raise self.make()


class PicklesSlowly(Facts):
    """Tells when it is being pickled, and takes its time."""

    begun = threading.Event()

    def __getstate__(self) -> dict[str, Any]:
        PicklesSlowly.begun.set()
        time.sleep(0.5)
        return self.__dict__.copy()


# ---- loaders within loaders -----------------------------------------------------------------------


class Nested(Plain):
    """Every sample is the sum of a loader's own epoch."""

    def __init__(self, length: int, workers: int, context: str | None) -> None:
        super().__init__(length)
        self.workers = workers
        self.context = context

    def __getitem__(self, index: int) -> int:
        from millhead.torch import DataLoader

        inner = DataLoader(
            Plain(index + 3),
            batch_size=2,
            num_workers=self.workers,
            multiprocessing_context=self.context,
        )
        return sum(int(batch.sum()) for batch in inner)


class NestedTorch(Nested):
    """The same with torch's own loader."""

    def __getitem__(self, index: int) -> int:
        inner: Any = torch.utils.data.DataLoader(
            Plain(index + 3),
            batch_size=2,
            num_workers=self.workers,
            multiprocessing_context=self.context,
        )
        return sum(int(batch.sum()) for batch in inner)
