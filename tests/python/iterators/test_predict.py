"""Batches and generator states are what the contract says, told without any loader."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import predict
import pytest
import torch
from helpers.compare import describe, rng_states, seed_everything
from millhead.torch import DataLoader
from predict import Plan, Prediction
from torch.utils.data import (
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)
from torch.utils.data.distributed import DistributedSampler

LENGTH = 23


class Augmented:
    """Every sample draws from all three global generators and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        self.calls += 1
        noise = float(np.random.rand())
        return index, random.random(), noise, torch.rand(2), self.calls


class AugmentedTogether(Augmented):
    """Fetches a batch at a time, draws for all of it, and asks for the samples backwards."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        shift = random.random() + float(torch.rand(()))
        samples = [self[index] for index in reversed(indices)]
        return [(*sample, shift) for sample in reversed(samples)]


@dataclass
class AugmentedStream(IterableDataset[Any]):
    """Draws when it is opened and at every item; ``lengths`` says how much each worker yields."""

    lengths: tuple[int, ...] = (LENGTH,)
    worker: tuple[int, int] | None = None  # set where there is no get_worker_info()
    opened: int = 0

    def __iter__(self) -> Iterator[Any]:
        self.opened += 1
        info = get_worker_info()
        number, count = self.worker or ((info.id, info.num_workers) if info else (0, 1))
        length = self.lengths[number % len(self.lengths)]
        return self._items(number, count, length, random.random())

    def _items(self, number: int, count: int, length: int, luck: float) -> Iterator[Any]:
        for place in range(length):
            index = number + place * count
            noise = float(np.random.rand())
            yield index, random.random() + luck, noise, torch.rand(2), self.opened
        random.random()  # at the end of the stream, once


def init_moves_generators(worker: int) -> None:
    random.random()
    np.random.rand(worker + 1)
    torch.rand(1)


def collate_with_noise(samples: list[Any]) -> Any:
    return predict.stack(samples), torch.rand(1), random.random()


Order = Callable[[int, torch.Generator | None], Iterable[int]]


def _sampler(order: Order, generator: torch.Generator | None) -> Sampler[int] | Sequence[int]:
    """The torch sampler that an order of predict.py describes."""
    sizes = range(LENGTH)
    if order is predict.sequential:
        return sizes
    if order is predict.shuffled:
        return RandomSampler(sizes, generator=generator)
    if order is predict.with_replacement:
        return RandomSampler(sizes, True, 70, generator)
    if order is predict.odd_ones:
        return SubsetRandomSampler(range(1, LENGTH, 2), generator)
    if order is predict.weighted:
        return WeightedRandomSampler(
            [float(n) for n in range(1, LENGTH + 1)], LENGTH, True, generator
        )
    assert order is predict.second_of_three
    return DistributedSampler(sizes, num_replicas=3, rank=1)  # type: ignore[arg-type]


def _live(loader: DataLoader[Any], takes: Sequence[int | None], generators: list[Any]) -> list[Any]:
    """What a loader gives and leaves in the parent's generators, step by step."""
    seen: list[Any] = []
    for take in takes:
        iterator = iter(loader)
        seen.append(("epoch", rng_states(generators)))
        while take is None or take > 0:
            batch = next(iterator, None)
            seen.append((describe(batch), rng_states(generators)))
            if batch is None:
                break
            take = None if take is None else take - 1
    return seen


def _told(plan: Plan, takes: Sequence[int | None], generators: list[Any]) -> list[Any]:
    prediction = Prediction(plan)
    seen: list[Any] = []
    for take in takes:
        iterator = prediction.begin_epoch()
        seen.append(("epoch", rng_states(generators)))
        while take is None or take > 0:
            batch = next(iterator, None)
            seen.append((describe(batch), rng_states(generators)))
            if batch is None:
                break
            take = None if take is None else take - 1
    return seen


def _generators(own: bool) -> list[torch.Generator | None]:
    return [torch.Generator().manual_seed(n) if own else None for n in (11, 12)]


