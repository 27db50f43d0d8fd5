"""millhead's drop-in for ``torch.utils.data``.

>>> import torch
>>> from millhead.torch import DataLoader, TensorDataset
>>> loader = DataLoader(TensorDataset(torch.arange(6)), batch_size=4)
>>> [batch[0].tolist() for batch in loader]
[[0, 1, 2, 3], [4, 5]]
"""

from torch.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    get_worker_info,
    random_split,
)

from millhead.torch import _native
from millhead.torch._batch_size import effective_batch_size
from millhead.torch._cluster import shared_cluster
from millhead.torch._device import to_device
from millhead.torch._first import auto_rank0_first, local_rank0_first, rank0_first
from millhead.torch._install import install, stats, uninstall
from millhead.torch.blocks import BlockShuffleSampler
from millhead.torch.buffer import ShuffleBuffer
from millhead.torch.checkpoint import Checkpoint
from millhead.torch.distributed import DistributedSampler
from millhead.torch.lengths import LengthBatchSampler
from millhead.torch.loader import DataLoader
from millhead.torch.padding import pad_collate
from millhead.torch.shards import ShardedIterable, split_by_rank_and_worker

#: torchdata's name for a loader with ``state_dict()``.
StatefulDataLoader = DataLoader

if _native.why_not is None:
    from millhead.torch import _bind as _bind  # makes torch known to the C core
    from millhead.torch._watch import unwatch_all, watch_all

__all__ = [
    "BatchSampler",
    "BlockShuffleSampler",
    "ChainDataset",
    "Checkpoint",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "LengthBatchSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "ShardedIterable",
    "ShuffleBuffer",
    "StackDataset",
    "StatefulDataLoader",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "auto_rank0_first",
    "default_collate",
    "default_convert",
    "effective_batch_size",
    "get_worker_info",
    "install",
    "local_rank0_first",
    "pad_collate",
    "random_split",
    "rank0_first",
    "shared_cluster",
    "split_by_rank_and_worker",
    "stats",
    "to_device",
    "uninstall",
    "unwatch_all",
    "watch_all",
]
