"""Data in shards (files that are read from front to end): who reads which, in what order.

Ranks share the shards out first, then the workers of each rank. Where there are too few to go
round, several read the same shard, each every n-th sample of it: nobody is left without.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch.utils.data import IterableDataset, get_worker_info

from millhead._arguments import require_at_least
from millhead.torch.loader_stats import advise
from millhead.torch.ranks.world import replica_or_alone
from millhead.torch.sampling.rank_order import shuffled

Shard = TypeVar("Shard")
T_co = TypeVar("T_co", covariant=True)


class Reader(NamedTuple):
    """A worker of a rank; the trainer's own process is worker 0 of 1."""

    rank: int
    ranks: int
    worker: int
    workers: int


def this_reader(num_replicas: int | None, rank: int | None) -> Reader:
    """Who reads here."""
    ranks, rank = replica_or_alone(num_replicas, rank)
    info = get_worker_info()
    return Reader(rank, ranks, *((0, 1) if info is None else (info.id, info.num_workers)))


def split_by_rank_and_worker(
    shards: Sequence[Shard], num_replicas: int | None = None, rank: int | None = None
) -> list[Shard]:
    """This process's shards: every R-th for its rank, of those every W-th for its worker.

    For ``__iter__`` of an iterable dataset of your own. Ranks are found as by
    :class:`DistributedSampler`, one where nobody says otherwise; workers by ``get_worker_info()``.

    Raises:
        ValueError: some worker of some rank would have none; :class:`ShardedIterable` copes.

        >>> from millhead.torch import split_by_rank_and_worker
        >>> split_by_rank_and_worker(["a", "b", "c", "d", "e"], num_replicas=2, rank=1)
        ['b', 'd']
    """
    reader = this_reader(num_replicas, rank)
    readers = reader.ranks * reader.workers
    if len(shards) < readers:
        raise ValueError(
            f"{len(shards)} shards for {reader.ranks} ranks with {reader.workers} workers each: "
            f"write at least {readers}, take fewer workers, or use millhead.torch.ShardedIterable"
        )
    return list(shards[reader.rank :: reader.ranks][reader.worker :: reader.workers])


class _Share(NamedTuple):
    """Of a shard's samples: ``first``, ``first + step``, ``first + 2 step``, ..."""

    shard: int
    first: int = 0
    step: int = 1

    def thinned(self, first: int, step: int) -> _Share:
        """Every ``step``-th of these."""
        return _Share(self.shard, self.first + first * self.step, self.step * step)


def _deal(shares: list[_Share], place: int, of: int) -> list[_Share]:
    """One of ``of`` equal parts: whole shares where there are enough, else a part of one."""
    if len(shares) >= of or not shares:
        return shares[place::of]
    turn, which = divmod(place, len(shares))
    together = len(range(which, of, len(shares)))
    return [shares[which].thinned(turn, together)]


class _Place(NamedTuple):
    """Where a reader is: what it has done with, and taken of the next shard and of all of them."""

    epoch: int
    shards_done: int = 0
    taken: int = 0
    given: int = 0


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