def _compare(
    order: Order | None,
    *,
    workers: int,
    make: Callable[[], Any] = Augmented,
    own_generator: bool = False,
    takes: Sequence[int | None] = (None, None),
    **options: Any,
) -> None:
    """Compares a loader with what is told of it; without an order, of an iterable dataset."""
    seed_everything(41)
    generators = _generators(own_generator)
    plan = Plan(
        make(),
        lambda: order(LENGTH, generators[1]) if order else (),
        batch_size=4,
        workers=workers,
        generator=generators[0],
        stream=order is None,
        **options,
    )
    told = _told(plan, takes, generators)

    seed_everything(41)
    generators = _generators(own_generator)
    loader = DataLoader(
        make(),
        batch_size=4,
        sampler=_sampler(order, generators[1]) if order else None,
        drop_last=plan.drop_last,
        num_workers=workers,
        generator=generators[0],
        collate_fn=plan.collate,
        worker_init_fn=plan.init,
        prefetch_factor=plan.prefetch if workers else None,
        persistent_workers=plan.persistent,
    )
    live = _live(loader, takes, generators)
    assert len(live) == len(told)
    for number, (left, right) in enumerate(zip(live, told, strict=True)):
        assert left == right, f"step {number}"


ORDERS = [
    predict.sequential,
    predict.shuffled,
    predict.with_replacement,
    predict.odd_ones,
    predict.weighted,
    predict.second_of_three,
]


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.__name__)
def test_batches_and_generators_follow_the_contract(order: Order, workers: int) -> None:
    _compare(order, workers=workers)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("order", ORDERS[1:5], ids=lambda order: order.__name__)
def test_own_generators_are_drawn_in_place_of_the_global_one(order: Order, workers: int) -> None:
    _compare(order, workers=workers, own_generator=True)


@pytest.mark.parametrize("own_generator", [False, True], ids=["global", "own generator"])
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("order", [predict.sequential, predict.shuffled, predict.weighted])
def test_persistent_workers_run_on_over_three_epochs(
    order: Order, workers: int, own_generator: bool
) -> None:
    _compare(
        order,
        workers=workers,
        own_generator=own_generator,
        persistent=True,
        takes=(None, None, None),
    )


@pytest.mark.parametrize("persistent", [False, True])
def test_an_epoch_left_early_moves_generators_by_what_was_begun(persistent: bool) -> None:
    _compare(predict.odd_ones, workers=2, persistent=persistent, takes=(1, 2, None))


@pytest.mark.parametrize("prefetch", [1, 3])
def test_look_ahead_is_workers_times_prefetch(prefetch: int) -> None:
    _compare(predict.shuffled, workers=2, prefetch=prefetch, takes=(2, None))


@pytest.mark.parametrize("workers", [0, 2])
def test_the_last_short_batch_is_dropped(workers: int) -> None:
    _compare(predict.shuffled, workers=workers, drop_last=True)


def test_worker_init_runs_after_seeding_and_before_the_first_sample() -> None:
    _compare(predict.shuffled, workers=2, init=init_moves_generators, persistent=True)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_collate_draws_after_all_samples_of_its_batch(workers: int, persistent: bool) -> None:
    _compare(
        predict.sequential,
        workers=workers,
        collate=collate_with_noise,
        persistent=persistent and workers > 0,
    )


# ---- datasets that fetch whole batches -------------------------------------------------------------


@pytest.mark.parametrize("collate", [None, collate_with_noise], ids=["default", "random collate"])
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_a_batch_fetched_at_once_draws_in_its_own_order(workers: int, collate: Any) -> None:
    _compare(
        predict.shuffled, workers=workers, make=AugmentedTogether, together=True, collate=collate
    )


def test_persistent_workers_that_fetch_whole_batches_run_on() -> None:
    _compare(
        predict.shuffled,
        workers=2,
        make=AugmentedTogether,
        together=True,
        persistent=True,
        takes=(None, 3, None),
    )


