"""Batches of samples of like length: little padding, and ranks that take equally long."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch

from millhead._arguments import require_at_least
from millhead.torch.sampling.epoch_sampler import EpochSampler, Run
from millhead.torch.sampling.rank_order import Order, shuffled


class LengthBatchSampler(EpochSampler[list[int]]):
    """Puts samples of like length into a batch; for a loader's ``batch_sampler``.

    The samples are shuffled, sorted by length within pools, and cut into batches. As many batches of
    neighbouring lengths as there are ranks make a step: each rank takes one of them, so that none
    waits long for another. The steps are shuffled; only the last may have a batch that is short.

    Every rank gives equally many batches, every sample comes once. Where batches do not go round, a
    few come twice. Takes 8 bytes a sample on every rank, and all lengths must be known beforehand.

    Args:
        lengths: of every sample, in the order of the dataset.
        batch_size: samples in a batch, or the most with ``max_tokens``.
        max_tokens: the most a padded batch may hold: its longest sample times its number of
            samples. The number of batches, and ``len()``, then differ from epoch to epoch.
        pool_steps: so many steps' worth of samples are sorted together. More: less padding; fewer:
            batches that are mixed better.
        shuffle: False for evaluation: pools of samples as they lie, steps in order.
        drop_last: leave out what does not go round, instead of giving some batches twice; with
            ``batch_size`` alone every batch is then full.
        num_replicas, rank: as for :class:`DistributedSampler`; one rank where nobody says otherwise.

    Raises:
        ValueError: a sample is longer than ``max_tokens``, or arguments do not fit together.

        >>> from millhead.torch import LengthBatchSampler
        >>> list(LengthBatchSampler([5, 1, 4, 2], batch_size=2, shuffle=False))
        [[1, 3], [2, 0]]
    """

    def __init__(
        self,
        lengths: Sequence[int] | torch.Tensor,
        batch_size: int | None = None,
        *,
        max_tokens: int | None = None,
        pool_steps: int = 50,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        super().__init__(seed, shuffle, num_replicas, rank)
        if batch_size is None and max_tokens is None:
            raise ValueError("pass batch_size or max_tokens, or both")
        require_at_least(1, batch_size=batch_size, max_tokens=max_tokens, pool_steps=pool_steps)
        self.lengths = torch.as_tensor(lengths, dtype=torch.int64)
        self.batch_size, self.max_tokens, self.drop_last = batch_size, max_tokens, drop_last
        self._check_lengths()
        self._tokens = int(self.lengths.sum())
        self.pool_steps = pool_steps
        self._plan: _Plan | None = None

    def _check_lengths(self) -> None:
        if self.lengths.ndim != 1:
            raise ValueError(
                f"lengths should be a list of numbers, but got {self.lengths.ndim} dims"
            )
        for sample in (self.lengths < 0).nonzero().flatten()[:1].tolist():
            raise ValueError(f"sample {sample} has length {int(self.lengths[sample])}")
        if self.max_tokens is None:
            return
        for sample in (self.lengths > self.max_tokens).nonzero().flatten()[:1].tolist():
            raise ValueError(
                f"sample {sample} has length {int(self.lengths[sample])}, more than max_tokens="
                f"{self.max_tokens}: allow more, or leave it out of the dataset"
            )

    def __len__(self) -> int:
        """Batches of this rank in the epoch that :meth:`set_epoch` chose."""
        if self.max_tokens is not None or self.batch_size is None:
            return self._planned(self.seed, self.epoch).steps
        unit = self.batch_size * self.num_replicas
        count = len(self.lengths)
        return count // unit if self.drop_last else -(-count // unit)

    def _give(self, run: Run) -> Iterator[list[int]]:
        plan = self._planned(run.seed, run.epoch)
        for step in range(run.start, plan.steps):
            first, end = plan.batch(step)
            yield plan.samples[first:end].tolist()

    def _samples(self, seed: int, epoch: int, steps: int) -> int:
        return self._planned(seed, epoch).counts()[steps] if steps else 0

    def _steps(self, seed: int, epoch: int, samples: int) -> int:
        counts = self._planned(seed, epoch).counts()
        steps = bisect_right(counts, samples) - 1
        if counts[steps] != samples:
            raise ValueError(f"no batch of this rank ends after {samples} samples of the epoch")
        return steps

    def _likeness(self) -> dict[str, Any]:
        return {
            "length": len(self.lengths),
            "tokens": self._tokens,
            "batch_size": self.batch_size,
            "max_tokens": self.max_tokens,
            "pool_steps": self.pool_steps,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "num_replicas": self.num_replicas,
        }

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_plan": None}

    # --- an epoch's batches -----------------------------------------------------------------------

    def _planned(self, seed: int, epoch: int) -> _Plan:
        if self._plan is None or self._plan.of != (seed, epoch):
            self._plan = self._make_plan(seed, epoch)
        return self._plan

    def _make_plan(self, seed: int, epoch: int) -> _Plan:
        count = len(self.lengths)
        order = torch.arange(count)
        if self.shuffle:
            order = torch.tensor(list(shuffled(count, seed, epoch)), dtype=torch.int64)
        if self.drop_last and self.max_tokens is None:  # any samples, not the longest of a pool
            order = order[: len(self) * self.num_replicas * (self.batch_size or 1)]
        samples = self._sort(order)
        firsts = self._cut(self.lengths[samples])
        return _Plan((seed, epoch), samples, firsts, self)

    def _sort(self, order: torch.Tensor) -> torch.Tensor:
        """By length within pools: up in one and down in the next, so that a step in which two
        pools meet has samples of like length too."""
        pools = []
        for number, pool in enumerate(torch.split(order, self._pool_samples())):
            along = self.lengths[pool].sort(stable=True, descending=number % 2 == 1)
            pools.append(pool[along.indices])
        return torch.cat(pools)

    def _pool_samples(self) -> int:
        batch = self.batch_size or len(self.lengths)
        if self.max_tokens is not None:
            mean = max(self._tokens, 1) / max(len(self.lengths), 1)
            batch = max(1, min(batch, int(self.max_tokens / mean)))
        return max(1, batch * self.num_replicas * self.pool_steps)

    def _cut(self, lengths: torch.Tensor) -> list[int]:
        """Where batches begin, and the end."""
        count = len(lengths)
        if self.max_tokens is None and self.batch_size is not None:
            return [*range(0, count, self.batch_size), count]
        most_samples = self.batch_size or sys.maxsize
        most_tokens = self.max_tokens or sys.maxsize
        firsts, longest = [0], 0
        for place, length in enumerate(lengths.tolist()):
            longest = max(longest, length)
            samples = place - firsts[-1] + 1
            if samples > most_samples or samples * longest > most_tokens:
                firsts.append(place)
                longest = length
        return [*firsts, count] if count else [0]


class _Plan:
    """An epoch: its samples in the order of batches, where those begin, the order of steps."""

    def __init__(
        self,
        of: tuple[int, int],
        samples: torch.Tensor,
        firsts: list[int],
        sampler: LengthBatchSampler,
    ) -> None:
        self.of = of
        self.samples = samples
        self._firsts = firsts
        self._ranks, self._rank = sampler.num_replicas, sampler.rank
        self._batches = len(firsts) - 1
        self.steps = self._batches // self._ranks
        if self._batches % self._ranks and not sampler.drop_last:
            self.steps += 1
        #: Steps in which nothing lacks; one that is short of a batch or a sample stays the last.
        self._whole = self._batches // self._ranks
        if sampler.max_tokens is None and sampler.batch_size is not None:
            self._whole = len(samples) // (sampler.batch_size * self._ranks)
        self._order: Order | range = range(self._whole)
        if sampler.shuffle:
            self._order = shuffled(self._whole, *of, part=1)
        self._counts: list[int] = []

    def batch(self, step: int) -> tuple[int, int]:
        """This rank's batch: where in ``samples`` it begins and ends."""
        # In turns, so that the longest batch of a step is not always the same rank's
        number = self._place(step) * self._ranks + (self._rank + step) % self._ranks
        if number >= self._batches:  # the last step lacks some: the step before has the like
            number = (
                number - self._ranks if self._batches >= self._ranks else number % self._batches
            )
        return self._firsts[number], self._firsts[number + 1]

    def _place(self, step: int) -> int:
        return self._order[step] if step < self._whole else step

    def counts(self) -> list[int]:
        """Samples of this rank's first 0, 1, 2, ... batches."""
        if not self._counts:
            batches = map(self.batch, range(self.steps))
            self._counts = [0, *accumulate(end - first for first, end in batches)]
        return self._counts
