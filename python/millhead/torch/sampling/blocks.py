"""A shuffle for data that is read in blocks: chunks, row groups, compressed pages."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence, Sized
from itertools import accumulate
from typing import Any, NamedTuple

from millhead._arguments import require_at_least
from millhead.torch.sampling.block_order import BlockOrder
from millhead.torch.sampling.epoch_sampler import EpochSampler, Run
from millhead.torch.sampling.rank_order import share_length

#: Blocks that are mixed at a time, at most: each costs time for every sample.
_MOST_MIXED = 256
_WORD = 2**64 - 1


class Leg(NamedTuple):
    """A stretch of an epoch under one number of ranks, and the samples that each of them had."""

    ranks: int
    samples: int


class BlockShuffleSampler(EpochSampler[int]):
    """Shuffles blocks, and mixes the samples of those that are in use; for ``sampler``.

    A dataset that keeps the last ``pool_blocks`` blocks it has used reads each of them once. A full
    shuffle reads one for nearly every sample. The order is that of ``shuffle="blocks"`` of
    :class:`millhead.Loader`: a block begins in every round, another ends, and a round gives some
    samples of each of ``pool_blocks - 1`` blocks (1 where that is none) in random order.

    The shuffled blocks are shared out to ranks by samples: every rank gives equally many, and of the
    blocks at most one for each rank is read by two. Where samples do not go round, some ranks give
    their first one again at the end. Another number of ranks may take up an epoch: it gives what is
    left of it.

    Args:
        data: the dataset, or anything of its length.
        block_size: samples in a block; a list where they differ, such as of row groups.
        pool_blocks: blocks that a dataset keeps: more is more random and takes more memory.
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
        #: Where all blocks begin, and the end, for the core; nothing where all are alike.
        self._edges: bytes | None = None
        if not isinstance(self._firsts, range):
            self._edges = array("Q", [*self._firsts, self._count]).tobytes()
        require_at_least(1, pool_blocks=pool_blocks)
        self.pool_blocks = pool_blocks
        self.drop_last = drop_last
        mode = "cut" if drop_last else "pad"
        self.num_samples = share_length(mode, self._count, 0, self.num_replicas, self.rank)
        #: Of a loaded state: what other numbers of ranks had of its epoch.
        self._loaded_legs: tuple[tuple[int, int], ...] = ()

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

    def _give(self, run: Run) -> Iterator[int]:
        order = BlockOrder(
            count=self._count,
            size=self._firsts.step if isinstance(self._firsts, range) else 0,
            firsts=self._edges,
            parts=max(1, min(self.pool_blocks - 1, _MOST_MIXED)),
            seed=run.seed & _WORD,
            epoch=run.epoch & _WORD,
            legs=run.legs,
            ranks=self.num_replicas,
            rank=self.rank,
            drop_last=self.drop_last,
        )
        for nth in range(run.start, len(order)):
            yield order[nth]

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
        }

    # --- legs: an epoch that other numbers of ranks began ---

    def _next_run(self) -> Run:
        run = super()._next_run()
        resumed = self._resume is not None and self._resume[0] == run.epoch
        return run._replace(legs=self._loaded_legs) if resumed else run

    def _run_of(self, state: Mapping[str, Any]) -> Run:
        """The same number of ranks goes on in its leg, another begins one."""
        legs = [Leg(*leg) for leg in state["legs"]]
        start = legs.pop().samples if legs[-1].ranks == self.num_replicas else 0
        return Run(state["seed"], state["epoch"], start, tuple(legs))

    def _state(self, run: Run) -> dict[str, Any]:
        legs = [*run.legs, Leg(self.num_replicas, run.start)]
        before = sum(ranks * samples for ranks, samples in run.legs)
        state = super()._state(run)
        return {
            **state,
            "position": before + state["position"],
            "legs": [list(leg) for leg in legs],
        }

    def _what_is_wrong(self, state: Any) -> str | None:
        wrong = super()._what_is_wrong(state)
        if wrong is None and not _are_legs(state.get("legs")):
            return "the state has no legs: it is one of an order that is no more, or damaged"
        return wrong

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        run = self._run_of(state)
        self._resume, self._loaded_legs = (run.epoch, run.start), run.legs

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_loaded_legs": self._present_run().legs}


def _are_legs(legs: Any) -> bool:
    """Whether it is a list of pairs of whole numbers."""
    return (
        isinstance(legs, list | tuple)
        and len(legs) > 0
        and all(
            isinstance(leg, list | tuple)
            and len(leg) == 2
            and all(isinstance(n, int) and n >= 0 for n in leg)
            for leg in legs
        )
    )
