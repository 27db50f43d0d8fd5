"""The samples of one rank in an epoch of shuffled blocks: the C core's, or lists without it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, cycle, islice, pairwise
from typing import TYPE_CHECKING

from millhead import _no_core
from millhead.torch.sampling.rank_order import shuffled

__all__ = ["BlockOrder"]

if TYPE_CHECKING or _no_core is None:
    from millhead._core import BlockOrder
else:

    class BlockOrder:
        """Stands in for the C core's; its shuffles are others."""

        def __init__(
            self,
            count: int,
            size: int,
            firsts: bytes | None,
            parts: int,
            seed: int,
            epoch: int,
            legs: Sequence[tuple[int, int]],
            ranks: int,
            rank: int,
            drop_last: bool,
        ) -> None:
            self._parts, self._seed, self._epoch = parts, seed, epoch
            edges = (
                [*range(0, count, size), count] if firsts is None else memoryview(firsts).cast("Q")
            )
            blocks = [range(*pair) for pair in pairwise(edges)]
            order = [blocks[number] for number in self._shuffled(len(blocks), 0)]
            worlds = [*(world for world, _ in legs), ranks]
            lines = [self._run(pieces, n) for n, pieces in enumerate(_shared_out(order, worlds[0]))]
            for (_, done), world in zip(legs, worlds[1:], strict=True):
                rest = [list(chain.from_iterable(line[done:] for line in lines))]
                lines = [list(chain.from_iterable(part)) for part in _shared_out(rest, world)]
            total = sum(map(len, lines))
            length = total // ranks if drop_last else -(-total // ranks)
            own = lines[rank] or list(chain.from_iterable(lines))[:1]
            self._samples = list(islice(cycle(own), length))

        def _shuffled(self, count: int, part: int) -> Sequence[int]:
            return [*shuffled(count, self._seed, self._epoch, part)]

        def _run(self, pieces: list[Sequence[int]], rank: int) -> list[int]:
            """In each round a part of as many blocks as are in use: one enters, one leaves."""
            found: list[int] = []
            for turn in range(len(pieces) + self._parts - 1):
                together: list[int] = []
                for part in range(self._parts):
                    if 0 <= turn - part < len(pieces):
                        piece = self._mixed(pieces[turn - part])
                        first, last = (len(piece) * n // self._parts for n in (part, part + 1))
                        together += piece[first:last]
                places = self._shuffled(len(together), (rank + 1 << 32) + turn)
                found += [together[place] for place in places]
            return found

        def _mixed(self, piece: Sequence[int]) -> list[int]:
            places = self._shuffled(len(piece), 1 + piece[0] if piece else 0)
            return [piece[place] for place in places]

        def __len__(self) -> int:
            return len(self._samples)

        def __getitem__(self, nth: int) -> int:
            return self._samples[nth]


def _shared_out(line: list[Sequence[int]], ranks: int) -> list[list[Sequence[int]]]:
    """What each rank has of a line of pieces, by samples; pieces at the edges are cut."""
    total = sum(map(len, line))
    shares: list[list[Sequence[int]]] = []
    for rank in range(ranks):
        first, last = total * rank // ranks, total * (rank + 1) // ranks
        share, at = [], 0
        for piece in line:
            part = piece[max(first - at, 0) : max(last - at, 0)]
            at += len(piece)
            if part:
                share.append(part)
        shares.append(share)
    return shares
