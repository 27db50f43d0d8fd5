"""The sampler for many ranks: torch's DistributedSampler, its indices made in C as they are needed.

Position is the state (see docs/ranks.md): it counts the samples of the epoch that all ranks
together have consumed, so that a world of any size can share out the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar, cast

import torch
import torch.distributed as dist
import torch.utils.data.distributed
from torch.utils.data import Dataset

from millhead import _no_core
from millhead.torch import _agree
from millhead.torch._order import Order, share_length
from millhead.torch._stats import advise
from millhead.torch._world import replica

T_co = TypeVar("T_co", covariant=True)

_STATE_VERSION = 1
_WORD = 2**64 - 1


class _Run(NamedTuple):
    """An iteration over an epoch: where it began, and what it gives."""

    seed: int
    epoch: int
    start: int
    order: Order

    def begun(self) -> bool:
        """Whether it was asked for anything: torch's loader makes iterators it never uses."""
        return self.order.given > 0 or self.order.ended


class DistributedSampler(torch.utils.data.distributed.DistributedSampler[T_co]):
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
            raise ValueError("order='keyed' is made by the C core, which is not here: use 'torch'")
        if uneven and drop_last:
            raise ValueError("uneven=True gives every sample, drop_last=True does not: choose one")
        num_replicas, rank = replica(num_replicas, rank)
        super().__init__(dataset, num_replicas, rank, shuffle, seed, drop_last)
        self.uneven = uneven
        self.order = order
        self._count = len(dataset)  # type: ignore[arg-type]
        self.num_samples = self._length_from(0)
        self.total_size = self._count if uneven else self.num_samples * num_replicas
        #: The (epoch, position) a loaded state goes on from; used once.
        self._resume: tuple[int, int] | None = None
        self._last: _Run | None = None
        self._epoch_was_set = False

    def __iter__(self) -> Iterator[T_co]:
        if len(self.dataset) != self._count:  # type: ignore[arg-type]
            raise RuntimeError(
                f"the dataset had {self._count} samples when its sampler was made and has "
                f"{len(self.dataset)} now: make a new sampler"  # type: ignore[arg-type]
            )
        if self._repeats_an_epoch():
            advise(
                "set_epoch",
                "an epoch begins in the same order as the one before (DistributedSampler): call "
                "sampler.set_epoch(epoch) before each epoch",
            )
        _agree.of_sampler(self)
        if self._last is not None and self._last.begun():
            self._resume = None
        start = self._next_start()
        self._last = _Run(self.seed, self.epoch, start, self._order_from(start))
        return cast(Iterator[T_co], self._last.order)

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

    # --- epochs ---------------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch's shuffle, before its iterator is made; as torch's.

        Another epoch than that of a loaded state starts at its beginning.
        """
        self._epoch_was_set = True
        super().set_epoch(epoch)

    def _repeats_an_epoch(self) -> bool:
        """Whether the next epoch has the shuffle of the last one, and nobody chose that."""
        last = self._last
        if last is None or self._epoch_was_set or not self.shuffle:
            return False
        again = (last.seed, last.epoch) == (self.seed, self.epoch)
        return again and last.order.ended and len(last.order) > 0

    # --- resuming -------------------------------------------------------------------------------

    def _next_start(self) -> int:
        """Where the next iteration starts: at a loaded state's position, if that is its epoch."""
        if self._resume is not None and self._resume[0] == self.epoch:
            return self._resume[1]
        return 0

    def state_dict(self) -> dict[str, Any]:
        """The state at the beginning of the epoch under way, or of the next one.

        It does not count indices: those a loader has asked for may still wait in its workers. See
        :meth:`state_at`.
        """
        last = self._last
        if last is not None and last.begun() and last.epoch == self.epoch:
            return self._state(last.seed, last.epoch, last.start)
        return self._state(self.seed, self.epoch, self._next_start())

    def _state(self, seed: int, epoch: int, position: int) -> dict[str, Any]:
        return {
            "version": _STATE_VERSION,
            "epoch": int(epoch),  # numpy's integers are no JSON, and refused on loading
            "position": position,
            "length": self._count,
            "shuffle": self.shuffle,
            "seed": int(seed),
            "order": self.order,
        }

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
        last = self._last
        if since is None and consumed and last is not None and last.begun():
            state = self._state(last.seed, last.epoch, last.start)
        length = self._length_from(state["position"])
        if not 0 <= consumed <= length:
            raise ValueError(f"consumed should be 0 to {length}, but got {consumed}")
        state["position"] += consumed * self.num_replicas
        if consumed and consumed == length:  # padding went beyond, drop_last fell short of it
            state["position"] = self._count
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: the next iteration gives this rank's share of what remains.

        That iteration is shorter (empty, if the epoch was complete); ``len()`` stays an epoch's.
        Call :meth:`set_epoch` as always: the state's own epoch goes on, any other starts at its
        beginning.

        Raises:
            ValueError: the state is of another dataset or another order, or damaged.
        """
        wrong = self._what_is_wrong(state)
        if wrong is not None:
            raise ValueError(f"millhead: cannot resume: {wrong} (DistributedSampler)")
        self.seed = state["seed"]
        self.epoch = state["epoch"]
        self._resume = (state["epoch"], state["position"])
        self._last = None

    def _what_is_wrong(self, state: Any) -> str | None:
        """With a state that should be one of this sampler."""
        version = state.get("version") if isinstance(state, Mapping) else None
        if version != _STATE_VERSION:
            return f"not a state of this sampler: version {version!r}"
        mine = self.state_dict()
        for name in ("length", "shuffle", "order"):
            if state.get(name) != mine[name]:
                return (
                    f"the state has {name}={state.get(name)!r}, this sampler {mine[name]!r}: what "
                    "remains of its epoch is not known here"
                )
        for name in ("seed", "epoch", "position"):
            value = state.get(name)
            if not isinstance(value, int) or not -(2**63) <= value < 2**64:
                return f"the state is damaged: {name}={value!r}"
        if not 0 <= state["position"] <= self._count:
            return f"position should be 0 to {self._count}, but got {state['position']}"
        return None

    def __getstate__(self) -> dict[str, Any]:
        """A copy begins where the epoch under way began."""
        state = self.state_dict()
        resume = (state["epoch"], state["position"])
        return {**self.__dict__, "_last": None, "_resume": resume}

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
        if not (dist.is_available() and dist.is_initialized()):
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
                    f"ranks disagree about {what} ({_told(said)}): make their samplers alike"
                )
        shares = [rank for rank, _ in everyone]
        times = Counter(shares)
        if len({times[rank] for rank in range(self.num_replicas)}) > 1:
            raise RuntimeError(
                f"the group's samplers have ranks {shares} of {self.num_replicas}: each is wanted "
                "equally often"
            )


def _told(said: dict[Any, list[int]]) -> str:
    """Who said what, in short: "1000 on 0, 1 and 5 more; 998 on 2"."""
    parts = []
    for value, members in said.items():
        more = f" and {len(members) - 3} more" if len(members) > 3 else ""
        parts.append(f"{value} on {', '.join(map(str, members[:3]))}{more}")
    return "; ".join(parts[:4]) + ("; ..." if len(parts) > 4 else "")
