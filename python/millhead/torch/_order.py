"""The samples of one rank in one epoch, in order: the C core's, or torch's where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from millhead import _no_core

__all__ = ["Order", "share_length"]


def share_length(mode: str, count: int, start: int, ranks: int, rank: int) -> int:
    """How many of the samples from ``start`` on are this rank's: ``len()`` of its Order."""
    length, over = divmod(count - start, ranks)
    return length + ((mode == "pad" and over > 0) or (mode == "uneven" and rank < over))


if TYPE_CHECKING or _no_core is None:
    from millhead._core import Order
else:

    class Order:
        """Stands in for the C core's, with a list of all samples; keyed shuffles it has none."""

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
            if kind == "torch":
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

        def __next__(self) -> int:
            if self.given == len(self._indices):
                self.ended = True
                raise StopIteration
            self.given += 1
            return self._indices[self.given - 1]

        def state_dict(self) -> dict[str, int]:
            """How many were given."""
            return {"given": self.given}

        def load_state_dict(self, state: dict[str, int]) -> None:
            """Go on as if so many had been given."""
            self.given = state["given"]
