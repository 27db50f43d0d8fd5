"""Batches of like length: what they save, that nothing is lost, ranks, resuming, padding."""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import json
import pickle
import random
import warnings
from typing import Any

import millhead
import numpy
import pytest
import torch
import torch.utils.data
from millhead.torch import DataLoader, LengthBatchSampler, pad_collate

RANKS = 4
LIMITS: list[dict[str, Any]] = [
    {"batch_size": 16},
    {"max_tokens": 3000},
    {"batch_size": 16, "max_tokens": 3000},
]

#: Said about some of the loops below, which is what one of them tests.
pytestmark = pytest.mark.filterwarnings("ignore:millhead. an epoch begins")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)


def texts(count: int, seed: int = 0) -> list[int]:
    """Lengths as those of texts: many short, few long."""
    chance = random.Random(seed)
    return [min(1000, 5 + int(chance.lognormvariate(4, 1))) for _ in range(count)]


LENGTHS = texts(4001)


def world(ranks: int = RANKS, lengths: Any = LENGTHS, **options: Any) -> list[LengthBatchSampler]:
    return [
        LengthBatchSampler(lengths, num_replicas=ranks, rank=rank, **options)
        for rank in range(ranks)
    ]


def steps_of(samplers: list[LengthBatchSampler]) -> list[tuple[list[int], ...]]:
    """The batches of all ranks, step by step: every rank has one in each."""
    return list(zip(*samplers, strict=True))


def cost(batch: list[int]) -> int:
    """What a padded batch holds."""
    return len(batch) * max(LENGTHS[sample] for sample in batch)


def waste(steps: list[tuple[list[int], ...]]) -> float:
    """The part of all that is computed that is padding."""
    batches = list(itertools.chain.from_iterable(steps))
    held = sum(LENGTHS[sample] for batch in batches for sample in batch)
    return 1 - held / sum(map(cost, batches))


def spread(steps: list[tuple[list[int], ...]]) -> float:
    """How much longer the costliest rank of a step takes than the mean one, in the mean."""
    excess = [max(map(cost, step)) / (sum(map(cost, step)) / len(step)) - 1 for step in steps]
    return sum(excess) / len(excess)


def random_steps(size: int = 16) -> list[tuple[list[int], ...]]:
    order = list(range(len(LENGTHS)))
    random.Random(1).shuffle(order)
    batches = [order[first : first + size] for first in range(0, len(order) - size + 1, size)]
    return list(zip(*(batches[rank::RANKS] for rank in range(RANKS)), strict=False))


# --- what it is for -----------------------------------------------------------------------------


def test_padding_and_the_spread_of_cost_between_ranks_shrink() -> None:
    ours, chance = steps_of(world(batch_size=16, drop_last=True)), random_steps()
    assert waste(chance) > 0.5  # what there is to save
    assert waste(ours) < waste(chance) / 4
    assert spread(chance) > 0.3
    assert spread(ours) < spread(chance) / 4


def test_a_limit_of_tokens_holds_and_is_used() -> None:
    steps = steps_of(world(max_tokens=3000))
    costs = [cost(batch) for step in steps for batch in step]
    assert max(costs) <= 3000
    assert sum(costs) / len(costs) > 0.7 * 3000
    both = steps_of(world(max_tokens=3000, batch_size=16))
    assert max(len(batch) for step in both for batch in step) == 16
    assert max(cost(batch) for step in both for batch in step) <= 3000


def test_short_and_long_batches_are_mixed_and_differ_from_epoch_to_epoch() -> None:
    (sampler,) = world(1, batch_size=16)
    first = list(sampler)
    longest = torch.tensor([max(LENGTHS[sample] for sample in batch) for batch in first]).double()
    ups = int((longest[1:] > longest[:-1]).sum())
    assert 0.3 * len(first) < ups < 0.7 * len(first)  # sorted ones go up always, or never
    sampler.set_epoch(1)
    second = list(sampler)
    neighbours = [
        {frozenset(pair) for batch in epoch for pair in itertools.pairwise(batch)}
        for epoch in (first, second)
    ]
    assert len(neighbours[0] & neighbours[1]) < 0.2 * len(neighbours[0])


def test_the_longest_batch_of_a_step_is_every_ranks_in_turn() -> None:
    steps = steps_of(world(batch_size=16, drop_last=True))
    longest = collections.Counter(
        max(range(RANKS), key=lambda rank: cost(step[rank])) for step in steps
    )
    for rank in range(RANKS):
        assert 0.1 * len(steps) < longest[rank] < 0.4 * len(steps)


