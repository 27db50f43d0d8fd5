"""How many samples one step of the optimizer sees: over all ranks, and accumulated."""

from __future__ import annotations

from typing import Any, NamedTuple

from millhead._rank_info import rank_info


class StepSize(NamedTuple):
    """What makes up an effective batch."""

    batch: int
    ranks: int
    accumulate: int

    @property
    def samples(self) -> int:
        """The effective batch size."""
        return self.batch * self.ranks * self.accumulate

    def __str__(self) -> str:
        text = f"batch {self.batch}"
        if self.ranks > 1:
            text += f" x {self.ranks} ranks"
        if self.accumulate > 1:
            text += f" x {self.accumulate} accumulated"
        return text if self.samples == self.batch else f"{text} = {self.samples}"


def sampler_rank(loader: Any) -> tuple[int, int] | None:
    """(rank, ranks) of a loader's DistributedSampler or one that names them alike; None without."""
    inner = getattr(loader.batch_sampler, "sampler", loader.sampler)
    for sampler in (loader.batch_sampler, inner):
        rank, ranks = getattr(sampler, "rank", None), getattr(sampler, "num_replicas", None)
        if isinstance(rank, int) and isinstance(ranks, int):
            return rank, ranks
    return None


def step_size(loader: Any, accumulate: int) -> StepSize | None:
    """That of a loader; None where nobody knows how large its batches are."""
    batch = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
    if not isinstance(batch, int):
        return None
    # The sampler's number first: ranks that share a replica share its samples.
    dealt = sampler_rank(loader)
    return StepSize(batch, rank_info().world if dealt is None else dealt[1], accumulate)


def effective_batch_size(loader: Any) -> int | None:
    """Samples of one optimizer step: batch size x ranks x the loader's ``accumulate``.

    Of any ``torch.utils.data.DataLoader``. The ranks are the sampler's ``num_replicas`` or else all
    processes that train together. None where the loader does not say how large its batches are.

        >>> from millhead.torch import DataLoader, DistributedSampler, effective_batch_size
        >>> sampler = DistributedSampler(range(100), num_replicas=4, rank=0)
        >>> effective_batch_size(DataLoader(range(100), 8, sampler=sampler, accumulate=2))
        64
    """
    size = step_size(loader, getattr(loader, "accumulate", 1))
    return None if size is None else size.samples
