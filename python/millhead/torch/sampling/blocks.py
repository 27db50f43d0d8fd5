"""A shuffle for data that is read in blocks: chunks, row groups, compressed pages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence, Sized
from itertools import accumulate, chain, islice
from typing import Any

from millhead.torch.arguments import require_at_least
from millhead.torch.sampling.epoch_sampler import EpochSampler, Run
from millhead.torch.sampling.rank_order import share_length, shuffled


class BlockShuffleSampler(EpochSampler[int]):
    """Shuffles blocks, then the samples of ``pool_blocks`` blocks at a time; for ``sampler``.

    A dataset that keeps the last ``pool_blocks`` blocks it has read reads each of them once. A full
    shuffle reads one for nearly every sample.

    The shuffled blocks are shared out to ranks by samples: every rank gives equally many, and of the
    blocks at most one for each rank is read by two. Where samples do not go round, the first ones of
    the epoch come again at its end.

    Args:
        data: the dataset, or anything of its length.
        block_size: samples in a block; a list where they differ, such as of row groups.
        pool_blocks: blocks whose samples are mixed: more is more random and takes more memory.
        drop_last: leave out up to ``num_replicas - 1`` samples instead of giving some again.
        num_replicas, rank: as for :class:`DistributedSampler`; one rank where nobody says otherwise.

    Raises:
        ValueError: the blocks are not those of ``data``, or a number does not exist.

        >>> from millhead.torch import BlockShuffleSampler
        >>> order = list(BlockShuffleSampler(range(100), 10, pool_blocks=2))
        >>> len({index // 10 for index in order[:20]})
        2
    """

    def __init__(
        self,
        data: Sized,
        block_size: int | Sequence[int],
        pool_blocks: int = 16,
        *,
        seed: int = 0,
        drop_last: bool = False,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        super().__init__(seed, True, num_replicas, rank)
        self._count = len(data)
        self._firsts = self._read_blocks(block_size)
        require_at_least(1, pool_blocks=pool_blocks)
        self.pool_blocks = pool_blocks
        self.drop_last = drop_last
        mode = "cut" if drop_last else "pad"
        self.num_samples = share_length(mode, self._count, 0, self.num_replicas, self.rank)

    def _read_blocks(self, block_size: int | Sequence[int]) -> Sequence[int]:
        """Where each block begins."""
        if isinstance(block_size, int):
            require_at_least(1, block_size=block_size)
            return range(0, self._count, block_size)
        sizes = [int(size) for size in block_size]
        if min(sizes, default=0) < 0 or sum(sizes) != self._count:
            raise ValueError(
                f"blocks of {sum(sizes)} samples in all do not make up the data of {self._count}"
            )
        return list(accumulate(sizes, initial=0))[:-1]

    def __len__(self) -> int:
        return self.num_samples

    def block_of(self, index: int) -> int:
        """The block that holds a sample."""
        return bisect_right(self._firsts, index) - 1

    def _block(self, number: int) -> range:
        last = number + 1 == len(self._firsts)
        return range(self._firsts[number], self._count if last else self._firsts[number + 1])

    def _give(self, run: Run) -> Iterator[int]:
        blocks = self._share(run)
        start, pool_number = run.start, 0
        while pool := list(islice(blocks, self.pool_blocks)):
            size = sum(map(len, pool))
            pool_number += 1
            if start < size:
                samples = list(chain.from_iterable(pool))
                part = (self.rank << 32) + pool_number  # 0 is the order of the blocks
                for place in shuffled(size, run.seed, run.epoch, part, start):
                    yield samples[place]
            start = max(0, start - size)

    def _share(self, run: Run) -> Iterator[range]:
        """The blocks of this rank, the first and the last cut where other ranks have the rest."""
        skip, left = self.rank * self.num_samples, self.num_samples
        if self._count:
            skip %= self._count
        while left:  # a second time round where samples are given again
            for number in shuffled(len(self._firsts), run.seed, run.epoch):
                block = self._block(number)
                part = block[skip : skip + left]
                skip -= min(skip, len(block))
                left -= len(part)
                if part:
                    yield part

    def _samples(self, seed: int, epoch: int, steps: int) -> int:
        return steps

    def _steps(self, seed: int, epoch: int, samples: int) -> int:
        if not 0 <= samples <= self.num_samples:
            raise ValueError(f"consumed should be up to {self.num_samples}, but got {samples}")
        return samples

    def _likeness(self) -> dict[str, Any]:
        return {
            "length": self._count,
            "blocks": len(self._firsts),
            "pool_blocks": self.pool_blocks,
            "drop_last": self.drop_last,
            "num_replicas": self.num_replicas,
        }
