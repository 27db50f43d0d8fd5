"""Resuming with hooks of datasets and samplers, and streams that have none or were limited."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from helpers.compare import describe
from helpers.resumed import (
    LENGTH,
    WORKERS,
    Augmented,
    CountingStream,
    HookedStream,
    Numbers,
    disturb,
    make_loader,
    take,
)
from millhead.torch import DataLoader, DistributedSampler
from millhead.torch.resume.saved_position import add_checksum
from torch.utils.data import (
    IterableDataset,
    Sampler,
    get_worker_info,
)


class PlainStream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        step, first = (1, 0) if info is None else (info.num_workers, info.id)
        yield from range(first, LENGTH, step)


@pytest.mark.parametrize("stream", [CountingStream, HookedStream, PlainStream])
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("at", [0, 1, 7])
@pytest.mark.filterwarnings("ignore::millhead.Advice")
def test_iterable_datasets_go_on(stream: Any, workers: int, at: int) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(stream(), batch_size=2, num_workers=workers)

    torch.manual_seed(1)
    loader = make()
    iterator = iter(loader)
    take(iterator, at)
    state = json.loads(json.dumps(loader.state_dict()))
    expected = describe(list(iterator))
    resumed = make()
    resumed.load_state_dict(state)
    assert describe(list(resumed)) == expected


@pytest.mark.parametrize("stream", [CountingStream, HookedStream, PlainStream])
@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("persistent", [False, True])
def test_iterable_datasets_begin_their_next_epoch(
    stream: Any, workers: int, persistent: bool
) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(
            stream(),
            batch_size=2,
            num_workers=workers,
            persistent_workers=persistent and workers > 0,
            snapshot_every_n_steps=10,
        )

    loader = make()
    list(loader)
    state = loader.state_dict()
    expected = describe(list(loader))
    resumed = make()
    resumed.load_state_dict(state)
    assert describe(list(resumed)) == expected


@pytest.mark.parametrize("stream", [CountingStream, HookedStream, PlainStream])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.filterwarnings("ignore::millhead.Advice")
def test_an_iterable_dataset_goes_on_after_its_iterator_is_gone(stream: Any, workers: int) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(stream(), batch_size=2, num_workers=workers)

    torch.manual_seed(1)
    expected = describe(list(make()))
    torch.manual_seed(1)
    loader = make()
    seen = take(iter(loader), 3)
    state = loader.state_dict()
    resumed = make()
    resumed.load_state_dict(state)
    assert describe(seen + list(resumed)) == expected


def test_drawing_a_stream_again_is_said_once() -> None:
    loader = DataLoader(PlainStream(), num_workers=0)
    take(iter(loader), 3)
    state = loader.state_dict()
    resumed = DataLoader(PlainStream(), num_workers=0)
    resumed.load_state_dict(state)
    with pytest.warns(UserWarning, match="by drawing 3 batches again"):
        list(resumed)


class HookedSampler(Sampler[int]):
    """As torchdata's: counts what it yielded, and skips that much when told to."""

    def __init__(self) -> None:
        self.yielded = 0
        self.skip = 0

    def __iter__(self) -> Iterator[int]:
        self.yielded, self.skip = self.skip, 0
        for number in range(self.yielded, LENGTH):
            self.yielded += 1
            yield number

    def __len__(self) -> int:
        return LENGTH

    def state_dict(self) -> dict[str, int]:
        return {"yielded": self.yielded}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.skip = state["yielded"]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at", [0, 4, None])
