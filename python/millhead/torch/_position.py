"""A saved position, read back: what a state dict says, checked before anything is done with it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import IterableDataset
from torch.utils.data.dataloader import _InfiniteConstantSampler

from millhead.torch._moment import Moment
from millhead.torch._restore import Restore
from millhead.torch._seal import is_intact
from millhead.torch._stats import advise

#: Of the layout of states.
VERSION = 1
#: Odd, so that multiplying by it loses nothing: spreads positions over the seeds.
SPREAD = 0x9E3779B97F4A7C15


@dataclass
class Position:
    """A saved position, read and checked."""

    epoch: int
    consumed: int
    yielded: int
    #: Batches consumed after the place described here: they are fetched again, and dropped.
    since: int
    base_seed: int | None
    #: The epoch was not the first of its iterator: workers persist, and no seed was drawn for it.
    again: bool
    finished: bool
    #: ``limit_batches`` ended it: sampler and dataset have more to give. Where nothing of it was
    #: consumed: so it was with the one before, whose end the sampler's state tells of.
    cut: bool
    #: The generators are those of the end of the epoch, not of its beginning.
    at_end: bool
    persists: bool
    workers: int
    next_worker: int
    ahead: list[int]
    ended: list[int]
    moment: Moment
    #: Without workers: when the sampler was first asked, which may be later.
    first_moment: Moment | None
    sampler: Any
    restores: list[Restore]
    #: The sampler has ended: its state may be that of the next epoch's beginning.
    sampler_ended: bool = False
    #: Samples in the batches consumed, where the sampler's own state is what it goes on from.
    samples: int = 0
    #: Batches that the sampler gave after its state was taken: they are drawn again, and dropped.
    sampler_behind: int = 0
    #: Of the loader, where it had one.
    batch_size: int | None = None

    def begin_next_epoch(self, loader: Any) -> None:
        """Turn the end of an epoch into the beginning of the next."""
        if not self.at_end:
            self.moment = _moment_of_end(self, loader)
        self.epoch += 1
        self.consumed = self.yielded = self.since = self.next_worker = 0
        self.samples, self.sampler_ended = 0, False
        self.ahead, self.ended, self.first_moment = [], [], None
        self.again = self.persists and self.workers > 0
        if not self.again:
            self.base_seed = None
        if loader.num_workers != self.workers or (self.workers > 0 and not self.persists):
            self.restores = []  # new workers, with the dataset as the trainer has it
        for restore in self.restores:
            if not restore.renew:  # else nothing was drawn from it since an earlier end
                restore.cut = self.cut
            restore.renew, restore.ended, restore.skip = True, False, 0

    def end_at(self, limit: int | None) -> None:
        """Nothing of the epoch is left where so many batches are all of it."""
        reached = limit is not None and self.consumed >= limit
        self.cut = reached or (self.consumed == 0 and self.cut)
        for restore in self.restores:
            if not restore.renew:
                restore.cut = reached

    def seed_of(self, worker: int, iterable: bool) -> int | None:
        """What a worker is seeded from; None: what the epoch was.

        Where nothing tells how far its generators were, it must not begin again with what the first
        samples of the epoch were given.
        """
        restore = self.restores[worker] if worker < len(self.restores) else Restore()
        began = self.again or (self.consumed > worker if self.restores else self.consumed > 0)
        if self.base_seed is None or not began or iterable or restore.generators is not None:
            return None
        mixed = (self.base_seed + self.epoch * SPREAD + self.consumed * (SPREAD >> 7)) % 2**64
        return (mixed ^ mixed >> 31) * SPREAD % 2**63


def _moment_of_end(position: Position, loader: Any) -> Moment:
    """The generators at the end of an epoch of which only the beginning was saved: ask its sampler
    for everything, as the epoch did."""
    before = Moment.now()
    position.moment.put_back()
    position.moment.put_back_own(loader)
    try:
        indices = iter(loader._index_sampler)
        if not position.again:
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
            if position.workers:
                indices = iter(loader._index_sampler)
        if position.first_moment is not None:
            position.first_moment.put_back()
        if not is_endless(loader._index_sampler):
            deque(indices, maxlen=0)
        return Moment.now(loader)
    finally:
        before.put_back()


def is_endless(index_sampler: Any) -> bool:
    """Whether it only says how many, as torch's does for iterable datasets."""
    inner = getattr(index_sampler, "sampler", index_sampler)
    return isinstance(inner, _InfiniteConstantSampler)


def length_of(thing: Any) -> int | None:
    """Of a dataset or sampler; None where it has none, or only says so."""
    if isinstance(thing, IterableDataset):
        return None
    try:
        return len(thing)
    except Exception:  # noqa: BLE001 - the user's own code, and it need not be ready to tell
        return None


