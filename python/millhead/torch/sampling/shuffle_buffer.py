"""A shuffle for samples that come as a stream: a buffer, of which any one may be the next."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from torch.utils.data import IterableDataset

from millhead._arguments import require_at_least
from millhead.torch.ranks.world import replica_or_alone
from millhead.torch.sampling.shards import SharedEpoch, this_reader

T_co = TypeVar("T_co", covariant=True)


class ShuffleBuffer(IterableDataset[T_co]):
    """Mixes the samples of an iterable dataset: holds ``bufsize`` of them, and gives any one.

    The order depends on seed, epoch, rank and worker. Samples that are far apart in the stream stay
    so: shuffle shards too (:class:`ShardedIterable`).

    Args:
        source: an iterable dataset, or anything that can be iterated over once for each epoch.
        bufsize: samples to hold, in every worker.
        initial: samples to wait for before the first is given; two are read for one that is given
            until the buffer is full.
        num_replicas, rank: as for :class:`DistributedSampler`; one rank where nobody says otherwise.

        >>> from millhead.torch import ShuffleBuffer
        >>> sorted(ShuffleBuffer(range(6), bufsize=4, initial=2))
        [0, 1, 2, 3, 4, 5]
    """

    def __init__(
        self,
        source: Iterable[T_co],
        bufsize: int = 1000,
        initial: int = 100,
        *,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        require_at_least(1, bufsize=bufsize, initial=initial)
        self.source = source
        self.bufsize = bufsize
        self.initial = min(initial, bufsize)
        self.seed = seed
        self.num_replicas, self.rank = replica_or_alone(num_replicas, rank)
        self._epoch = SharedEpoch()

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of this and of the source, before an epoch's iterator is made."""
        self._epoch.set(epoch)
        if hasattr(self.source, "set_epoch"):
            self.source.set_epoch(epoch)

    def __len__(self) -> int:
        """That of the source, if it has one."""
        return len(self.source)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[T_co]:
        reader = this_reader(self.num_replicas, self.rank)
        chance = random.Random(repr((self.seed, self._epoch.get(), reader.rank, reader.worker)))
        return self._mix(iter(self.source), chance)

    def _mix(self, stream: Iterator[T_co], chance: random.Random) -> Iterator[T_co]:
        held: list[T_co] = []
        for sample in stream:
            held.append(sample)
            if len(held) < self.initial:
                continue
            if len(held) < self.bufsize:
                held.extend(islice(stream, 1))
            yield _take_any(held, chance)
        while held:
            yield _take_any(held, chance)


def _take_any(held: list[T_co], chance: random.Random) -> T_co:
    """The last takes its place: nothing has to move."""
    place = chance.randrange(len(held))
    held[place], held[-1] = held[-1], held[place]
    return held.pop()
