"""Says what a loader must give, batch by batch, without using any loader.

The contract, from the seeds alone: which indices make a batch, which worker loads it, what that
worker's generators hold then, and what the parent's generators hold after every step. Samplers,
batching, reading from iterables, worker seeding and collation are written out here and share no
code with torch's.
"""

from __future__ import annotations

import copy
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

# ---- orders: what each sampler yields, and when it draws ---------------------------------------


def sequential(length: int, generator: torch.Generator | None) -> Iterator[int]:
    yield from range(length)


def shuffled(length: int, generator: torch.Generator | None) -> Iterator[int]:
    """A permutation at the first ``next``, and a second one, unused, at the end."""
    if generator is None:
        seed = int(torch.empty((), dtype=torch.int64).random_().item())
        generator = torch.Generator().manual_seed(seed)
    yield from torch.randperm(length, generator=generator).tolist()
    torch.randperm(length, generator=generator)


def with_replacement(length: int, generator: torch.Generator | None) -> Iterator[int]:
    """70 draws, 32 at a time."""
    if generator is None:
        seed = int(torch.empty((), dtype=torch.int64).random_().item())
        generator = torch.Generator().manual_seed(seed)
    for count in (32, 32, 6):
        yield from torch.randint(0, length, (count,), generator=generator).tolist()


def odd_ones(length: int, generator: torch.Generator | None) -> Iterator[int]:
    """A random order of the odd indices; without a generator the global one is drawn."""
    indices = range(1, length, 2)
    for place in torch.randperm(len(indices), generator=generator).tolist():
        yield indices[place]


def weighted(length: int, generator: torch.Generator | None) -> Iterator[int]:
    weights = torch.arange(1, length + 1, dtype=torch.float64)
    yield from torch.multinomial(weights, length, True, generator=generator).tolist()


def second_of_three(length: int, generator: torch.Generator | None) -> Iterator[int]:
    """Rank 1 of 3: seeded by itself, padded from the head, every third index."""
    order = torch.randperm(length, generator=torch.Generator().manual_seed(0)).tolist()
    total = math.ceil(length / 3) * 3
    padded = list(itertools.islice(itertools.cycle(order), total))
    yield from padded[1:total:3]


class DrawsAtIter:
    """Draws in ``__iter__`` itself: shows how often and when ``iter`` is called."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.length).tolist())

    def __len__(self) -> int:
        return self.length


# ---- one simulated worker ----------------------------------------------------------------------


def _save() -> tuple[Any, Any, torch.Tensor]:
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def _restore(states: tuple[Any, Any, torch.Tensor]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


class Worker:
    """A worker's dataset and generators, kept apart from the parent's."""

    def __init__(self, plan: Plan, dataset: Any, base_seed: int, number: int) -> None:
        self.plan = plan
        self.dataset = copy.deepcopy(dataset)
        if plan.stream:
            self.dataset.worker = number, plan.workers  # what get_worker_info() would tell it
        outside = _save()
        random.seed(base_seed + number)
        torch.manual_seed(base_seed + number)
        entropy = [number, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
        np.random.seed(np.random.SeedSequence(entropy).generate_state(4))
        if plan.init is not None:
            plan.init(number)
        self.fetch = plan.open(self.dataset)
        self.states = _save()
        _restore(outside)

    def _here(self, do: Callable[[], Any]) -> Any:
        """Does something with this worker's generators."""
        outside = _save()
        _restore(self.states)
        result = do()
        self.states = _save()
        _restore(outside)
        return result

    def begin_epoch(self) -> None:
        """An iterable is opened anew; a dataset with indices has nothing to begin."""
        self.fetch = self._here(lambda: self.plan.open(self.dataset))

    def load(self, indices: list[int]) -> Any:
        return self._here(lambda: self.fetch(indices))


# ---- the loader's life -------------------------------------------------------------------------


END = object()
"""What a stream gives in place of a batch when it has none."""