# --- nothing lost, equally many -----------------------------------------------------------------


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_sample_comes_and_only_the_last_step_is_padded(
    limits: dict[str, Any], shuffle: bool
) -> None:
    for ranks, count in itertools.product((1, 2, 3, 7), (0, 1, 5, 31, 200, 211)):
        samplers = world(ranks, LENGTHS[:count], shuffle=shuffle, **limits)
        for epoch in (0, 3):
            for sampler in samplers:
                sampler.set_epoch(epoch)
            steps = steps_of(samplers)  # strict: equally many
            assert {len(sampler) for sampler in samplers} == {len(steps)}
            times = collections.Counter(map(tuple, itertools.chain.from_iterable(steps)))
            samples = sorted(itertools.chain.from_iterable(times))  # each batch once
            assert samples == list(range(count)), (ranks, count)
            assert sum(times.values()) - len(times) < ranks


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_drop_last_repeats_nothing_and_leaves_out_less_than_a_step(limits: dict[str, Any]) -> None:
    for ranks, count in itertools.product((1, 3), (1, 40, 200, 211)):
        samplers = world(ranks, LENGTHS[:count], drop_last=True, **limits)
        batches = list(itertools.chain.from_iterable(steps_of(samplers)))
        samples = list(itertools.chain.from_iterable(batches))
        assert len(samples) == len(set(samples))
        kept = world(ranks, LENGTHS[:count], **limits)[0]
        assert len(kept) - 1 <= len(samplers[0]) <= len(kept)
        if limits == {"batch_size": 16}:
            assert {len(batch) for batch in batches} <= {16}
            assert len(samples) == count // (16 * ranks) * 16 * ranks


def test_only_the_last_step_may_have_a_short_batch() -> None:
    for ranks, count in itertools.product((1, 2, 3), (15, 16, 31, 32, 95, 96, 97)):
        steps = steps_of(world(ranks, LENGTHS[:count], batch_size=16))
        assert {len(batch) for step in steps[:-1] for batch in step} <= {16}


def test_an_epoch_follows_from_seed_and_epoch_alone() -> None:
    sampler = LengthBatchSampler(LENGTHS, 16, seed=5)
    first = list(sampler)
    assert list(LengthBatchSampler(numpy.array(LENGTHS), 16, seed=5)) == first
    assert list(LengthBatchSampler(torch.tensor(LENGTHS), 16, seed=6)) != first
    iterator = iter(sampler)
    sampler.set_epoch(2)
    assert list(iterator) == first
    assert list(sampler) != first
    sampler.set_epoch(0)
    assert list(sampler) == first


def test_what_makes_no_batches_is_refused() -> None:
    with pytest.raises(ValueError, match="sample 1 has length 9, more than max_tokens=8: allow"):
        LengthBatchSampler([3, 9], max_tokens=8)
    with pytest.raises(ValueError, match="batch_size or max_tokens"):
        LengthBatchSampler([3])
    with pytest.raises(ValueError, match="batch_size should be at least 1, but got 0"):
        LengthBatchSampler([3], 0)
    with pytest.raises(ValueError, match="sample 0 has length -3"):
        LengthBatchSampler([-3], 1)
    with pytest.raises(ValueError, match="rank should be 0 to 1, but got 2"):
        LengthBatchSampler([3], 1, num_replicas=2, rank=2)


def test_ranks_come_from_the_launcher_and_one_is_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = LengthBatchSampler(LENGTHS, 16)
    assert (alone.num_replicas, alone.rank) == (1, 0)
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ValueError, match="only RANK set"):
        LengthBatchSampler(LENGTHS, 16)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert list(LengthBatchSampler(LENGTHS, 16)) == list(world(2, batch_size=16)[1])


def test_an_order_that_repeats_is_told_once() -> None:
    sampler = LengthBatchSampler(LENGTHS, 16)
    list(sampler)
    with pytest.warns(millhead.Advice, match="same order as the one before .LengthBatchSampler"):
        list(sampler)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(sampler)


# --- in a loader --------------------------------------------------------------------------------


class Texts(torch.utils.data.Dataset[Any]):
    """Ragged samples: the number of the sample, as often as it is long."""

    def __len__(self) -> int:
        return len(LENGTHS)

    def __getitem__(self, index: int) -> Any:
        return torch.full((LENGTHS[index],), index), index


def run(loader: Any) -> list[list[int]]:
    """The samples of each batch, after a look at their padding."""
    seen = []
    for (tokens, numbers), (lengths,) in loader:
        assert lengths.tolist() == [LENGTHS[number] for number in numbers.tolist()]
        assert tokens.shape == (len(numbers), lengths.max())
        assert (tokens != -1).sum(1).tolist() == lengths.tolist()
        seen.append(numbers.tolist())
    return seen


def loader_of(sampler: Any, kind: Any = DataLoader, **options: Any) -> Any:
    collate = functools.partial(pad_collate, value=-1)
    return kind(Texts(), batch_sampler=sampler, collate_fn=collate, **options)