def test_hooks_of_samplers_do_not_count_what_was_prefetched(workers: int, at: int | None) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(Numbers(), batch_size=4, sampler=HookedSampler(), num_workers=workers)

    loader = make()
    whole = describe(list(loader))
    iterator = iter(loader)
    expected = whole
    if at is None:
        list(iterator)
    else:
        take(iterator, at)
    state = loader.state_dict()
    if at is not None:
        expected = describe(list(iterator))
    resumed = make()
    resumed.load_state_dict(state)
    assert describe(list(resumed)) == expected


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("at", [1, 2, 5, 6])
@pytest.mark.parametrize("kind", ["hooks", "distributed"])
def test_another_number_of_workers_goes_on_between_two_snapshots(
    kind: str, at: int, workers: int
) -> None:
    """The sampler's state is the snapshot's; what was consumed since is not given again, nor when
    the state is saved once more."""

    def make(workers: int) -> DataLoader[Any]:
        sampler: Any = HookedSampler()
        if kind == "distributed":
            sampler = DistributedSampler(Numbers(), 1, 0, shuffle=False)
        return DataLoader(
            Numbers(),
            batch_size=2,
            num_workers=workers,
            sampler=sampler,
            snapshot_rng=True,
            snapshot_every_n_steps=4,
        )

    expected = [batch.tolist() for batch in make(0)]
    found = []
    first, second, third = make(2), make(workers), make(1)
    found += [batch.tolist() for batch in take(iter(first), at)]
    second.load_state_dict(first.state_dict())
    found += [batch.tolist() for batch in take(iter(second), 3)]
    third.load_state_dict(second.state_dict())
    found += [batch.tolist() for batch in third]
    assert found == expected


def as_lists(batches: Any) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


class TidySampler(HookedSampler):
    """Is at its beginning again as soon as it has ended."""

    def __iter__(self) -> Iterator[int]:
        yield from super().__iter__()
        self.yielded = 0


class TidyStream(CountingStream):
    """Is at its beginning again as soon as it has ended."""

    def __iter__(self) -> Iterator[int]:
        yield from super().__iter__()
        self.place = 0


@pytest.mark.parametrize("what", [TidySampler, TidyStream, HookedSampler, CountingStream])
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, False), (2, True)])
@pytest.mark.parametrize("left", [0, 1, 2])
def test_what_ended_within_the_last_batch_is_not_begun_again(
    what: Any, workers: int, persistent: bool, left: int
) -> None:
    def make() -> DataLoader[Any]:
        hooked = what()
        kwargs: Any = {"batch_size": 4, "num_workers": workers, "persistent_workers": persistent}
        if isinstance(hooked, Sampler):
            return DataLoader(Numbers(), sampler=hooked, **kwargs)
        return DataLoader(hooked, **kwargs)

    epoch = as_lists(make())
    loader = make()
    iterator = iter(loader)
    take(iterator, len(epoch) - left)
    state = loader.state_dict()
    del iterator
    for _ in range(2):  # a state of the resumed one is as good
        resumed = make()
        resumed.load_state_dict(state)
        iterator = iter(resumed)
        state = resumed.state_dict()
        assert as_lists(iterator) == epoch[len(epoch) - left :]
        assert as_lists(resumed) == epoch
    assert as_lists(loader) == epoch


class Restarting(IterableDataset[int]):
    """Uneven streams whose place is in the dataset: an iterator that finds it at its end begins
    anew."""

    def __init__(self) -> None:
        self.place = 0

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        length = 13 if info is None or info.id else 5
        if self.place >= length:
            self.place = 0
        while self.place < length:
            self.place += 1
            yield self.place

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