class ShardedIterable(IterableDataset[T_co], Generic[Shard, T_co]):
    """An iterable dataset over shards, of which every worker of every rank reads its part.

    Each sample comes once in an epoch, in one worker of one rank. The number of workers must be the
    same on all ranks. :class:`ShuffleBuffer` mixes the samples.

    Args:
        shards: names, paths, or whatever ``open`` takes; the same on all ranks.
        open: gives a shard's samples, always in the same order.
        shuffle: another order of shards in every epoch (:meth:`set_epoch`).
        resampled: every reader takes any shard at any time, as often as chance has it; the epoch
            has no end but ``samples_per_rank``.
        samples_per_rank: every rank gives exactly so many in an epoch, shared out to its workers.
            Readers that have more stop there, those that have fewer begin again: no rank makes a
            step less than the others. ``total // ranks`` is a good number.
        num_replicas, rank: as for :class:`DistributedSampler`; one rank where nobody says otherwise.

        >>> from millhead.torch import ShardedIterable
        >>> list(ShardedIterable([2, 3], range))
        [0, 1, 0, 1, 2]
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        open: Callable[[Shard], Iterable[T_co]],
        *,
        shuffle: bool = False,
        resampled: bool = False,
        samples_per_rank: int | None = None,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        if not shards:
            raise ValueError("there are no shards: are their names right?")
        require_at_least(0, samples_per_rank=samples_per_rank)
        self.shards = shards
        self.open = open
        self.shuffle = shuffle
        self.resampled = resampled
        self.samples_per_rank = samples_per_rank
        self.seed = seed
        self.num_replicas, self.rank = replica_or_alone(num_replicas, rank)
        self._epoch = SharedEpoch()
        #: Where the iteration under way is.
        self._place = _Place(0)
        #: The place that a loaded state goes on from; used once.
        self._resume: _Place | None = None

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch's order, before its iterator is made; workers that persist learn it."""
        self._epoch.set(epoch)

    def __len__(self) -> int:
        """Samples of this rank in an epoch; known only with ``samples_per_rank``."""
        if self.samples_per_rank is None:
            raise TypeError("how many samples shards hold is not known without samples_per_rank")
        return self.samples_per_rank

    def __iter__(self) -> Iterator[T_co]:
        resume, self._resume = self._resume, None
        epoch = self._epoch.get()
        if resume is not None and resume.epoch != epoch and not self._epoch.was_set():
            # Workers that have no state yet, having given nothing, would be in another epoch.
            raise ValueError(
                f"the state is of epoch {resume.epoch} (ShardedIterable): call "
                f"set_epoch({resume.epoch}) before going on, as in the run it was taken from"
            )
        if resume is None or resume.epoch != epoch:
            resume = _Place(epoch)
        self._place = resume
        return self._read(this_reader(self.num_replicas, self.rank), *resume)

    def _read(
        self, reader: Reader, epoch: int, done: int, taken: int, given: int
    ) -> Iterator[T_co]:
        """From a place on. The place is set before each sample, as it will be after it."""
        wanted = self._wanted(reader)
        barren = 0
        for share in islice(self._course(reader, epoch), done, None):
            if given == wanted:
                return
            before = taken
            samples = islice(self.open(self.shards[share.shard]), share.first, None, share.step)
            for sample in islice(samples, taken, None):
                taken += 1
                given += 1
                self._place = _Place(epoch, done, taken, given)
                yield sample
                if given == wanted:
                    return
            barren = 0 if taken > before else barren + 1
            if wanted is not None and barren > 2 * len(self.shards) + 100:
                raise RuntimeError(
                    f"no sample in {barren} shards, one after the other (ShardedIterable): "
                    f"samples_per_rank={self.samples_per_rank} cannot be had"
                )
            done += 1
            taken = 0
            self._place = _Place(epoch, done, 0, given)

    def _wanted(self, reader: Reader) -> int | None:
        if self.samples_per_rank is None:
            return None
        whole, rest = divmod(self.samples_per_rank, reader.workers)
        return whole + (reader.worker < rest)

    def _course(self, reader: Reader, epoch: int) -> Iterator[_Share]:
        """What a reader reads, one after the other."""
        shards = len(self.shards)
        if self.resampled:
            chance = random.Random(repr((self.seed, epoch, reader.rank, reader.worker)))
            for _ in count():
                yield _Share(chance.randrange(shards))
        order = shuffled(shards, self.seed, epoch) if self.shuffle else range(shards)
        shares = [_Share(number) for number in order]
        shares = _deal(_deal(shares, reader.rank, reader.ranks), reader.worker, reader.workers)
        if shards < reader.ranks * reader.workers:
            _advise_more_shards(shards, reader)
        yield from shares
        while self.samples_per_rank is not None:
            yield from shares

    # --- resuming; a loader calls these in each worker ------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where this process is in its part."""
        place = self._resume or self._place
        return {**place._asdict(), "shards": len(self.shards), "seed": self.seed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on there: in the shard that was open, what was taken is read again and dropped.

        Call :meth:`set_epoch` as in the run that was left: the state's own epoch goes on, any other
        starts at its beginning.

        Raises:
            ValueError: the state is of other shards or another seed.
        """
        for name, mine in (("shards", len(self.shards)), ("seed", self.seed)):
            if state[name] != mine:
                raise ValueError(f"the state has {name}={state[name]!r}, this dataset {mine!r}")
        self._resume = _Place(*(state[name] for name in _Place._fields))


def _advise_more_shards(shards: int, reader: Reader) -> None:
    """Said by one of all readers."""
    if reader.rank == reader.worker == 0:
        advise(
            "few-shards",
            f"{shards} shards for {reader.ranks * reader.workers} readers, ranks x workers "
            "(ShardedIterable): some read a shard together and drop what is not theirs; write more "
            "shards, or take fewer workers",
        )
