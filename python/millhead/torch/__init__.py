"""millhead's drop-in for ``torch.utils.data``.

>>> import torch
>>> from millhead.torch import DataLoader, TensorDataset
>>> loader = DataLoader(TensorDataset(torch.arange(6)), batch_size=4)
>>> [batch[0].tolist() for batch in loader]
[[0, 1, 2, 3], [4, 5]]
"""

try:
    import torch as _torch  # noqa: F401 - to say how to get it where it is not there
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise  # something that torch itself needs
    raise ModuleNotFoundError(
        'millhead.torch needs PyTorch: pip install "millhead[torch]"', name="torch"
    ) from None

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

from millhead.torch import core_available
from millhead.torch.device_copy import to_device
from millhead.torch.installation import install, stats, uninstall
from millhead.torch.loader import DataLoader
from millhead.torch.ranks.batch_size import effective_batch_size
from millhead.torch.ranks.rank0_first import auto_rank0_first, local_rank0_first, rank0_first
from millhead.torch.resume.checkpoint import Checkpoint
from millhead.torch.sampling.blocks import BlockShuffleSampler
from millhead.torch.sampling.distributed import DistributedSampler
from millhead.torch.sampling.lengths import LengthBatchSampler
from millhead.torch.sampling.padding import pad_collate
from millhead.torch.sampling.shards import ShardedIterable, split_by_rank_and_worker
from millhead.torch.sampling.shuffle_buffer import ShuffleBuffer
from millhead.torch.workers.dask_cluster import shared_cluster

#: torchdata's name for a loader with ``state_dict()``.
StatefulDataLoader = DataLoader

if core_available.why_not is None:
    from millhead.torch import bind_torch as bind_torch  # makes torch known to the C core
    from millhead.watching.torch_loaders import unwatch_all, watch_all

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