# ---- iterable datasets -------------------------------------------------------------------------------


LENGTHS = {
    "even": (LENGTH,),
    "uneven": (9, LENGTH, 2),
    "the first has none": (0, LENGTH, 5),
    "whole batches": (8, 4, 16),
    "none at all": (0,),
}


def _stream(lengths: str) -> Callable[[], AugmentedStream]:
    return lambda: AugmentedStream(LENGTHS[lengths])


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_a_stream_is_read_by_each_worker_with_its_own_seeds(workers: int, lengths: str) -> None:
    _compare(None, workers=workers, make=_stream(lengths))


@pytest.mark.parametrize("lengths", ["even", "uneven"])
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_a_streams_last_short_batch_is_dropped_in_each_worker(workers: int, lengths: str) -> None:
    _compare(None, workers=workers, make=_stream(lengths), drop_last=True)


@pytest.mark.parametrize("own_generator", [False, True], ids=["global", "own generator"])
@pytest.mark.parametrize("lengths", ["even", "uneven"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_persistent_workers_open_the_stream_anew_and_draw_on(
    workers: int, lengths: str, own_generator: bool
) -> None:
    _compare(
        None,
        workers=workers,
        make=_stream(lengths),
        own_generator=own_generator,
        persistent=True,
        takes=(None, None, None),
    )


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [2, 3])
def test_a_stream_left_early_has_been_read_as_far_as_batches_were_begun(
    workers: int, persistent: bool
) -> None:
    _compare(None, workers=workers, make=_stream("even"), persistent=persistent, takes=(1, 2, None))


@pytest.mark.parametrize("prefetch", [1, 3])
@pytest.mark.parametrize("lengths", ["even", "uneven"])
def test_look_ahead_does_not_change_a_streams_batches(lengths: str, prefetch: int) -> None:
    _compare(None, workers=3, make=_stream(lengths), prefetch=prefetch, persistent=True)


def test_worker_init_runs_before_the_stream_is_opened() -> None:
    _compare(None, workers=2, make=_stream("uneven"), init=init_moves_generators, persistent=True)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_collate_draws_between_the_batches_of_a_stream(workers: int, persistent: bool) -> None:
    _compare(
        None,
        workers=workers,
        make=_stream("uneven"),
        collate=collate_with_noise,
        persistent=persistent and workers > 0,
    )


class PlainAugmented(Augmented):
    def __len__(self) -> int:
        return 9


@pytest.mark.parametrize(
    ("workers", "persistent", "calls"),
    [(0, False, [1, 1]), (2, False, [2, 2]), (2, True, [2, 1])],
    ids=["0 workers", "2 workers", "2 persistent workers"],
)
def test_iter_of_the_sampler_is_called_as_often_as_torch_calls_it(
    workers: int, persistent: bool, calls: list[int]
) -> None:
    made: list[int] = []

    class Counting(predict.DrawsAtIter):
        def __iter__(self) -> Any:
            made.append(1)
            return super().__iter__()

    seed_everything(3)
    loader = DataLoader(
        PlainAugmented(),
        batch_size=None,
        sampler=Counting(9),
        num_workers=workers,
        persistent_workers=persistent,
        collate_fn=lambda sample: sample[0],
    )
    for expected in calls:
        made.clear()
        indices = list(loader)
        assert sorted(indices) == list(range(9))
        assert len(made) == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_an_eager_sampler_draws_before_the_base_seed(workers: int) -> None:
    seed_everything(5)
    orders = [torch.randperm(9).tolist()]
    torch.empty((), dtype=torch.int64).random_()
    if workers:
        orders.append(torch.randperm(9).tolist())
    after = rng_states()

    seed_everything(5)
    loader = DataLoader(
        PlainAugmented(),
        batch_size=None,
        sampler=predict.DrawsAtIter(9),
        num_workers=workers,
        collate_fn=lambda sample: sample[0],
    )
    iterator = iter(loader)
    assert rng_states() == after
    assert list(iterator) == orders[-1]
