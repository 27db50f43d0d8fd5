"""Shards and streams: who reads what, equally many steps, mixing, epochs, resuming."""

from __future__ import annotations

import collections
import itertools
import json
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import millhead
import pytest
import torch
import torch.utils.data
from millhead.torch import (
    DataLoader,
    IterableDataset,
    ShardedIterable,
    ShuffleBuffer,
    split_by_rank_and_worker,
)

Torchs = torch.utils.data.DataLoader

#: Shards of different lengths: where each begins, and where it ends.
ENDS = list(itertools.accumulate([30, 7, 51, 12, 40, 1, 25, 33, 18, 20]))
SHARDS = list(itertools.pairwise([0, *ENDS]))
TOTAL = ENDS[-1]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)


def numbers(shard: tuple[int, int]) -> Iterator[int]:
    """A shard's samples, as a file's would come: one after the other."""
    yield from range(*shard)


def shards(kind: Any = ShardedIterable, count: int = len(SHARDS), **options: Any) -> Any:
    return kind(SHARDS[:count], numbers, **options)


def drawn(loader: Iterable[Any]) -> list[int]:
    return [number for batch in loader for number in batch.tolist()]


# --- who reads what -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:millhead.*some read a shard together")
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 5, 10])
def test_every_sample_is_one_readers_and_no_reader_is_idle(
    count: int, ranks: int, workers: int
) -> None:
    seen = []
    for rank in range(ranks):
        data = shards(Named, count, shuffle=True, num_replicas=ranks, rank=rank)
        found = list(DataLoader(data, batch_size=None, num_workers=workers))
        seen += [number for number, _ in found]
        assert {worker for _, worker in found} == set(range(max(workers, 1)))
    assert sorted(seen) == list(range(ENDS[count - 1]))


class Named(ShardedIterable[Any, Any]):
    """With the worker that read it."""

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        for number in super().__iter__():
            yield number, 0 if info is None else info.id


def test_ranks_come_first_then_workers() -> None:
    data = ShardedIterable(range(12), lambda shard: [shard], num_replicas=3, rank=1)
    assert list(data) == [1, 4, 7, 10]
    batches = [batch.tolist() for batch in DataLoader(data, batch_size=2, num_workers=2)]
    assert batches == [[1, 7], [4, 10]]


def test_too_few_shards_are_told_of_once() -> None:
    data = shards(count=2, num_replicas=3, rank=0)
    with pytest.warns(millhead.Advice, match="2 shards for 3 readers, ranks x workers"):
        assert list(data) == list(range(0, 30, 2))  # every second of the first, as rank 2
    assert list(shards(count=2, num_replicas=3, rank=1)) == list(range(*SHARDS[1]))


class Split(IterableDataset[str]):
    def __iter__(self) -> Iterator[str]:
        return iter(split_by_rank_and_worker("abcdefg", 2, 1))


def test_shards_are_split_for_datasets_of_ones_own() -> None:
    assert split_by_rank_and_worker("abcdefg") == list("abcdefg")
    assert list(DataLoader(Split(), batch_size=None)) == ["b", "d", "f"]
    assert list(DataLoader(Split(), batch_size=None, num_workers=2)) == ["b", "d", "f"]
    with pytest.raises(
        ValueError, match="7 shards for 2 ranks with 4 workers each: write at least"
    ):
        list(DataLoader(Split(), batch_size=None, num_workers=4))


def test_what_is_no_sharded_data_is_refused() -> None:
    with pytest.raises(ValueError, match="there are no shards: are their names right"):
        ShardedIterable([], numbers)
    with pytest.raises(ValueError, match="rank should be 0 to 1, but got 2"):
        shards(num_replicas=2, rank=2)
    with pytest.raises(ValueError, match="samples_per_rank should be at least 0"):
        shards(samples_per_rank=-1)
    with pytest.raises(ValueError, match="bufsize should be at least 1, but got 0"):
        ShuffleBuffer([], bufsize=0)
    with pytest.raises(ValueError, match="epoch should be at least 0, but got -1"):
        shards().set_epoch(-1)


# --- equally many steps -------------------------------------------------------------------------