class Counted(Restarting):
    """Counts its epochs, and has other numbers in each."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = -1
        self.loaded = False

    def __iter__(self) -> Iterator[int]:
        self.epoch += not self.loaded
        self.place *= self.loaded
        self.loaded = False
        return (100 * self.epoch + number for number in super().__iter__())

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        super().load_state_dict(state)
        self.epoch = state["epoch"]
        self.loaded = True


@pytest.mark.parametrize("stream", [Restarting, Counted])
def test_a_worker_resumed_after_its_stream_had_ended_begins_the_next_epoch_at_its_start(
    stream: Any,
) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(stream(), batch_size=2, num_workers=2, persistent_workers=True)

    loader = make()
    expected = [as_lists(loader) for _ in range(3)]
    for at in range(1, len(expected[0])):
        first, resumed = make(), make()
        take(iter(first), at)
        resumed.load_state_dict(first.state_dict())
        assert as_lists(resumed) == expected[0][at:]
        assert [as_lists(resumed) for _ in range(2)] == expected[1:]


def test_a_worker_that_a_limit_left_idle_begins_the_next_epoch_at_its_start() -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(
            CountingStream(),
            batch_size=4,
            num_workers=2,
            persistent_workers=True,
            limit_batches=3,
        )

    loader = make()
    epoch = as_lists(loader)
    take(iter(loader), 2)
    resumed = make()
    resumed.load_state_dict(loader.state_dict())  # one batch is left, and it is the first worker's
    assert as_lists(resumed) == epoch[2:]
    assert as_lists(resumed) == epoch


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("dispatch", ["batch", "sample"])
def test_a_sampler_with_hooks_goes_on_beyond_batches_consumed_out_of_order(
    workers: int, dispatch: str
) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(
            Numbers(), batch_size=4, sampler=HookedSampler(), num_workers=workers, dispatch=dispatch
        )

    whole = as_lists(make())
    loader = make()
    take(iter(loader), 1)
    state = loader.state_dict()
    state = add_checksum({**state, "ahead": [2]})  # as with in_order=False
    loader = make()
    loader.load_state_dict(state)
    assert as_lists(take(iter(loader), 1)) == whole[1:2]
    resumed = make()
    resumed.load_state_dict(loader.state_dict())
    assert as_lists(resumed) == whole[3:]


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_keep_their_places_where_a_sampler_has_hooks(workers: int) -> None:
    """Random numbers by place (``dispatch="sample"``) are those of the run that was left."""

    def make() -> DataLoader[Any]:
        return DataLoader(
            Augmented(),
            batch_size=4,
            sampler=HookedSampler(),
            num_workers=workers,
            dispatch="sample",
        )

    torch.manual_seed(1)
    loader = make()
    iterator = iter(loader)
    take(iterator, 3)
    state = loader.state_dict()
    expected = describe(list(iterator))
    disturb()
    resumed = make()
    resumed.load_state_dict(state)
    iterator = iter(resumed)
    first = take(iterator, 1)
    again = make()
    again.load_state_dict(resumed.state_dict())
    assert describe(first + list(again)) == expected


class ShuffledStream(IterableDataset[Any]):
    """Without hooks: its order, and more, comes from the generators of whoever iterates."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        part = list(range(info.id, LENGTH, info.num_workers) if info else range(LENGTH))
        random.shuffle(part)
        for number in part:
            yield number, torch.rand(())


@pytest.mark.filterwarnings("ignore:.*by drawing.*:millhead.Advice")
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_stream_in_random_order_is_drawn_again_in_that_order(
    workers: int, persistent: bool, epoch: int
) -> None:
    def make() -> DataLoader[Any]:
        options: dict[str, Any] = {"num_workers": workers, "persistent_workers": persistent}
        return DataLoader(ShuffledStream(), batch_size=3, snapshot_rng=True, **options)

    loader = make()
    for _ in range(epoch):
        list(loader)
    iterator = iter(loader)
    take(iterator, 5)
    state = loader.state_dict()
    expected = describe(list(iterator))
    disturb()
    resumed = make()
    resumed.load_state_dict(json.loads(json.dumps(state)))
    assert describe(list(resumed)) == expected


