"""state_dict and load_state_dict: the rest of an epoch is the same, and nothing is fetched twice."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from compare import describe
from millhead.torch import DataLoader, DistributedSampler, StatefulDataLoader
from torch.utils.data import (
    BatchSampler,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

LENGTH = 37
WORKERS = [0, 1, 3]


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        return index


class Augmented(Numbers):
    """Draws from all three global generators."""

    def __getitem__(self, index: int) -> Any:
        return index, random.random(), np.random.random(), torch.rand(2)


class EagerSampler(Sampler[int]):
    """Draws in ``__iter__``, from generators that are not torch's."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __iter__(self) -> Iterator[int]:
        order = list(range(LENGTH))
        if self.source == "random":
            random.shuffle(order)
        else:
            np.random.shuffle(order)
        return iter(order)

    def __len__(self) -> int:
        return LENGTH


def _own(seed: int = 5) -> torch.Generator:
    generator = torch.Generator()
    generator.manual_seed(seed)
    return generator


SAMPLERS: dict[str, Any] = {
    "sequential": dict,
    "shuffle": lambda: {"shuffle": True},
    "own generator": lambda: {"shuffle": True, "generator": _own()},
    "sampler's generator": lambda: {"sampler": RandomSampler(Numbers(), generator=_own())},
    "replacement": lambda: {"sampler": RandomSampler(Numbers(), True, 50)},
    "subset": lambda: {"sampler": SubsetRandomSampler(range(3, 30))},
    "weighted": lambda: {"sampler": WeightedRandomSampler([1.0] * LENGTH, 40)},
    "eager random": lambda: {"sampler": EagerSampler("random")},
    "eager numpy": lambda: {"sampler": EagerSampler("numpy")},
    "batch sampler": lambda: {
        "batch_sampler": BatchSampler(RandomSampler(Numbers(), generator=_own()), 5, True)
    },
    "no batches": lambda: {"shuffle": True, "batch_size": None},
}


def _loader(sampler: str, workers: int, dataset: Any = None, **extra: Any) -> DataLoader[Any]:
    arguments: dict[str, Any] = {"batch_size": 4, "num_workers": workers, **SAMPLERS[sampler]()}
    if "batch_sampler" in arguments:
        del arguments["batch_size"]
    return DataLoader(Numbers() if dataset is None else dataset, **arguments, **extra)


def _take(iterator: Any, count: int) -> list[Any]:
    return list(itertools.islice(iterator, count))


def _disturb() -> None:
    """What another process, or another state of this one, would have done to the generators."""
    random.seed(99)
    np.random.seed(98)
    torch.manual_seed(97)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at", [0, 1, 5])
def test_the_rest_of_the_epoch_is_the_same(sampler: str, workers: int, at: int) -> None:
    loader = _loader(sampler, workers)
    iterator = iter(loader)
    _take(iterator, at)
    state = loader.state_dict()
    expected = describe(list(iterator))
    _disturb()
    resumed = _loader(sampler, workers)
    resumed.load_state_dict(json.loads(json.dumps(state)))
    assert describe(list(resumed)) == expected