@pytest.mark.parametrize("resampled", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_make_equally_many_steps(workers: int, resampled: bool) -> None:
    uneven = {len(list(shards(num_replicas=3, rank=rank))) for rank in range(3)}
    assert len(uneven) == 3  # what would leave ranks waiting
    for wanted in (TOTAL // 3, 2 * TOTAL + 1, 0):
        steps = []
        for rank in range(3):
            data = shards(
                num_replicas=3,
                rank=rank,
                samples_per_rank=wanted,
                resampled=resampled,
                shuffle=True,
            )
            batches = list(DataLoader(data, batch_size=8, num_workers=workers))
            assert sum(map(len, batches)) == len(data) == wanted
            steps.append(len(batches))
        assert len(set(steps)) == 1


def test_a_rank_that_has_fewer_samples_begins_again() -> None:
    data = shards(num_replicas=len(SHARDS), rank=1, samples_per_rank=16)
    assert list(data) == [*range(30, 37), *range(30, 37), 30, 31]


def test_shards_without_samples_are_an_error_where_samples_are_wanted() -> None:
    data = ShardedIterable([1, 2], lambda shard: [], samples_per_rank=3)
    with pytest.raises(RuntimeError, match="samples_per_rank=3 cannot be had"):
        list(data)
    with pytest.raises(TypeError, match="not known without samples_per_rank"):
        len(shards())


# --- order --------------------------------------------------------------------------------------


def test_shards_are_in_another_order_in_every_epoch_alike_on_all_ranks() -> None:
    def order(epoch: int, seed: int = 0, **options: Any) -> list[int]:
        data = ShardedIterable(range(40), lambda shard: [shard], shuffle=True, seed=seed, **options)
        data.set_epoch(epoch)
        return list(data)

    orders = [order(0), order(1), order(0, seed=1), list(range(40))]
    assert all(sorted(one) == list(range(40)) for one in orders)
    assert all(one != other for one, other in itertools.combinations(orders, 2))
    dealt = [order(1, num_replicas=2, rank=rank) for rank in (0, 1)]
    assert [number for pair in zip(*dealt, strict=True) for number in pair] == orders[1]


def test_resampled_shards_come_as_often_as_chance_has_it() -> None:
    def draws(**options: Any) -> list[int]:
        data = ShardedIterable(
            range(20), lambda shard: [shard], resampled=True, samples_per_rank=4000, **options
        )
        data.set_epoch(3)
        return list(data)

    first = draws()
    times = collections.Counter(first)
    # 200 each, give or take 14: six times that
    assert all(200 - 84 < times[shard] < 200 + 84 for shard in range(20))
    squares = sum((times[shard] - 200) ** 2 / 200 for shard in range(20))
    assert 4 < squares < 55  # chi-square with 19 degrees of freedom; 0 would be a shuffle's
    again = sum(one == other for one, other in itertools.pairwise(first))
    assert 100 < again < 300  # one in 20
    assert draws() == first
    assert draws(num_replicas=2, rank=1) != first
    endless = ShardedIterable(range(20), lambda shard: [shard], resampled=True)
    endless.set_epoch(3)
    assert list(itertools.islice(endless, 50)) == first[:50]


def test_a_buffer_gives_every_sample_once_and_none_too_early() -> None:
    order = list(ShuffleBuffer(range(5000), bufsize=1000, initial=100))
    assert sorted(order) == list(range(5000))
    read = [min(5000, 100 + 2 * place, 1000 + place) for place in range(5000)]
    assert all(index <= most for index, most in zip(order, read, strict=True))
    assert order != sorted(order)
    assert sorted(ShuffleBuffer(range(7), bufsize=1000, initial=100)) == list(range(7))
    assert list(ShuffleBuffer(range(7), bufsize=1)) == list(range(7))
    assert list(ShuffleBuffer([])) == []


def test_samples_wait_in_the_buffer_as_long_as_chance_has_it() -> None:
    """Each draw takes one of 100: a sample waits 99 draws in the mean, with a long tail."""
    order = list(ShuffleBuffer(range(20_000), bufsize=100, initial=100))
    waits = [place - (index - 99) for place, index in enumerate(order) if 99 < index < 19_000]
    assert 90 < sum(waits) / len(waits) < 110
    longer = sum(wait > 200 for wait in waits) / len(waits)
    assert 0.11 < longer < 0.16  # 0.99 to the 200th: 0.134
    ahead = sum(one > other for one, other in itertools.pairwise(order))
    assert 0.45 < ahead / len(order) < 0.55


def test_a_larger_buffer_moves_samples_further() -> None:
    moved = []
    for size in (10, 100, 1000):
        order = list(ShuffleBuffer(range(10_000), bufsize=size, initial=size))
        moved.append(sum(abs(index - place) for place, index in enumerate(order)) / len(order))
    assert moved[0] * 4 < moved[1] < moved[2] / 4


def test_a_buffers_order_follows_from_seed_epoch_rank_and_worker() -> None:
    def order(seed: int = 0, epoch: int = 0, rank: int = 0) -> list[int]:
        data = ShuffleBuffer(range(200), 50, 10, seed=seed, num_replicas=2, rank=rank)
        data.set_epoch(epoch)
        return list(data)

    orders = [order(), order(seed=1), order(epoch=1), order(rank=1)]
    assert all(one != other for one, other in itertools.combinations(orders, 2))
    assert order() == orders[0]
    data = ShuffleBuffer(range(200), 50, 10, num_replicas=2, rank=0)
    batches = [batch.tolist() for batch in DataLoader(data, batch_size=200, num_workers=2)]
    assert batches[0] == orders[0]
    assert batches[1] != orders[0]
    assert len(data) == 200


# --- epochs in workers --------------------------------------------------------------------------


def mixed(**options: Any) -> ShuffleBuffer[int]:
    return ShuffleBuffer(shards(shuffle=True, **options), bufsize=40, initial=10)


@pytest.mark.parametrize(
    ("kind", "context"),
    [(DataLoader, "fork"), (DataLoader, "spawn"), (Torchs, "fork"), (None, "fork")],
)
def test_workers_that_persist_learn_the_epoch(kind: Any, context: str) -> None:
    expected = []
    for epoch in (0, 5, 1):
        data = mixed()
        data.set_epoch(epoch)
        expected.append(drawn(Torchs(data, batch_size=8, num_workers=2)))
    assert all(sorted(epoch) == list(range(TOTAL)) for epoch in expected)
    if kind is None:
        millhead.torch.install()
    try:
        data = mixed()
        loader = (kind or Torchs)(
            data,
            batch_size=8,
            num_workers=2,
            persistent_workers=True,
            multiprocessing_context=context,
        )
        found = []
        for epoch in (0, 5, 1):
            data.set_epoch(epoch)
            found.append(drawn(loader))
        assert found == expected
        loader._iterator._shutdown_workers()
        del loader
    finally:
        if kind is None:
            millhead.torch.uninstall()


# --- resuming -----------------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "options",
    [{}, {"resampled": True, "samples_per_rank": 90}, {"samples_per_rank": 300}],
    ids=["once", "resampled", "equal"],
)
def test_a_loader_goes_on_in_the_middle_of_a_shard(
    options: dict[str, Any], workers: int, persistent: bool
) -> None:
    opened: list[Any] = []

    def make(epoch: int = 4) -> tuple[Any, Any]:
        data = shards(shuffle=True, seed=2, **options)
        if workers == 0:
            data.open = lambda shard: (opened.append(shard), numbers(shard))[1]
        data.set_epoch(epoch)
        keep = persistent and workers > 0
        return data, DataLoader(data, batch_size=8, num_workers=workers, persistent_workers=keep)

    _, loader = make()
    whole = drawn(loader)
    data, loader = make(5)
    after = drawn(loader)
    for steps in (1, 5, len(whole) // 8 - 1):
        _, loader = make()
        iterator = iter(loader)
        seen = drawn(itertools.islice(iterator, steps))
        state = json.loads(json.dumps(loader.state_dict()))
        getattr(iterator, "_shutdown_workers", lambda: None)()
        data, loader = make()
        opened.clear()
        loader.load_state_dict(state)
        assert seen + drawn(loader) == whole
        if workers == 0 and not options:  # what was done with is not opened again
            wanted = {shard for shard in SHARDS for n in whole[len(seen) :] if n in range(*shard)}
            assert wanted <= set(opened)
            assert len(opened) <= len(wanted) + 1
        data.set_epoch(5)
        assert drawn(loader) == after


def test_a_loader_goes_on_after_an_epochs_end() -> None:
    for persistent in (False, True):
        data = shards(shuffle=True)
        options: dict[str, Any] = {"num_workers": 2, "persistent_workers": persistent}
        loader = DataLoader(data, batch_size=8, **options)
        first = drawn(loader)
        state = loader.state_dict()
        data.set_epoch(1)
        second = drawn(loader)
        assert first != second
        data = shards(shuffle=True)
        loader = DataLoader(data, batch_size=8, **options)
        data.set_epoch(1)
        loader.load_state_dict(state)
        assert drawn(loader) == second


@pytest.mark.filterwarnings("ignore:millhead.*draw")
def test_a_mixed_stream_is_resumed_by_drawing_it_again() -> None:
    def make() -> Any:
        data = mixed()
        data.set_epoch(2)
        return DataLoader(data, batch_size=8, num_workers=2)

    whole = drawn(make())
    loader = make()
    iterator = iter(loader)
    seen = drawn(itertools.islice(iterator, 6))
    state = loader.state_dict()
    del iterator
    loader = make()
    loader.load_state_dict(state)
    assert seen + drawn(loader) == whole


def test_a_copy_goes_on_and_other_shards_are_refused() -> None:
    data = shards()
    iterator = iter(data)
    assert list(itertools.islice(iterator, 33)) == list(range(33))
    state = data.state_dict()
    other = pickle.loads(pickle.dumps(shards()))
    other.load_state_dict(state)
    assert list(other) == list(range(33, TOTAL))
    assert list(other) == list(range(TOTAL))
    other.load_state_dict({**state, "epoch": 7})
    with pytest.raises(ValueError, match=r"the state is of epoch 7 .*: call set_epoch\(7\) before"):
        list(other)
    other.set_epoch(7)
    other.load_state_dict({**state, "epoch": 7})
    assert list(other) == list(range(33, TOTAL))
    other.load_state_dict(state)  # of another epoch than the one that was chosen
    assert list(other) == list(range(TOTAL))
    with pytest.raises(ValueError, match="the state has shards=10, this dataset 9"):
        shards(count=9).load_state_dict(state)
    with pytest.raises(ValueError, match="the state has seed=0, this dataset 1"):
        shards(seed=1).load_state_dict(state)
