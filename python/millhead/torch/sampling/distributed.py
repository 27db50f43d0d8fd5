"""The sampler for many ranks: torch's DistributedSampler, its indices made in C as they are needed.

Position is the state (see docs/ranks.md): it counts the samples of the epoch that all ranks
together have consumed, so that a world of any size can share out the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
import torch.utils.data.distributed
from torch.utils.data import Dataset

from millhead import _no_core
from millhead._rank_info import process_group
from millhead.torch.ranks import agreement
from millhead.torch.ranks.world import replica
from millhead.torch.sampling.epoch_sampler import ResumableSampler, Run
from millhead.torch.sampling.rank_order import Order, share_length

T_co = TypeVar("T_co", covariant=True)

_WORD = 2**64 - 1


class DistributedSampler(
    ResumableSampler[T_co], torch.utils.data.distributed.DistributedSampler[T_co]
):
    """torch's DistributedSampler, the same indices, without a list of them.

    Takes all of torch's arguments. ``num_replicas`` and ``rank`` come from the process group, as
    torch has it, or else from the launcher: ``RANK``/``WORLD_SIZE``, ``SLURM_PROCID``/
    ``SLURM_NTASKS``, ``OMPI_COMM_WORLD_RANK``/``OMPI_COMM_WORLD_SIZE``. With tensor or pipeline
    parallelism pass those of the data-parallel group (``mesh["dp"].size()``,
    ``mesh["dp"].get_local_rank()``): ranks that share a replica then see the same samples.

    Args:
        uneven: every sample exactly once over all ranks, nothing repeated and nothing dropped:
            ``len()`` then differs by one between ranks. For evaluation, or with
            ``torch.distributed.algorithms.join.Join``: in a training loop the ranks that end first
            must not leave the others waiting in a collective operation.
        order: ``"torch"``: torch's shuffle, bit for bit, in 4 bytes a sample; ``"keyed"``: another
            one, computed for each sample: no memory, any position at once, up to 2**63 samples.

    Raises:
        ValueError: ``num_replicas`` and ``rank`` are unknown or contradict each other.

        >>> from millhead.torch import DistributedSampler
        >>> list(DistributedSampler(range(10), num_replicas=4, rank=3, shuffle=False))
        [3, 7, 1]
        >>> list(DistributedSampler(range(10), num_replicas=4, rank=3, shuffle=False, uneven=True))
        [3, 7]
    """

    _place_key = "position"

    def __init__(
        self,
        dataset: Dataset[Any],
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        uneven: bool = False,
        order: str = "torch",
    ) -> None:
        if order not in ("torch", "keyed"):
            raise ValueError(f"order should be 'torch' or 'keyed', but got {order!r}")
        if order == "keyed" and _no_core is not None:
            raise ValueError("order='keyed' needs the C core, which cannot be loaded: use 'torch'")
        if uneven and drop_last:
            raise ValueError("uneven=True gives every sample, drop_last=True does not: choose one")
        num_replicas, rank = replica(num_replicas, rank)
        super().__init__(dataset, num_replicas, rank, shuffle, seed, drop_last)
        self.uneven = uneven
        self.order = order
        self._count = len(dataset)  # type: ignore[arg-type]
        self.num_samples = self._length_from(0)
        self.total_size = self._count if uneven else self.num_samples * num_replicas
        #: What the last iteration gives.
        self._order: Order | None = None

    def __iter__(self) -> Iterator[T_co]:
        if len(self.dataset) != self._count:  # type: ignore[arg-type]
            raise RuntimeError(
                f"the dataset had {self._count} samples when its sampler was made and has "
                f"{len(self.dataset)} now: make a new sampler"  # type: ignore[arg-type]
            )
        self._advise_set_epoch()
        agreement.compare_sampler(self)
        if self._begun() is not None:
            self._resume = None
        self._last = self._next_run()
        self._order = self._order_from(self._last.start)
        return cast(Iterator[T_co], self._order)

    def _begun(self) -> Run | None:
        order = self._order
        return self._last if order is not None and (order.given > 0 or order.ended) else None

    def _has_ended(self) -> bool:
        return self._order is not None and self._order.ended and len(self._order) > 0

    def _order_from(self, start: int) -> Order:
        """What this rank gives in the present epoch, of which ``start`` samples are done."""
        seed = epoch = 0
        if self.shuffle and self.order == "torch":  # which also judges what is a seed
            seed = torch.Generator().manual_seed(self.seed + self.epoch).initial_seed()
        elif self.shuffle:
            seed, epoch = int(self.seed) & _WORD, int(self.epoch) & _WORD
        return Order(
            kind=self.order if self.shuffle else "sequential",
            mode=self._mode(),
            count=self._count,
            start=start,
            ranks=self.num_replicas,
            rank=self.rank,
            seed=seed,
            epoch=epoch,
        )

    def _mode(self) -> str:
        return "uneven" if self.uneven else "cut" if self.drop_last else "pad"

    def _length_from(self, start: int) -> int:
        return share_length(self._mode(), self._count, start, self.num_replicas, self.rank)

    def lengths(self) -> list[int]:
        """How many samples each rank has in an epoch, padding not counted. No communication.

        With ``uneven=True`` that is each rank's ``len()``. Without, every rank gives ``len(self)``
        indices; those after the first ``lengths()[rank]`` repeat samples of other ranks.
        """
        mode = "cut" if self.drop_last else "uneven"
        ranks = self.num_replicas
        return [share_length(mode, self._count, 0, ranks, rank) for rank in range(ranks)]

    # --- resuming -------------------------------------------------------------------------------

    def _likeness(self) -> dict[str, Any]:
        return {"length": self._count, "shuffle": self.shuffle, "order": self.order}

    def state_at(self, consumed: int, since: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The state when this rank has consumed so many of the epoch's indices.

        All ranks consume in step, so that the whole world has consumed ``num_replicas`` times as
        many: the state is the same on every rank, and any rank of a world of any size may load it.
        With ``uneven=True`` the ranks that end first do not know about the last step: use rank 0's.

        A loader that knows what it delivered calls this; in a loop of your own it is
        ``sampler.state_at(steps * batch_size)``.

        Args:
            consumed: indices consumed since the epoch's iterator was made.
            since: the ``state_dict()`` at the beginning of that epoch; None: of the one begun last,
                even if :meth:`set_epoch` has chosen the next one since.

        Raises:
            ValueError: the rank has fewer indices than that.
        """
        state = dict(self.state_dict() if since is None else since)
        begun = self._begun()
        if since is None and consumed and begun is not None:
            state = self._state(begun)
        length = self._length_from(state["position"])
        if not 0 <= consumed <= length:
            raise ValueError(f"consumed should be 0 to {length}, but got {consumed}")
        state["position"] += consumed * self.num_replicas
        if consumed and consumed == length:  # padding went beyond, drop_last fell short of it
            state["position"] = self._count
        return state

    def _what_is_wrong(self, state: Any) -> str | None:
        wrong = super()._what_is_wrong(state)
        if wrong is not None:
            return wrong
        for name in ("seed", "epoch", "position"):
            value = state.get(name)
            if not isinstance(value, int) or not -(2**63) <= value < 2**64:
                return f"the state is damaged: {name}={value!r}"
        if not 0 <= state["position"] <= self._count:
            return f"position should be 0 to {self._count}, but got {state['position']}"
        return None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_order": None}

    # --- checking -------------------------------------------------------------------------------

    def check(self, group: dist.ProcessGroup | None = None) -> None:
        """See that all ranks of a process group mean the same epoch; a collective operation.

        Never done by itself: ranks that do not all iterate, such as when one validates alone,
        would wait for the others for ever. Call it once, on every rank, after making the sampler or
        loading its state.

        Raises:
            RuntimeError: ranks disagree, or some part of the data is nobody's; or there is no
                process group.
        """
        if process_group() is None:
            raise RuntimeError("no process group to ask: call torch.distributed.init_process_group")
        mine = {**self.state_dict(), "num_replicas": self.num_replicas, "mode": self._mode()}
        everyone: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(everyone, (self.rank, mine), group)
        for name in mine:
            said: dict[Any, list[int]] = {}
            for member, (_, theirs) in enumerate(everyone):
                said.setdefault(theirs[name], []).append(member)
            if len(said) > 1:
                what = "the dataset's length" if name == "length" else name
                raise RuntimeError(
                    f"ranks disagree about {what} ({_in_short(said)}): make their samplers alike"
                )
        shares = [rank for rank, _ in everyone]
        times = Counter(shares)
        if len({times[rank] for rank in range(self.num_replicas)}) > 1:
            raise RuntimeError(
                f"the group's samplers have ranks {shares} of {self.num_replicas}: each is wanted "
                "equally often"
            )


def _in_short(said: dict[Any, list[int]]) -> str:
    """Who said what, in short: "1000 on 0, 1 and 5 more; 998 on 2"."""
    parts = []
    for value, members in said.items():
        more = f" and {len(members) - 3} more" if len(members) > 3 else ""
        parts.append(f"{value} on {', '.join(map(str, members[:3]))}{more}")
    return "; ".join(parts[:4]) + ("; ..." if len(parts) > 4 else "")