@pytest.mark.parametrize("sampler", ["shuffle", "own generator", "eager random"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_the_end_of_an_epoch_is_the_beginning_of_the_next(
    sampler: str, workers: int, persistent: bool
) -> None:
    extra = {"persistent_workers": True} if persistent and workers else {}
    loader = _loader(sampler, workers, **extra)
    list(loader)
    state = loader.state_dict()
    expected = describe(list(loader))
    _disturb()
    resumed = _loader(sampler, workers, **extra)
    resumed.load_state_dict(state)
    assert describe(list(resumed)) == expected


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_own_generators_go_on_in_later_epochs(workers: int, persistent: bool) -> None:
    extra = {"persistent_workers": True} if persistent and workers else {}
    loader = _loader("own generator", workers, **extra)
    list(loader)
    iterator = iter(loader)
    _take(iterator, 3)
    state = loader.state_dict()
    expected = [describe(list(iterator)), describe(list(loader)), describe(list(loader))]
    resumed = _loader("own generator", workers, **extra)
    resumed.load_state_dict(state)
    assert [describe(list(resumed)) for _ in range(3)] == expected


@pytest.mark.parametrize("workers", WORKERS)
def test_a_loader_that_nobody_iterated_has_a_state(workers: int) -> None:
    loader = _loader("shuffle", workers)
    state = loader.state_dict()
    expected = describe(list(loader))
    _disturb()
    resumed = _loader("shuffle", workers)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert describe(list(resumed)) == expected


@pytest.mark.parametrize("workers", [0, 3])
def test_twice_in_an_epoch(workers: int) -> None:
    loader = _loader("shuffle", workers)
    iterator = iter(loader)
    _take(iterator, 2)
    state = loader.state_dict()
    expected = describe(list(iterator))
    seen: list[Any] = []
    for _ in range(3):
        loader = _loader("shuffle", workers)
        loader.load_state_dict(state)
        seen += _take(iter(loader), 2)
        state = loader.state_dict()
    loader = _loader("shuffle", workers)
    loader.load_state_dict(state)
    assert describe(seen + list(loader)) == expected


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("every", [1, 4])
def test_augmentation_is_repeated_where_generators_are_saved(
    workers: int, persistent: bool, every: int
) -> None:
    extra: dict[str, Any] = {
        "persistent_workers": persistent and workers > 0,
        "snapshot_rng": True,
        "snapshot_every_n_steps": every,
    }
    loader = _loader("shuffle", workers, Augmented(), **extra)
    if persistent:
        list(loader)
    iterator = iter(loader)
    _take(iterator, 6)
    state = loader.state_dict()
    expected = describe(list(iterator))
    _disturb()
    resumed = _loader("shuffle", workers, Augmented(), **extra)
    resumed.load_state_dict(json.loads(json.dumps(state)))
    assert describe(list(resumed)) == expected


def test_augmentation_differs_but_reproducibly_where_they_are_not() -> None:
    loader = _loader("shuffle", 2, Augmented())
    iterator = iter(loader)
    first = _take(iterator, 4)
    state = loader.state_dict()
    rest = list(iterator)
    seen = []
    for _ in range(2):
        resumed = _loader("shuffle", 2, Augmented())
        resumed.load_state_dict(state)
        seen.append(list(resumed))
    assert describe(seen[0]) == describe(seen[1])
    assert [b[0].tolist() for b in seen[0]] == [b[0].tolist() for b in rest]
    drawn = [b[1][0].item() for b in first + rest]
    assert not {b[1][0].item() for b in seen[0]} & set(drawn[:4])


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 0), (0, 2), (1, 2)])
def test_another_number_of_workers_goes_on_with_the_same_samples(before: int, after: int) -> None:
    loader = _loader("shuffle", before)
    iterator = iter(loader)
    _take(iterator, 4)
    state = loader.state_dict()
    expected = describe(list(iterator))
    resumed = _loader("shuffle", after)
    resumed.load_state_dict(state)
    assert describe(list(resumed)) == expected


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 0), (0, 2)])
def test_another_number_of_workers_begins_the_next_epoch(before: int, after: int) -> None:
    def make(workers: int) -> DataLoader[Any]:
        return _loader("own generator", workers, persistent_workers=workers > 0, snapshot_rng=True)

    loader = make(before)
    list(loader)
    state = loader.state_dict()
    resumed = make(after)
    resumed.load_state_dict(state)
    assert sorted(torch.cat(list(resumed)).tolist()) == list(range(LENGTH))