@pytest.mark.parametrize("workers", [0, 2])
def test_both_loaders_and_an_installed_one_give_the_samplers_batches(workers: int) -> None:
    options: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
    for kind, installed in (
        (DataLoader, False),
        (torch.utils.data.DataLoader, False),
        (torch.utils.data.DataLoader, True),
    ):
        if installed:
            millhead.torch.install()
        try:
            sampler = LengthBatchSampler(LENGTHS, max_tokens=8000)
            loader = loader_of(sampler, kind, **options)
            for epoch in (0, 1):
                sampler.set_epoch(epoch)
                expected = LengthBatchSampler(LENGTHS, max_tokens=8000)
                expected.set_epoch(epoch)
                assert len(loader) == len(expected)
                assert run(loader) == list(expected)
        finally:
            if installed:
                millhead.torch.uninstall()


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_goes_on_in_the_middle_of_an_epoch(limits: dict[str, Any], workers: int) -> None:
    def make(epoch: int = 4, workers: int = workers) -> Any:
        sampler = world(2, LENGTHS[:600], **limits)[1]
        if epoch:
            sampler.set_epoch(epoch)
        return loader_of(sampler, num_workers=workers)

    whole = run(make())
    loader = make()
    seen, iterator = [], iter(loader)
    for _ in range(7):
        (_, numbers), _ = next(iterator)
        seen.append(numbers.tolist())
    state = json.loads(json.dumps(loader.state_dict()))
    del iterator
    assert state["_index_sampler_state"]["step"] == 7
    # The state knows the epoch where nobody says it, and nothing of workers
    for loader in (make(), make(epoch=0), make(workers=2 - workers)):
        loader.load_state_dict(state)
        assert seen + run(loader) == whole
        assert run(loader) == whole


def test_states_are_of_one_epoch_and_of_samplers_alike() -> None:
    (sampler,) = world(1, batch_size=16)
    batches = list(sampler)
    state = sampler.state_at(3 * 16)
    again = LengthBatchSampler(LENGTHS, 16)
    again.load_state_dict(state)
    again.set_epoch(1)
    assert len(list(again)) == len(batches)  # another epoch begins at its beginning
    again.load_state_dict(state)
    assert list(pickle.loads(pickle.dumps(again))) == batches[3:]
    assert list(copy.copy(again)) == batches[3:]
    again.load_state_dict(sampler.state_at(len(LENGTHS)))
    assert list(again) == []
    with pytest.raises(ValueError, match="no batch of this rank ends after 17 samples"):
        sampler.state_at(17)
    for other in (world(2, batch_size=16)[0], LengthBatchSampler(LENGTHS[1:], 16)):
        with pytest.raises(ValueError, match="what remains of its epoch is not known here"):
            other.load_state_dict(state)
    with pytest.raises(ValueError, match="not a state of this sampler"):
        sampler.load_state_dict({})


def test_random_numbers_by_position_are_the_ranks_own_and_resume() -> None:
    class Noise(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 200

        def __getitem__(self, index: int) -> Any:
            return torch.rand(()).item()

    def make(rank: int) -> Any:
        sampler = world(2, LENGTHS[:200], max_tokens=3000)[rank]
        generator = torch.Generator().manual_seed(3)
        return DataLoader(
            Noise(), batch_sampler=sampler, dispatch="sample", num_workers=1, generator=generator
        )

    drawn = [[number for batch in make(rank) for number in batch.tolist()] for rank in (0, 1)]
    assert len(set(drawn[0] + drawn[1])) == len(drawn[0]) + len(drawn[1])
    loader = make(1)
    iterator = iter(loader)
    first = [number for _ in range(4) for number in next(iterator).tolist()]
    state = loader.state_dict()
    del iterator
    loader = make(1)
    loader.load_state_dict(state)
    assert first + [number for batch in loader for number in batch.tolist()] == drawn[1]


# --- padding ------------------------------------------------------------------------------------


Pair = collections.namedtuple("Pair", ["source", "target"])


def test_padding_goes_into_what_default_collate_goes_into() -> None:
    samples = [
        {"ids": numpy.arange(n), "pair": Pair(torch.ones(n, 2), 1.5), "name": str(n)}
        for n in (2, 0, 3)
    ]
    batch, lengths = pad_collate(samples, value=7)
    assert batch["ids"].tolist() == [[0, 1, 7], [7, 7, 7], [0, 1, 2]]
    assert type(batch["pair"]) is Pair
    assert batch["pair"].source.shape == (3, 3, 2)
    assert batch["pair"].source[0, 2].tolist() == [7, 7]
    assert batch["pair"].target.tolist() == [1.5] * 3
    assert batch["name"] == ["2", "0", "3"]
    assert lengths.keys() == {"ids", "pair"}
    assert lengths["ids"].tolist() == [2, 0, 3]
    assert [known.tolist() for known in lengths["pair"]] == [[2, 0, 3]]
    values, known = pad_collate([torch.ones(1), torch.ones(2)])
    assert (values.tolist(), known.tolist()) == ([[1, 0], [1, 1]], [1, 2])


def test_what_cannot_be_padded_is_refused() -> None:
    with pytest.raises(ValueError, match="differ beyond their first dimension"):
        pad_collate([torch.ones(2, 3), torch.ones(2, 4)])
    with pytest.raises(ValueError, match="zip"):
        pad_collate([(1, 2), (1,)])


def test_padded_batches_come_from_workers_through_slots() -> None:
    loader = loader_of(LengthBatchSampler(LENGTHS, 16), num_workers=1)
    assert len(run(loader)) == len(loader)
    assert loader.stats()["path"] == "slot"
