"""Torch's own iterators, counted: for what millhead leaves to torch, and where it has no C core."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from millhead.torch.loader import Keeper


class _TorchCounted(_BaseDataLoaderIter):
    """Torch's own iterator, counted."""

    _class_name: str

    def __init__(self, loader: DataLoader[Any], keeper: Keeper) -> None:
        self._millhead_loader = weakref.ref(loader)
        self._stats = keeper._stats
        super().__init__(loader)
        self._profile_name = f"enumerate(DataLoader)#{self._class_name}.__next__"

    def __next__(self) -> Any:
        data = super().__next__()
        self._stats.batch("torch", 1)
        return data


class TorchSingleIter(_TorchCounted, _SingleProcessDataLoaderIter):
    """Torch's iterator without workers."""

    _class_name = _SingleProcessDataLoaderIter.__name__


class TorchMultiIter(_TorchCounted, _MultiProcessingDataLoaderIter):
    """Torch's iterator with workers."""

    _class_name = _MultiProcessingDataLoaderIter.__name__
