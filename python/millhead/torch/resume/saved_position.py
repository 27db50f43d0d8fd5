"""A saved position: what a loader's state dict says, and how it is checked before it is used."""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import IterableDataset
from torch.utils.data.dataloader import _InfiniteConstantSampler

from millhead.torch.loader_stats import advise
from millhead.torch.resume.restore import Restore
from millhead.torch.resume.rng_state import RngState

#: Of the layout of states.
VERSION = 1
#: Odd, so that multiplying by it loses nothing: spreads positions over the seeds.
SPREAD = 0x9E3779B97F4A7C15


@dataclass
class SavedPosition:
    """A position that was read and checked."""

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
    #: consumed, it ended the epoch before, and the sampler's state is that of its end.
    cut: bool
    #: The generators are those of the end of the epoch, not of its beginning.
    at_end: bool
    persists: bool
    workers: int
    next_worker: int
    ahead: list[int]
    ended: list[int]
    rng_state: RngState
    #: Without workers: when the sampler was first asked, which may be later.
    first_rng: RngState | None
    sampler: Any
    #: The sampler has ended: its state may be that of the next epoch's beginning.
    sampler_ended: bool
    #: Samples in the batches consumed, where the sampler's own state is what it goes on from.
    samples: int
    #: Of the loader, where it had one.
    batch_size: int | None
    restores: list[Restore]
    #: Batches that the sampler gave after its state was taken: they are drawn again, and dropped.
    sampler_behind: int = 0

    def begin_next_epoch(self, loader: Any) -> None:
        """Turn the end of an epoch into the beginning of the next."""
        if not self.at_end:
            self.rng_state = self._rng_state_of_end(loader)
        self.epoch += 1
        self.consumed = self.yielded = self.since = self.next_worker = 0
        self.samples, self.sampler_ended = 0, False
        self.ahead, self.ended, self.first_rng = [], [], None
        self.again = self.persists and self.workers > 0
        if not self.again:
            self.base_seed = None
        if loader.num_workers != self.workers or (self.workers > 0 and not self.persists):
            self.restores = []  # new workers, with the dataset as the trainer has it
        for restore in self.restores:
            if not restore.renew:  # else nothing was drawn from it since an earlier end
                restore.cut = self.cut
            restore.renew, restore.ended, restore.skip = True, False, 0

    def _rng_state_of_end(self, loader: Any) -> RngState:
        """The generators at the end of an epoch of which only the beginning was saved: ask its
        sampler for everything, as the epoch did."""
        before = RngState.now()
        self.rng_state.put_back()
        self.rng_state.put_back_own(loader)
        try:
            indices = iter(loader._index_sampler)
            if not self.again:
                torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
                if self.workers:
                    indices = iter(loader._index_sampler)
            if self.first_rng is not None:
                self.first_rng.put_back()
            if not is_endless(loader._index_sampler):
                deque(indices, maxlen=0)
            return RngState.now(loader)
        finally:
            before.put_back()

    def end_at(self, limit: int | None) -> None:
        """Nothing of the epoch is left where ``limit`` batches are all of it."""
        reached = limit is not None and self.consumed >= limit
        self.cut = reached or (self.consumed == 0 and self.cut)
        for restore in self.restores:
            if not restore.renew:
                restore.cut = reached

    def seed_of(self, worker: int, iterable: bool) -> int | None:
        """What a worker is seeded from; None: what the epoch was.

        Where nothing says how far its generators were, it must not begin again with what the first
        samples of the epoch were given.
        """
        restore = self.restores[worker] if worker < len(self.restores) else Restore()
        began = self.again or (self.consumed > worker if self.restores else self.consumed > 0)
        if self.base_seed is None or not began or iterable or restore.generators is not None:
            return None
        mixed = (self.base_seed + self.epoch * SPREAD + self.consumed * (SPREAD >> 7)) % 2**64
        return (mixed ^ mixed >> 31) * SPREAD % 2**63


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
    except Exception:  # noqa: BLE001 - the user's own code, which need not be ready to answer
        return None


# --- the checksum ---

#: Not among them: the counts and the flag that Accelerate adjusts, what the user's hooks gave, and
#: the states of generators, which have checksums of their own.
_SUMMED = (
    "epoch",
    "_steps_since_snapshot",
    "cut",
    "sampler_ended",
    "samples",
    "length",
    "batch_size",
    "base_seed",
    "workers",
    "next_worker",
    "persists",
    "again",
    "at_end",
    "ahead",
    "ended",
)
_SUMMED_OF_WORKERS = ("renew", "cut", "skip")
#: Of these, only whether there were any.
_HOOKS_OF_WORKERS = ("dataset", "iterator", "generators", "began")
#: What the state of millhead's own DistributedSampler has: numbers and names, so all of it counts.
_SUMMED_OF_SAMPLER = ("epoch", "length", "order", "position", "seed", "shuffle", "version")