@dataclass
class Plan:
    """The arguments a loader would get; ``order`` makes one pass of the sampler.

    ``stream``: the dataset is an iterable one. ``together``: it has ``__getitems__``.
    """

    dataset: Any
    order: Callable[[], Iterable[int]]
    batch_size: int
    drop_last: bool = False
    workers: int = 0
    prefetch: int = 2
    persistent: bool = False
    generator: torch.Generator | None = None
    init: Callable[[int], None] | None = None
    collate: Callable[[list[Any]], Any] | None = None
    stream: bool = False
    together: bool = False

    def open(self, dataset: Any) -> Callable[[list[int]], Any]:
        """What gives a batch, or END: all samples first, in order, and then the collate function."""
        if self.stream:
            return self._open_stream(dataset)
        if self.together:
            return lambda indices: self._finish(dataset.__getitems__(indices))
        return lambda indices: self._finish([dataset[index] for index in indices])

    def _open_stream(self, dataset: Any) -> Callable[[list[int]], Any]:
        samples = iter(dataset)
        over = False

        def take(group: list[int]) -> Any:
            """A batch is short only where the stream ends, and then it is asked no more."""
            nonlocal over
            batch = [] if over else list(itertools.islice(samples, len(group)))
            over = len(batch) < len(group)
            return END if not batch or (over and self.drop_last) else self._finish(batch)

        return take

    def _finish(self, samples: list[Any]) -> Any:
        return (self.collate or stack)(samples)

    def batches(self) -> Iterator[list[int]]:
        """Index lists; lazy, so the order begins to draw at the first ``next``."""
        if self.stream:
            yield from itertools.repeat([0] * self.batch_size)
        indices = iter(self.order())
        while group := list(itertools.islice(indices, self.batch_size)):
            if len(group) == self.batch_size or not self.drop_last:
                yield group


def stack(samples: list[Any]) -> Any:
    """Tuples of numbers and tensors, column by column."""
    columns = list(zip(*samples, strict=True))
    return [_column(column) for column in columns]


def _column(values: tuple[Any, ...]) -> torch.Tensor:
    if isinstance(values[0], torch.Tensor):
        return torch.cat([value.unsqueeze(0) for value in values])
    dtype = torch.float64 if isinstance(values[0], float) else torch.int64
    return torch.tensor(values, dtype=dtype)


@dataclass
class Prediction:
    """Yields what ``iter`` and ``next`` do, in the order a user would call them."""

    plan: Plan
    crew: list[Worker] = field(default_factory=list)

    def _base_seed(self) -> int:
        drawn = torch.empty((), dtype=torch.int64).random_(generator=self.plan.generator)
        return int(drawn.item())

    def begin_epoch(self) -> Iterator[Any]:
        """What ``iter(loader)`` draws, and an iterator over the batches that follow."""
        if not self.plan.workers:
            batches = self._iter_sampler()
            self._base_seed()
            load = self.plan.open(self.plan.dataset)
            return itertools.takewhile(lambda batch: batch is not END, map(load, batches))
        if not self.crew or not self.plan.persistent:
            self._iter_sampler()  # torch makes a first one and drops it
            seed = self._base_seed()
            self.crew = [
                Worker(self.plan, self.plan.dataset, seed, number)
                for number in range(self.plan.workers)
            ]
        else:
            for worker in self.crew:
                worker.begin_epoch()
        return self._work_ahead(self._iter_sampler())

    def _iter_sampler(self) -> Iterator[list[int]]:
        return self.plan.batches()

    def _work_ahead(self, groups: Iterator[list[int]]) -> Iterator[Any]:
        """Keeps workers * prefetch batches begun: the first ones now, one more at each step.

        Workers take turns; one whose stream has ended is passed over.
        """
        turns = itertools.cycle(range(self.plan.workers))
        begun: list[tuple[int, Any]] = []
        ended: set[int] = set()

        def begin_one() -> None:
            if len(ended) == self.plan.workers:
                return
            for group in itertools.islice(groups, 1):
                worker = next(number for number in turns if number not in ended)
                begun.append((worker, self.crew[worker].load(group)))

        for _ in range(self.plan.workers * self.plan.prefetch):
            begin_one()
        return self._hand_over(begun, begin_one, ended)

    @staticmethod
    def _hand_over(
        begun: list[tuple[int, Any]], begin_one: Callable[[], None], ended: set[int]
    ) -> Iterator[Any]:
        while begun:
            worker, batch = begun.pop(0)
            if batch is END:
                ended.add(worker)
            begin_one()
            if batch is not END:
                yield batch