def test_out_of_order_nothing_is_lost_or_repeated() -> None:
    loader = _loader("sequential", 3, in_order=False)
    iterator = iter(loader)
    seen = _take(iterator, 5)
    state = loader.state_dict()
    del iterator
    resumed = _loader("sequential", 3, in_order=False)
    resumed.load_state_dict(state)
    seen += list(resumed)
    assert sorted(torch.cat(seen).tolist()) == list(range(LENGTH))


class Counted(Numbers):
    """Notes in shared memory which samples were asked for."""

    def __init__(self) -> None:
        self.calls = torch.zeros(LENGTH, dtype=torch.int64).share_memory_()

    def __getitem__(self, index: int) -> int:
        self.calls[index] += 1
        return index


@pytest.mark.parametrize("workers", WORKERS)
def test_what_was_consumed_is_not_fetched_again(workers: int) -> None:
    loader = _loader("shuffle", workers)
    iterator = iter(loader)
    consumed = torch.cat(_take(iterator, 6)).tolist()
    state = loader.state_dict()
    dataset = Counted()
    resumed = _loader("shuffle", workers, dataset)
    resumed.load_state_dict(state)
    rest = torch.cat(list(resumed)).tolist()
    assert dataset.calls[consumed].sum() == 0
    assert dataset.calls[rest].tolist() == [1] * len(rest)


def test_the_callers_generators_are_left_alone() -> None:
    loader = _loader("eager random", 2)
    iterator = iter(loader)
    _take(iterator, 3)
    state = loader.state_dict()
    _disturb()
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    resumed = _loader("eager random", 2)
    resumed.load_state_dict(state)
    list(resumed)
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert before == after


def test_generators_put_back_to_the_beginning_move_on_as_in_the_first_run() -> None:
    torch.manual_seed(3)
    loader = _loader("shuffle", 0)
    state = loader.state_dict()
    list(loader)
    expected = torch.get_rng_state()
    torch.manual_seed(3)
    resumed = _loader("shuffle", 0)
    resumed.load_state_dict(state)
    list(resumed)
    assert torch.equal(torch.get_rng_state(), expected)


def test_the_state_outlives_its_iterator() -> None:
    loader = _loader("shuffle", 2)
    seen = []
    for batch in loader:
        seen.append(batch)
        if len(seen) == 3:
            break
    state = loader.state_dict()
    resumed = _loader("shuffle", 2)
    resumed.load_state_dict(state)
    seen += list(resumed)
    assert sorted(torch.cat(seen).tolist()) == list(range(LENGTH))


# --- hooks ---


class CountingStream(IterableDataset[int]):
    """Hooks on the dataset, which only note where the next iterator begins."""

    def __init__(self) -> None:
        self.place = 0
        self.begin = 0

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        step, first = (1, 0) if info is None else (info.num_workers, info.id)
        self.place, self.begin = self.begin, 0
        for number in range(first + self.place * step, LENGTH, step):
            self.place += 1
            yield number

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.begin = state["place"]


class HookedIterator:
    def __init__(self, numbers: range) -> None:
        self.numbers, self.place = numbers, 0

    def __iter__(self) -> HookedIterator:
        return self

    def __next__(self) -> float:
        if self.place >= len(self.numbers):
            raise StopIteration
        self.place += 1
        return self.numbers[self.place - 1] + torch.rand(()).item()

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place, "generator": torch.get_rng_state().tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]
        torch.set_rng_state(torch.tensor(state["generator"], dtype=torch.uint8))


class HookedStream(IterableDataset[float]):
    """Hooks on the iterator; random, and the parts of workers are of different lengths."""

    def __iter__(self) -> HookedIterator:
        info = get_worker_info()
        number = 0 if info is None else info.id
        return HookedIterator(range(100 * number, 100 * number + (4 if number == 1 else 17)))


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
    _take(iterator, at)
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
    seen = _take(iter(loader), 3)
    state = loader.state_dict()
    resumed = make()
    resumed.load_state_dict(state)
    assert describe(seen + list(resumed)) == expected