# --- reading ---


def read(state: Any, loader: Any) -> Position:
    """The position a state dict describes. Raises ValueError where it is not one of this loader."""
    require(isinstance(state, dict), f"the state is a {type(state).__name__}, not a dict")
    require("millhead" in state, "the state is not one that this loader's state_dict() gave")
    version = state["millhead"]
    require(version == VERSION, f"the state has version {version!r}, this millhead reads {VERSION}")
    before, now = state.get("length"), length_of(loader.dataset)
    require(
        before == now,
        f"the state is of a dataset {'without a length' if before is None else f'of {before} samples'}"
        f", this one has {'none' if now is None else now}",
    )
    try:
        position = _parse(state)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ValueError(f"millhead: cannot resume: the state is damaged ({error!r})") from None
    require(is_intact(state), "the state is damaged: it was changed after it was saved")
    if position.workers != loader.num_workers and not position.finished:
        require(
            not isinstance(loader.dataset, IterableDataset),
            f"an iterable dataset goes on in as many workers as it was left in ({position.workers}"
            f", not {loader.num_workers}): each has its own part of the samples",
        )
        position.consumed += position.since
        position.yielded += position.since
        position.sampler_behind = position.since
        position.restores, position.next_worker, position.since = [], 0, 0
    _compare_batch_sizes(position, loader)
    return position


def require(holds: bool, what: str) -> None:
    """Raise ValueError, with the reason, where it does not hold."""
    if not holds:
        raise ValueError(f"millhead: cannot resume: {what}")


def _compare_batch_sizes(position: Position, loader: Any) -> None:
    before, now = position.batch_size, loader.batch_size
    skipped = position.consumed + position.since
    counts_batches = position.sampler is None and not isinstance(loader.dataset, IterableDataset)
    if None in (before, now) or before == now or not counts_batches:
        return  # the same, or hooks tell where to go on
    if skipped and not position.finished:
        advise(
            "other-batch-size",
            f"the state was saved with batch_size={before}, this loader has {now}: "
            f"{skipped} batches of {now} are skipped, which are other samples than were "
            "consumed; resume with the same batch size, or use millhead.torch.DistributedSampler, "
            "whose position is one of samples",
        )


def _parse(state: dict[str, Any]) -> Position:
    first = state["first_generators"]
    for number in (*state["ended"], state["next_worker"]):
        if not 0 <= number < max(state["workers"], 1):
            raise ValueError(f"there is no worker {number!r}")
    restores = [_read_restore(entry) for entry in state["worker_states"]]
    batch_size = state.get("batch_size")
    for number, restore in enumerate(restores):
        restore.ended = number in state["ended"]
    return Position(
        epoch=_count(state["epoch"] + 1) - 1,
        consumed=_count(state["_sampler_iter_yielded"]),
        yielded=_count(state["_num_yielded"]),
        since=_count(state["_steps_since_snapshot"]),
        base_seed=None if state["base_seed"] is None else _count(state["base_seed"]),
        again=_flag(state["again"]),
        finished=_flag(state["_iterator_finished"]) or _flag(state["at_end"]),
        cut=_flag(state.get("cut", False)),
        at_end=_flag(state["at_end"]),
        persists=_flag(state["persists"]),
        workers=_count(state["workers"]),
        next_worker=_count(state["next_worker"]),
        ahead=[_count(entry) for entry in state["ahead"]],
        ended=[_count(entry) for entry in state["ended"]],
        moment=Moment.from_text(state["generators"]),
        first_moment=None if first is None else Moment.from_text(first),
        sampler=state["_index_sampler_state"],
        sampler_ended=_flag(state.get("sampler_ended", False)),
        samples=_count(state.get("samples", 0)),
        batch_size=None if batch_size is None else _count(batch_size),
        restores=restores,
    )


def _read_restore(entry: Any) -> Restore:
    generators, began = entry["generators"], entry.get("began")
    for encoded in (generators, began):
        if encoded is not None:
            Moment.decode(encoded)  # now, while the error can be told
    return Restore(
        dataset=entry["dataset"],
        iterator=entry["iterator"],
        generators=generators,
        began=began,
        renew=_flag(entry["renew"]),
        cut=_flag(entry.get("cut", False)),
        skip=_count(entry["skip"]),
    )


def _count(value: Any) -> int:
    """Also a seed: what torch draws for one has 63 bits."""
    if not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is not a count")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, int) or value not in (0, 1):
        raise ValueError(f"{value!r} is neither true nor false")
    return bool(value)