class EagerStream(IterableDataset[int]):
    """Without hooks: draws its order in ``__iter__``, from two generators."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        part = list(range(info.id, LENGTH, info.num_workers) if info else range(LENGTH))
        random.shuffle(part)
        return iter([part[at] for at in torch.randperm(len(part))])


class EagerHooked(EagerStream):
    """Its state is its order and how far it came; the next iterator begins where it was told to."""

    def __init__(self) -> None:
        self.order: list[int] = []
        self.place = 0
        self.noted = False

    def __iter__(self) -> Iterator[int]:
        if not self.noted:
            self.order, self.place = list(super().__iter__()), 0
        self.noted = False
        return self._rest()

    def _rest(self) -> Iterator[int]:
        while self.place < len(self.order):
            self.place += 1
            yield self.order[self.place - 1]

    def state_dict(self) -> dict[str, Any]:
        return {"order": [int(number) for number in self.order], "place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.order, self.place, self.noted = list(state["order"]), state["place"], True


@pytest.mark.filterwarnings("ignore:.*by drawing.*:millhead.Advice")
@pytest.mark.parametrize("stream", [EagerStream, EagerHooked, ShuffledStream])
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, True), (2, False), (2, True)])
@pytest.mark.parametrize("epochs", [0, 1, 3])
@pytest.mark.parametrize("at", [None, 0, 1])
def test_a_random_stream_goes_on_from_anywhere(
    stream: Any, workers: int, persistent: bool, epochs: int, at: int | None
) -> None:
    def make() -> DataLoader[Any]:
        options: dict[str, Any] = {"num_workers": workers, "persistent_workers": persistent}
        return DataLoader(stream(), batch_size=3, snapshot_rng=True, **options)

    random.seed(7)
    torch.manual_seed(7)
    loader = make()
    for _ in range(epochs):
        list(loader)
    rest: Any = loader
    if at is not None:
        rest = iter(loader)
        take(rest, at)
    state = json.loads(json.dumps(loader.state_dict()))
    expected = [describe(list(rest)), describe(list(loader))]
    disturb()
    resumed = make()
    resumed.load_state_dict(state)
    iterator = iter(resumed)
    again = resumed.state_dict()  # what was resumed is saved once more
    assert describe(list(iterator)) == expected[0]
    if workers and persistent:
        assert describe(list(resumed)) == expected[1]
    disturb()
    resumed = make()
    resumed.load_state_dict(again)
    assert describe(list(resumed)) == expected[0]


@pytest.mark.filterwarnings("ignore:.*by drawing.*:millhead.Advice")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at", [None, 0, 2])
def test_an_order_drawn_at_once_needs_no_saved_generators(workers: int, at: int | None) -> None:
    loader = DataLoader(EagerStream(), batch_size=3, num_workers=workers)
    list(loader)
    rest: Any = loader
    if at is not None:
        rest = iter(loader)
        take(rest, at)
    state = loader.state_dict()
    expected = describe(list(rest))
    disturb()
    resumed = DataLoader(EagerStream(), batch_size=3, num_workers=workers)
    resumed.load_state_dict(state)
    assert describe(list(resumed)) == expected


class CountedStream(IterableDataset[int]):
    """Without hooks; notes in shared memory how many samples were drawn."""

    def __init__(self) -> None:
        self.drawn = torch.zeros((), dtype=torch.int64).share_memory_()

    def __iter__(self) -> Iterator[int]:
        for number in range(LENGTH):
            self.drawn += 1
            yield number


@pytest.mark.filterwarnings("ignore:.*by drawing.*:millhead.Advice")
@pytest.mark.parametrize(("workers", "drawn"), [(0, 8), (1, 0)])
def test_nothing_beyond_a_limit_is_drawn_again(workers: int, drawn: int) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(CountedStream(), batch_size=2, num_workers=workers, limit_batches=4)

    loader = make()
    take(iter(loader), 4)
    resumed = make()
    resumed.load_state_dict(loader.state_dict())
    assert list(resumed) == []
    dataset: Any = resumed.dataset
    assert dataset.drawn == drawn


@pytest.mark.parametrize("again", [False, True])
def test_a_stream_that_was_not_drawn_from_yet_is_where_it_was(again: bool) -> None:
    loader = DataLoader(CountingStream(), batch_size=4)
    expected = list(loader)  # leaves the dataset at its end
    iterator = iter(loader)
    if again:
        expected = expected[3:]
        take(iterator, 3)
        state = loader.state_dict()
        loader = DataLoader(CountingStream(), batch_size=4)
        loader.load_state_dict(state)
        iterator = iter(loader)
    state = loader.state_dict()
    del iterator
    assert loader.state_dict()["worker_states"] == state["worker_states"]
    resumed = DataLoader(CountingStream(), batch_size=4)
    resumed.load_state_dict(state)
    assert describe(list(resumed)) == describe(expected)


LIMITED: dict[str, Any] = {
    "stream": lambda: {"dataset": CountingStream()},
    "sampler": lambda: {"dataset": Numbers(), "sampler": HookedSampler()},
}


@pytest.mark.parametrize("what", LIMITED)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("seen", [False, True])
def test_after_a_limit_the_next_epoch_begins_at_the_start(
    what: str, workers: int, seen: bool
) -> None:
    def make() -> DataLoader[Any]:
        options: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
        return DataLoader(**LIMITED[what](), batch_size=2, limit_batches=4, **options)

    loader = make()
    iterator = iter(loader)
    whole = describe(take(iterator, 4))
    if seen:
        assert next(iterator, None) is None
    state = loader.state_dict()
    resumed = make()
    resumed.load_state_dict(state)
    if not seen:
        assert list(resumed) == []  # what is left of the epoch
    assert describe(list(resumed)) == whole
    assert describe(list(resumed)) == whole


@pytest.mark.parametrize("what", LIMITED)
@pytest.mark.parametrize(
    ("workers", "persistent", "every"),
    [(0, False, 1), (1, False, 1), (1, True, 1), (2, False, 1), (2, True, 1), (2, True, 9)],
)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_after_a_limit_the_beginning_of_the_next_epoch_is_not_its_middle(
    what: str, workers: int, persistent: bool, every: int, at: int
) -> None:
    def make() -> DataLoader[Any]:
        options: dict[str, Any] = {
            "num_workers": workers,
            "persistent_workers": persistent,
            "snapshot_every_n_steps": every,
        }
        return DataLoader(**LIMITED[what](), batch_size=2, limit_batches=4, **options)

    loader = make()
    whole = list(loader)
    iterator = iter(loader)
    take(iterator, at)
    for _ in range(2):  # the second time what was resumed is saved once more
        state = json.loads(json.dumps(loader.state_dict()))
        loader = make()
        loader.load_state_dict(state)
        iterator = iter(loader)
    assert describe(list(iterator)) == describe(whole[at:])
    assert describe(list(loader)) == describe(whole)


@pytest.mark.parametrize(("what", "workers"), [("stream", 0), ("stream", 2), ("sampler", 0)])
def test_after_an_epoch_left_early_the_next_begins_at_the_start(what: str, workers: int) -> None:
    def make() -> DataLoader[Any]:
        options: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
        return DataLoader(**LIMITED[what](), batch_size=2, **options)

    whole = describe(list(make()))
    loader = make()
    next(iter(loader))
    iterator = iter(loader)
    state = loader.state_dict()
    del iterator
    resumed = make()
    resumed.load_state_dict(state)
    assert describe(list(resumed)) == whole


def test_a_higher_limit_goes_on_with_the_stream() -> None:
    loader = DataLoader(CountingStream(), limit_batches=4)
    whole = list(DataLoader(CountingStream()))
    take(iter(loader), 4)
    resumed = DataLoader(CountingStream())
    resumed.load_state_dict(loader.state_dict())
    assert describe(list(resumed)) == describe(whole[4:])


def test_the_last_batches_before_a_limit_bring_their_workers_generators() -> None:
    def make() -> DataLoader[Any]:
        options: dict[str, Any] = {"num_workers": 2, "persistent_workers": True, "batch_size": 2}
        every = {"snapshot_rng": True, "snapshot_every_n_steps": 9}
        return DataLoader(Augmented(), limit_batches=5, **options, **every)

    loader = make()
    list(loader)
    state = loader.state_dict()
    expected = describe(list(loader))
    resumed = make()
    resumed.load_state_dict(state)
    assert describe(list(resumed)) == expected


class LongState(Numbers):
    """A state that does not fit beside a batch."""

    def state_dict(self) -> dict[str, str]:
        return {"text": "x" * 300_000}

    def load_state_dict(self, state: dict[str, str]) -> None:
        assert state == self.state_dict()


@pytest.mark.parametrize("collate", [None, list])
def test_states_may_be_long(collate: Any) -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(LongState(), batch_size=2, num_workers=2, collate_fn=collate)

    loader = make()
    iterator = iter(loader)
    take(iterator, 9)
    state = loader.state_dict()
    expected = describe(list(iterator))
    resumed = make()
    resumed.load_state_dict(state)
    assert describe(list(resumed)) == expected
    if collate is None:
        assert loader.stats()["paths"]["slot"] > 0


class Failing(Numbers):
    def __getitem__(self, index: int) -> int:
        if index == 9:
            raise ValueError("nine")
        return index


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_raised_counts_as_consumed(workers: int) -> None:
    loader = make_loader("sequential", workers, Failing())
    iterator = iter(loader)
    take(iterator, 2)
    with pytest.raises(ValueError, match="nine"):
        next(iterator)
    state = loader.state_dict()
    expected = describe(list(iterator))
    resumed = make_loader("sequential", workers, Failing())
    resumed.load_state_dict(state)
    assert describe(list(resumed)) == expected