def test_drawing_a_stream_again_is_said_once() -> None:
    loader = DataLoader(PlainStream(), num_workers=0)
    _take(iter(loader), 3)
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
        _take(iterator, at)
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
    found += [batch.tolist() for batch in _take(iter(first), at)]
    second.load_state_dict(first.state_dict())
    found += [batch.tolist() for batch in _take(iter(second), 3)]
    third.load_state_dict(second.state_dict())
    found += [batch.tolist() for batch in third]
    assert found == expected


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
    _take(iterator, 5)
    state = loader.state_dict()
    expected = describe(list(iterator))
    _disturb()
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


@pytest.mark.filterwarnings("ignore:.*by drawing.*:millhead.Advice")
@pytest.mark.parametrize("stream", [EagerStream, ShuffledStream])
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, True), (2, False), (2, True)])
@pytest.mark.parametrize("epochs", [0, 1, 3])
@pytest.mark.parametrize("at", [None, 0, 1])
def test_a_random_stream_without_hooks_goes_on_from_anywhere(
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
        _take(rest, at)
    state = json.loads(json.dumps(loader.state_dict()))
    expected = [describe(list(rest)), describe(list(loader))]
    _disturb()
    resumed = make()
    resumed.load_state_dict(state)
    iterator = iter(resumed)
    again = resumed.state_dict()  # what was resumed is saved once more
    assert describe(list(iterator)) == expected[0]
    if workers and persistent:
        assert describe(list(resumed)) == expected[1]
    _disturb()
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
        _take(rest, at)
    state = loader.state_dict()
    expected = describe(list(rest))
    _disturb()
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
    _take(iter(loader), 4)
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
        _take(iterator, 3)
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
    whole = describe(_take(iterator, 4))
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
    _take(iterator, at)
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
    _take(iter(loader), 4)
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
    _take(iterator, 9)
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
    loader = _loader("sequential", workers, Failing())
    iterator = iter(loader)
    _take(iterator, 2)
    with pytest.raises(ValueError, match="nine"):
        next(iterator)
    state = loader.state_dict()
    expected = describe(list(iterator))
    resumed = _loader("sequential", workers, Failing())
    resumed.load_state_dict(state)
    assert describe(list(resumed)) == expected


# --- what cannot be ---


def _state() -> dict[str, Any]:
    loader = _loader("shuffle", 0)
    _take(iter(loader), 2)
    return loader.state_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"length": 99}, "of a dataset of 99 samples, this one has 37"),
        ({"millhead": 7}, "version 7, this millhead reads 1"),
        ({"_num_yielded": "two"}, "damaged"),
        ({"_sampler_iter_yielded": -1}, "damaged"),
        ({"generators": {"global": "zzz", "own": {}}}, "damaged"),
        ({"generators": {"global": "AAAA", "own": {}}}, "damaged"),
        ({"worker_states": [None]}, "damaged"),
        ({"ended": [3]}, "damaged"),
        ({"next_worker": 7}, "damaged"),
        ({"_sampler_iter_yielded": 10**30}, "damaged"),
        ({"base_seed": 10**30}, "damaged"),
        ({"base_seed": -1}, "damaged"),
    ],
)
def test_a_wrong_state_is_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        _loader("shuffle", 0).load_state_dict({**_state(), **change})
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("millhead: cannot resume: ")


@pytest.mark.parametrize("state", [None, [], {"_snapshot": {}}, {"epoch": 3}])
def test_what_is_no_state_is_refused(state: Any) -> None:
    if state == []:
        state = [1]
    with pytest.raises(ValueError, match="millhead: cannot resume"):
        _loader("shuffle", 0).load_state_dict(state)


def test_a_state_without_a_key_is_damaged() -> None:
    for key in _state().keys() - {"cut"}:
        state = _state()
        del state[key]
        with pytest.raises(ValueError, match="millhead: cannot resume"):
            _loader("shuffle", 0).load_state_dict(state)


