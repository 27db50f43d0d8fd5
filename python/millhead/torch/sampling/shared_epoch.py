"""The number of an epoch, for datasets: one that persistent workers see change."""

from __future__ import annotations

import torch

from millhead._arguments import require_at_least


class SharedEpoch:
    """Set in the trainer, read in its workers, however those were started.

    A worker that persists keeps the dataset it was started with: a plain number in there would stay
    as it was. Tensors in shared memory stay shared when a dataset goes to a worker.
    """

    def __init__(self) -> None:
        self._number = torch.full((1,), -1, dtype=torch.int64)
        self._number.share_memory_()  # type: ignore[no-untyped-call]

    def set(self, epoch: int) -> None:
        """From now on, for iterations that begin."""
        require_at_least(0, epoch=epoch)
        self._number[0] = epoch

    def get(self) -> int:
        """The number; 0 where none was set."""
        return max(0, int(self._number[0]))

    def was_set(self) -> bool:
        """Whether anybody chose it."""
        return int(self._number[0]) >= 0
