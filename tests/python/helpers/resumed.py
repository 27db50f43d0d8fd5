"""What the tests of resuming share: data, samplers, and loaders over them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from millhead.torch import DataLoader
from torch.utils.data import (
    BatchSampler,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

LENGTH = 37
WORKERS = [0, 1, 3]


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        return index


class Augmented(Numbers):
    """Draws from all three global generators."""

    def __getitem__(self, index: int) -> Any:
        return index, random.random(), np.random.random(), torch.rand(2)


class EagerSampler(Sampler[int]):
    """Draws in ``__iter__``, from generators that are not torch's."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __iter__(self) -> Iterator[int]:
        order = list(range(LENGTH))
        if self.source == "random":
            random.shuffle(order)
        else:
            np.random.shuffle(order)
        return iter(order)

    def __len__(self) -> int:
        return LENGTH


def own_generator(seed: int = 5) -> torch.Generator:
    generator = torch.Generator()
    generator.manual_seed(seed)
    return generator


SAMPLERS: dict[str, Any] = {
    "sequential": dict,
    "shuffle": lambda: {"shuffle": True},
    "own generator": lambda: {"shuffle": True, "generator": own_generator()},
    "sampler's generator": lambda: {"sampler": RandomSampler(Numbers(), generator=own_generator())},
    "replacement": lambda: {"sampler": RandomSampler(Numbers(), True, 50)},
    "subset": lambda: {"sampler": SubsetRandomSampler(range(3, 30))},
    "weighted": lambda: {"sampler": WeightedRandomSampler([1.0] * LENGTH, 40)},
    "eager random": lambda: {"sampler": EagerSampler("random")},
    "eager numpy": lambda: {"sampler": EagerSampler("numpy")},
    "batch sampler": lambda: {
        "batch_sampler": BatchSampler(RandomSampler(Numbers(), generator=own_generator()), 5, True)
    },
    "no batches": lambda: {"shuffle": True, "batch_size": None},
}


def make_loader(sampler: str, workers: int, dataset: Any = None, **extra: Any) -> DataLoader[Any]:
    arguments: dict[str, Any] = {"batch_size": 4, "num_workers": workers, **SAMPLERS[sampler]()}
    if "batch_sampler" in arguments:
        del arguments["batch_size"]
    return DataLoader(Numbers() if dataset is None else dataset, **arguments, **extra)


def take(iterator: Any, count: int) -> list[Any]:
    return list(itertools.islice(iterator, count))


def disturb() -> None:
    """What another process, or another state of this one, would have done to the generators."""
    random.seed(99)
    np.random.seed(98)
    torch.manual_seed(97)


class CountingStream(IterableDataset[int]):
    """Hooks on the dataset, which only note where the next iterator begins."""

    def __init__(self) -> None:
        self.place = 0
        self.begin = 0

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        step, first = (1, 0) if info is None else (info.num_workers, info.id)
        self.place, self.begin = self.begin, 0
        for number in range(first + self.place * step, LENGTH, step):
            self.place += 1
            yield number

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.begin = state["place"]


class HookedIterator:
    def __init__(self, numbers: range) -> None:
        self.numbers, self.place = numbers, 0

    def __iter__(self) -> HookedIterator:
        return self

    def __next__(self) -> float:
        if self.place >= len(self.numbers):
            raise StopIteration
        self.place += 1
        return self.numbers[self.place - 1] + torch.rand(()).item()

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place, "generator": torch.get_rng_state().tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]
        torch.set_rng_state(torch.tensor(state["generator"], dtype=torch.uint8))


class HookedStream(IterableDataset[float]):
    """Hooks on the iterator; random, and the parts of workers are of different lengths."""

    def __iter__(self) -> HookedIterator:
        info = get_worker_info()
        number = 0 if info is None else info.id
        return HookedIterator(range(100 * number, 100 * number + (4 if number == 1 else 17)))