def test_a_state_from_before_some_keys_were_added_is_read() -> None:
    state = _state()
    del state["cut"]
    for entry in state["worker_states"]:
        del entry["cut"], entry["began"]
    loader = _loader("shuffle", 0)
    loader.load_state_dict(state)
    assert len(list(loader)) == len(loader) - 2


def test_keys_of_others_and_an_empty_state_are_no_trouble() -> None:
    loader = _loader("shuffle", 0)
    loader.load_state_dict({**_state(), "of somebody else": 1})
    loader.load_state_dict({})
    assert len(list(loader)) == len(loader) - 2


def test_a_sampler_that_ends_early_is_named() -> None:
    loader = DataLoader(Numbers(), batch_size=4, sampler=range(37))
    _take(iter(loader), 6)
    state = loader.state_dict()
    resumed = DataLoader(Numbers(), batch_size=4, sampler=range(10))
    resumed.load_state_dict(state)
    with pytest.raises(ValueError, match="ended after 3 of the 6 batches"):
        iter(resumed)


def test_an_iterable_dataset_keeps_its_number_of_workers() -> None:
    loader = DataLoader(CountingStream(), num_workers=2)
    _take(iter(loader), 3)
    state = loader.state_dict()
    with pytest.raises(ValueError, match="as many workers as it was left in"):
        DataLoader(CountingStream(), num_workers=3).load_state_dict(state)


# --- neighbours ---


def test_torchdatas_name_and_arguments_are_there() -> None:
    assert StatefulDataLoader is DataLoader
    loader = StatefulDataLoader(Numbers(), snapshot_every_n_steps=3, num_workers=1)
    assert loader.snapshot_every_n_steps == 3


@pytest.mark.parametrize("workers", [0, 2])
def test_a_limit_of_batches_is_kept_over_a_resume(workers: int) -> None:
    dataset = Counted()
    loader = _loader("sequential", workers, dataset, limit_batches=5)
    assert len(loader) == 5
    iterator = iter(loader)
    _take(iterator, 2)
    state = loader.state_dict()
    assert len(list(iterator)) == 3
    assert dataset.calls.tolist() == [1] * 20 + [0] * 17
    resumed = _loader("sequential", workers, limit_batches=5)
    resumed.load_state_dict(state)
    assert torch.cat(list(resumed)).tolist() == list(range(8, 20))
    assert torch.cat(list(resumed)).tolist() == list(range(20))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("limit", [0, 3, 1000])
def test_a_limit_counts_the_batches_of_a_stream(workers: int, limit: int) -> None:
    loader = DataLoader(HookedStream(), batch_size=4, num_workers=workers, limit_batches=limit)
    whole = len(list(DataLoader(HookedStream(), batch_size=4, num_workers=workers)))
    assert [len(list(loader)) for _ in range(2)] == [min(whole, limit)] * 2


def _epochs(cls: Any, at: int | None = None, **extra: Any) -> list[Any]:
    loader = cls(
        Augmented(),
        batch_size=4,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        generator=_own(),
        **extra,
    )
    seen = [describe(list(loader))]
    if at is not None:
        iterator = iter(loader)
        seen.append(describe(_take(iterator, at)))
        del iterator
    return [*seen, describe(list(loader)), describe(list(loader))]


@pytest.mark.parametrize("at", [None, 3, 8])
def test_an_epoch_begun_ahead_of_time_is_the_same(at: int | None) -> None:
    ours = _epochs(DataLoader, at, prefetch_epoch=True)
    assert ours == _epochs(torch.utils.data.DataLoader, at)


