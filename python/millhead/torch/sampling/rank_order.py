"""The samples of one rank in one epoch, in order: the C core's, or torch's where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from millhead import _no_core

__all__ = ["Order", "share_length", "shuffled"]

_WORD = 2**64 - 1
#: 2**64 divided by the golden ratio: its multiples are far apart.
_GOLDEN = 0x9E3779B97F4A7C15


def share_length(mode: str, count: int, start: int, ranks: int, rank: int) -> int:
    """How many of the samples from ``start`` on are this rank's: ``len()`` of its Order."""
    length, over = divmod(count - start, ranks)
    return length + ((mode == "pad" and over > 0) or (mode == "uneven" and rank < over))


if TYPE_CHECKING or _no_core is None:
    from millhead._core import Order
else:

    class Order:
        """Stands in for the C core's, with a list of all samples; keyed shuffles are others."""

        def __init__(
            self,
            kind: str,
            mode: str,
            count: int,
            start: int,
            ranks: int,
            rank: int,
            seed: int,
            epoch: int,
        ) -> None:
            generator = torch.Generator().manual_seed(seed)
            samples: Any = range(count)
            if kind == "keyed":
                generator.manual_seed((seed ^ (epoch + 1) * _GOLDEN) & _WORD)
            if kind != "sequential":
                samples = torch.randperm(count, generator=generator).tolist()
            length = share_length(mode, count, start, ranks, rank)
            places = range(start + rank, start + rank + length * ranks, ranks)
            self._indices = [samples[place % count] for place in places]
            self.given = 0
            self.ended = False

        def __len__(self) -> int:
            return len(self._indices)

        def __iter__(self) -> Order:
            return self

        def __getitem__(self, nth: int) -> int:
            return self._indices[nth]

        def __next__(self) -> int:
            if self.given == len(self._indices):
                self.ended = True
                raise StopIteration
            self.given += 1
            return self._indices[self.given - 1]

        def state_dict(self) -> dict[str, int]:
            return {"given": self.given}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.given = state["given"]


def shuffled(count: int, seed: int, epoch: int, part: int = 0, start: int = 0) -> Order:
    """A shuffle of ``range(count)`` from ``start`` on: an iterator, and any place of it by number.

    ``part`` tells the shuffles of one epoch apart. The C core computes every place by itself;
    without it this is a list, and another shuffle.
    """
    return Order(
        kind="keyed",
        mode="uneven",
        count=count,
        start=start,
        ranks=1,
        rank=0,
        seed=(seed + part * _GOLDEN) & _WORD,
        epoch=epoch & _WORD,
    )