def _checksum(state: dict[str, Any]) -> int:
    """A number that a failing disk or an editor changed mostly makes another valid position: the run
    would go on with other data and nobody would know."""
    values = [state.get(key) for key in _SUMMED]
    for worker in state["worker_states"]:
        values += [worker.get(key) for key in _SUMMED_OF_WORKERS]
        values += [worker.get(key) is None for key in _HOOKS_OF_WORKERS]
    sampler = state["_index_sampler_state"]
    if isinstance(sampler, dict) and sampler.keys() >= set(_SUMMED_OF_SAMPLER):
        values += [sampler[key] for key in _SUMMED_OF_SAMPLER]
    values.append(sampler is None)
    # Batches that raised an exception: the adjusted counts keep their distance.
    values.append(state["_sampler_iter_yielded"] - state["_num_yielded"])
    return zlib.crc32(repr(values).encode())


def add_checksum(state: dict[str, Any]) -> dict[str, Any]:
    """The state, with its checksum."""
    state["check"] = _checksum(state)
    return state


def describe(loader: Any, rng_state: RngState, **position: Any) -> dict[str, Any]:
    """The state dict of a loader at a position."""
    return add_checksum(
        {
            "millhead": VERSION,
            "length": length_of(loader.dataset),
            "batch_size": loader.batch_size,
            "workers": loader.num_workers,
            "generators": rng_state.to_dict(),
            **position,
        }
    )


def is_intact(state: dict[str, Any]) -> bool:
    """Whether it fits its checksum, where it has one."""
    return "check" not in state or state["check"] == _checksum(state)


# --- reading ---


def read(state: Any, loader: Any) -> SavedPosition:
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


def _compare_batch_sizes(position: SavedPosition, loader: Any) -> None:
    before, now = position.batch_size, loader.batch_size
    skipped = position.consumed + position.since
    counts_batches = position.sampler is None and not isinstance(loader.dataset, IterableDataset)
    if None in (before, now) or before == now or not counts_batches:
        return  # the same, or hooks say where to go on
    if skipped and not position.finished:
        advise(
            "other-batch-size",
            f"the state was saved with batch_size={before}, this loader has {now}: "
            f"{skipped} batches of {now} are skipped, which are not the samples that were "
            "consumed; resume with the same batch size, or use millhead.torch.DistributedSampler, "
            "whose position is one of samples",
        )


def _parse(state: dict[str, Any]) -> SavedPosition:
    first = state["first_generators"]
    for number in (*state["ended"], state["next_worker"]):
        if not 0 <= number < max(state["workers"], 1):
            raise ValueError(f"there is no worker {number!r}")
    restores = [_parse_restore(worker) for worker in state["worker_states"]]
    for number, restore in enumerate(restores):
        restore.ended = number in state["ended"]
    return SavedPosition(
        epoch=_count(state["epoch"] + 1) - 1,
        consumed=_count(state["_sampler_iter_yielded"]),
        yielded=_count(state["_num_yielded"]),
        since=_count(state["_steps_since_snapshot"]),
        base_seed=_optional_count(state["base_seed"]),
        again=_flag(state["again"]),
        finished=_flag(state["_iterator_finished"]) or _flag(state["at_end"]),
        cut=_flag(state.get("cut", False)),
        at_end=_flag(state["at_end"]),
        persists=_flag(state["persists"]),
        workers=_count(state["workers"]),
        next_worker=_count(state["next_worker"]),
        ahead=[_count(place) for place in state["ahead"]],
        ended=[_count(number) for number in state["ended"]],
        rng_state=RngState.from_dict(state["generators"]),
        first_rng=None if first is None else RngState.from_dict(first),
        sampler=state["_index_sampler_state"],
        sampler_ended=_flag(state.get("sampler_ended", False)),
        samples=_count(state.get("samples", 0)),
        batch_size=_optional_count(state.get("batch_size")),
        restores=restores,
    )


def _parse_restore(worker: Any) -> Restore:
    generators, began = worker["generators"], worker.get("began")
    for encoded in (generators, began):
        if encoded is not None:
            RngState.decode(encoded)  # now, while the error can be reported
    return Restore(
        dataset=worker["dataset"],
        iterator=worker["iterator"],
        generators=generators,
        began=began,
        renew=_flag(worker["renew"]),
        cut=_flag(worker.get("cut", False)),
        skip=_count(worker["skip"]),
    )


def _count(value: Any) -> int:
    """Also a seed: what torch draws for one has 63 bits."""
    if not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is not a count")
    return value


def _optional_count(value: Any) -> int | None:
    return None if value is None else _count(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, int) or value not in (0, 1):
        raise ValueError(f"{value!r} is neither true nor false")
    return bool(value)