def test_an_epoch_begun_ahead_of_time_does_not_spoil_the_state() -> None:
    def make() -> DataLoader[Any]:
        return _loader(
            "own generator", 2, Augmented(), persistent_workers=True, prefetch_epoch=True,
            snapshot_rng=True,
        )  # fmt: skip

    loader = make()
    iterator = iter(loader)
    _take(iterator, 9)
    states = [loader.state_dict()]
    rest = describe(list(iterator))
    states.append(loader.state_dict())
    following = describe(list(loader))
    for state, expected in zip(states, [[rest, following], [following]], strict=True):
        resumed = make()
        resumed.load_state_dict(state)
        assert [describe(list(resumed)) for _ in expected] == expected


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        ({"num_workers": 2, "generator": _own()}, "persistent_workers=True"),
        ({"num_workers": 2, "persistent_workers": True}, "a generator of the loader's own"),
    ],
)
def test_what_beginning_ahead_of_time_needs_is_said(
    arguments: dict[str, Any], missing: str
) -> None:
    with pytest.raises(ValueError, match=f"prefetch_epoch needs {missing}"):
        DataLoader(Numbers(), prefetch_epoch=True, **arguments)


@pytest.mark.parametrize("name", ["limit_batches", "snapshot_every_n_steps"])
@pytest.mark.parametrize("value", [-1, 1.5, "many", True])
def test_counts_are_checked(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} should be a count"):
        DataLoader(Numbers(), **{name: value})


# --- many ranks, and new processes ---


def test_a_sampler_of_many_ranks_goes_on_and_then_heeds_set_epoch() -> None:
    def make(ranks: int, rank: int) -> tuple[DataLoader[Any], DistributedSampler[Any]]:
        sampler: DistributedSampler[Any] = DistributedSampler(Numbers(), ranks, rank)
        return DataLoader(Numbers(), batch_size=3, sampler=sampler, num_workers=1), sampler

    loader, sampler = make(2, 1)
    expected = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        iterator = iter(loader)
        if epoch == 1:
            _take(iterator, 2)
            state = loader.state_dict()
        expected.append(describe(list(iterator)))
    loader, sampler = make(2, 1)
    loader.load_state_dict(state)
    for epoch in (1, 2):
        sampler.set_epoch(epoch)
        assert describe(list(loader)) == expected[epoch]


def test_the_end_of_a_ranks_epoch_leaves_the_next_to_set_epoch() -> None:
    sampler: DistributedSampler[Any] = DistributedSampler(Numbers(), 2, 0)
    loader = DataLoader(Numbers(), batch_size=3, sampler=sampler)
    list(loader)
    state = loader.state_dict()
    sampler.set_epoch(1)
    expected = describe(list(loader))
    sampler = DistributedSampler(Numbers(), 2, 0)
    loader = DataLoader(Numbers(), batch_size=3, sampler=sampler)
    loader.load_state_dict(state)
    sampler.set_epoch(1)
    assert describe(list(loader)) == expected


@pytest.mark.parametrize(
    ("arguments", "same"),
    [
        ("--workers 2", {"tail_equal", "remaining_equal", "augmentation_equal"}),
        ("--workers 0", {"tail_equal", "remaining_equal", "augmentation_equal"}),
        ("--workers 2 --new-workers 1", {"tail_equal", "remaining_equal"}),
        ("--workers 1 --world 2 --new-world 3", {"remaining_equal"}),
    ],
)
def test_a_new_process_goes_on(arguments: str, same: set[str]) -> None:
    program = [sys.executable, str(Path(__file__).parent / "resume.py"), "--seed=77", "--at=21"]
    command = [*program, "--n=400", "--batch-size=8", *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    said = json.loads(done.stdout)
    assert said.pop("getitem_calls_before_first_batch") == 0
    assert {name for name, value in said.items() if value} == same


@pytest.mark.parametrize("wrong", ["--at=8", "--n=0 --at=0"])
def test_more_batches_than_there_are_cannot_be_consumed(wrong: str) -> None:
    program = [sys.executable, str(Path(__file__).parent / "resume.py"), "--n=50", "--batch-size=8"]
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run([*program, *wrong.split()], check=False, **options)
    assert done.returncode == 2
    assert "resume.py: error: --" in done.stderr
