"""Iterable datasets: who reads what, where they end, what they raise, what is left of them."""

from __future__ import annotations

import gc
import itertools
import math
import os
import random
import re
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import procs
from helpers.compare import describe, describe_error, seed_everything
from helpers.parity_data import GoesOn, SaysItsLength, Stream, Unopenable
from millhead.torch import DataLoader
from torch.utils.data import ChainDataset, IterableDataset, get_worker_info

Torchs = torch.utils.data.DataLoader


def _values(loader: Any) -> list[Any]:
    return [batch.tolist() for batch in loader]


def _outcomes(loader: Any, most: int = 60) -> list[Any]:
    """Every batch, or the exception in its place."""
    iterator = iter(loader)
    seen: list[Any] = []
    try:
        while len(seen) < most:
            try:
                seen.append(next(iterator))
            except StopIteration:
                break
            except Exception as error:  # noqa: BLE001 - an outcome to look at
                seen.append(error)
    finally:
        getattr(iterator, "_shutdown_workers", lambda: None)()
    return seen


def _as_torch(dataset: Any, most: int = 60, **arguments: Any) -> list[Any]:
    """The outcomes, after they were found to be torch's."""

    def show(outcome: Any) -> Any:
        return describe_error(outcome) if isinstance(outcome, Exception) else describe(outcome)

    seed_everything(2)
    expected = _outcomes(Torchs(dataset, **arguments), most)
    seed_everything(2)
    actual = _outcomes(DataLoader(dataset, **arguments), most)
    assert [show(outcome) for outcome in actual] == [show(outcome) for outcome in expected]
    return actual


# ---- who reads what ----------------------------------------------------------------------------------


class Numbers(IterableDataset[int]):
    """All numbers, in every process."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length))


def test_without_workers_a_stream_is_read_once() -> None:
    assert _values(DataLoader(Numbers(5), batch_size=2)) == [[0, 1], [2, 3], [4]]


def test_every_worker_reads_a_replica_of_its_own() -> None:
    values = _values(DataLoader(Numbers(5), batch_size=2, num_workers=2))
    assert values == [[0, 1], [0, 1], [2, 3], [2, 3], [4], [4]]


class Documented(IterableDataset[int]):
    """The example of torch's documentation, word for word where it matters."""

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end

    def __iter__(self) -> Iterator[int]:
        worker_info = get_worker_info()
        if worker_info is None:
            iter_start, iter_end = self.start, self.end
        else:
            per_worker = math.ceil((self.end - self.start) / float(worker_info.num_workers))
            iter_start = self.start + worker_info.id * per_worker
            iter_end = min(iter_start + per_worker, self.end)
        return iter(range(iter_start, iter_end))


@pytest.mark.parametrize(
    ("workers", "expected"), [(0, [3, 4, 5, 6]), (2, [3, 5, 4, 6]), (6, [3, 4, 5, 6])]
)
def test_the_documented_example_of_sharding_gives_what_is_documented(
    workers: int, expected: list[int]
) -> None:
    loader = DataLoader(Documented(start=3, end=7), num_workers=workers)
    assert _values(loader) == [[number] for number in expected]


def init_shards(worker: int) -> None:
    """The documentation's other example: the worker's copy of the dataset is configured."""
    info = get_worker_info()
    assert info is not None
    dataset: Any = info.dataset
    size = math.ceil(dataset.length / info.num_workers)
    dataset.numbers = range(worker * size, min((worker + 1) * size, dataset.length))


class Configured(Numbers):
    numbers: Any = None

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length) if self.numbers is None else self.numbers)


def test_worker_init_may_shard_the_workers_copy() -> None:
    dataset = Configured(6)
    assert _values(DataLoader(dataset, num_workers=2)) == [
        [n] for n in (0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5)
    ]
    loader = DataLoader(dataset, num_workers=2, worker_init_fn=init_shards)
    assert _values(loader) == [[n] for n in (0, 3, 1, 4, 2, 5)]
    assert dataset.numbers is None


class Who(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        for _ in range(3):
            yield (-1, 0) if info is None else (info.id, os.getpid(), info.dataset is self)


def test_get_worker_info_tells_a_stream_where_it_is() -> None:
    rows = [tuple(int(c) for c in batch) for batch in DataLoader(Who(), num_workers=2)]
    assert [row[0] for row in rows] == [0, 1] * 3
    assert all(row[2] == 1 for row in rows)
    assert len({row[1] for row in rows}) == 2
    assert [[int(c) for c in batch] for batch in DataLoader(Who())] == [[-1, 0]] * 3


class Both(Numbers):
    def __getitem__(self, index: int) -> int:
        raise AssertionError("a stream is not indexed")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_that_could_be_indexed_is_read_in_turn(workers: int) -> None:
    loader = DataLoader(Both(4), batch_size=3, num_workers=workers)
    assert _values(loader) == [[0, 1, 2], [3]]


# ---- where streams end -------------------------------------------------------------------------------


class Uneven(IterableDataset[int]):
    """Worker w yields ``lengths[w]`` numbers, from 100 * w on."""

    def __init__(self, *lengths: int) -> None:
        self.lengths = lengths

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        worker = 0 if info is None else info.id
        return iter(range(100 * worker, 100 * worker + self.lengths[worker]))


@pytest.mark.parametrize("prefetch", [1, 2, 5])
def test_workers_that_have_ended_are_passed_over(prefetch: int) -> None:
    loader = DataLoader(Uneven(1, 4, 2), num_workers=3, prefetch_factor=prefetch)
    assert _values(loader) == [[0], [100], [200], [101], [201], [102], [103]]


@pytest.mark.parametrize(
    ("lengths", "drop_last"),
    [
        ((0, 0), False),
        ((0, 7), True),
        ((7, 0), False),
        ((1, 9), True),
        ((9, 1), False),
        ((4, 4), False),
        ((0, 0, 9), False),
        ((1, 30, 3), True),
        ((30, 1, 3), False),
    ],
    ids=str,
)
def test_uneven_workers_give_torchs_batches_in_torchs_order(
    lengths: tuple[int, ...], drop_last: bool
) -> None:
    seen = _as_torch(Uneven(*lengths), batch_size=2, num_workers=len(lengths), drop_last=drop_last)
    count = [length // 2 if drop_last else math.ceil(length / 2) for length in lengths]
    assert len(seen) == sum(count)


def test_drop_last_drops_in_every_worker() -> None:
    dataset = Uneven(3, 4, 1)
    arguments: dict[str, Any] = {"batch_size": 2, "num_workers": 3}
    kept = _values(DataLoader(dataset, drop_last=True, **arguments))
    assert kept == [[0, 1], [100, 101], [102, 103]]
    assert _values(DataLoader(dataset, **arguments)) == [
        [0, 1],
        [100, 101],
        [200],
        [2],
        [102, 103],
    ]


class Revived(IterableDataset[int]):
    """Its iterator goes on after it has said that it is over."""

    def __iter__(self) -> Iterator[int]:
        return _Revived()


class _Revived(Iterator[int]):
    def __init__(self) -> None:
        self.count = 0

    def __next__(self) -> int:
        self.count += 1
        if self.count % 4 == 0:
            raise StopIteration
        return self.count


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_stream_that_has_ended_is_not_asked_again(workers: int) -> None:
    loader = DataLoader(Revived(), batch_size=2, num_workers=workers)
    iterator = iter(loader)
    times = max(workers, 1)
    assert _values(iterator) == [[1, 2]] * times + [[3]] * times
    assert next(iterator, None) is None


@pytest.mark.parametrize("workers", [0, 2])
def test_an_empty_stream_gives_no_batch(workers: int) -> None:
    assert list(DataLoader(Numbers(0), batch_size=3, num_workers=workers)) == []


@pytest.mark.parametrize("workers", [0, 1])
def test_stopiteration_out_of_collate_ends_the_stream_as_in_torch(workers: int) -> None:
    def collate(batch: list[int]) -> Any:
        if batch[0] == 4:
            raise StopIteration
        return torch.tensor(batch)

    seen = _as_torch(Numbers(10), batch_size=2, num_workers=workers, collate_fn=collate)
    assert [batch.tolist() for batch in seen] == [[0, 1], [2, 3]]


# ---- lengths -----------------------------------------------------------------------------------------


def _warnings(cls: Any, workers: int, epochs: int, ask: bool, **arguments: Any) -> list[str]:
    """What is said while every epoch is read, after the loader was asked for its length or not."""
    loader = cls(SaysItsLength("int", 5, "replica", draws=False), num_workers=workers, **arguments)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if ask:
            assert len(loader) == math.ceil(5 / arguments.get("batch_size", 1))
        for _ in range(epochs):
            assert sum(1 for _ in loader) >= len(range(0, 5, arguments.get("batch_size", 1)))
    return [str(item.message) for item in caught if "DataLoader will create" not in str(item)]


@pytest.mark.parametrize(("workers", "times"), [(0, 0), (1, 0), (2, 5), (3, 10)])
def test_a_stream_longer_than_it_said_is_told_in_torchs_words(workers: int, times: int) -> None:
    said = _warnings(DataLoader, workers, 1, ask=True)
    assert said == _warnings(Torchs, workers, 1, ask=True)
    assert len(said) == times
    assert all(text.startswith("Length of IterableDataset SaysItsLength(") for text in said)
    assert not times or "was reported to be 5(when accessing len(dataloader)), but 6" in said[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_is_told_when_nobody_asked_for_the_length(workers: int) -> None:
    assert _warnings(DataLoader, workers, 1, ask=False) == []


def test_a_length_is_compared_anew_in_every_persistent_epoch() -> None:
    arguments: dict[str, Any] = {"batch_size": 2, "persistent_workers": True}
    said = _warnings(DataLoader, 2, 2, ask=True, **arguments)
    assert said == _warnings(Torchs, 2, 2, ask=True, **arguments)
    assert len(said) == 2  # torch compares batches with samples


def test_a_stream_without_length_has_none() -> None:
    with pytest.raises(TypeError, match="has no len"):
        len(DataLoader(Numbers(3)))
    assert len(DataLoader(SaysItsLength("int", 7), batch_size=2)) == 4
    assert len(DataLoader(SaysItsLength("int", 7), batch_size=2, drop_last=True)) == 3


# ---- exceptions --------------------------------------------------------------------------------------


def _raising(at: int, name: str = "ValueError", cls: type[Stream] = Stream) -> Stream:
    return cls("int", 12, "replica", draws=False, errors=((at, name),))


def _text(error: BaseException) -> str:
    """Its text and its notes."""
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


@pytest.mark.parametrize("batch_size", [None, 1, 3])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at", [0, 4, 11])
def test_a_stream_that_raises_has_ended_as_in_torch(
    at: int, workers: int, batch_size: int | None
) -> None:
    seen = _as_torch(_raising(at), batch_size=batch_size, num_workers=workers)
    errors = [item for item in seen if isinstance(item, Exception)]
    assert [type(error) for error in errors] == [ValueError] * max(workers, 1)
    assert all(f"bad value at {at}" in str(error) for error in errors)
    assert len(seen) == max(workers, 1) * (at // (batch_size or 1) + 1)


@pytest.mark.parametrize("batch_size", [None, 1, 3])
@pytest.mark.parametrize("at", [0, 4, 7])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_item_that_raised_is_named(workers: int, at: int, batch_size: int | None) -> None:
    loader = DataLoader(_raising(at), batch_size=batch_size, num_workers=workers)
    errors = [item for item in _outcomes(loader) if isinstance(item, Exception)]
    assert len(errors) == max(workers, 1)
    for worker, error in enumerate(errors):
        if workers:
            assert f"millhead: item {at} of worker {worker}'s iterator" in str(error)
        else:
            assert any(f" {at}" in note for note in error.__notes__)
            assert str(error) == f"bad value at {at}"


def test_items_are_counted_in_each_worker() -> None:
    dataset = Stream("int", 12, "every nth", draws=False, errors=((9, "ValueError"),))
    seen = _outcomes(DataLoader(dataset, batch_size=2, num_workers=2))
    (error,) = (item for item in seen if isinstance(item, Exception))
    assert "Caught ValueError in DataLoader worker process 1." in str(error)
    assert "millhead: item 4 of worker 1's iterator" in str(error)


@pytest.mark.parametrize("batch_size", [None, 1, 3])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_iterator_that_can_go_on_after_an_exception_does(
    workers: int, batch_size: int | None
) -> None:
    seen = _as_torch(_raising(4, cls=GoesOn), batch_size=batch_size, num_workers=workers)
    errors = [place for place, item in enumerate(seen) if isinstance(item, Exception)]
    assert len(errors) == max(workers, 1)
    assert errors[-1] < len(seen) - 1
    last = seen[-1] if batch_size else torch.tensor([seen[-1]])
    assert last.flatten()[-1] == 11


@pytest.mark.parametrize("batch_size", [None, 1, 3])
@pytest.mark.parametrize("workers", [0, 2])
def test_items_are_counted_past_an_exception(workers: int, batch_size: int | None) -> None:
    errors = ((4, "ValueError"), (9, "ValueError"))
    dataset = GoesOn("int", 12, "replica", draws=False, errors=errors)
    loader = DataLoader(dataset, batch_size=batch_size, num_workers=workers)
    raised = [item for item in _outcomes(loader) if isinstance(item, Exception)]
    assert len(raised) == 2 * max(workers, 1)
    named = [re.search(r"millhead: (?:item|sample index) (\d+)", _text(error)) for error in raised]
    assert [int(name[1]) for name in named if name] == [4] * max(workers, 1) + [9] * max(workers, 1)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_stopiteration_raised_inside_a_generator_is_a_runtime_error(
    workers: int, batch_size: int | None
) -> None:
    dataset = _raising(4, "StopIteration")
    seen = _as_torch(dataset, batch_size=batch_size, num_workers=workers)
    assert isinstance(seen[-1], RuntimeError)
    assert "generator raised StopIteration" in str(seen[-1])
    assert len(seen) == 1 + 4 // (batch_size or 1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch_size", [None, 3])
def test_stopiteration_out_of_a_sample_ends_the_stream(
    workers: int, batch_size: int | None
) -> None:
    seen = _as_torch(
        _raising(4, "StopIteration", GoesOn), batch_size=batch_size, num_workers=workers
    )
    assert not any(isinstance(item, Exception) for item in seen)
    assert len(seen) == max(workers, 1) * (2 if batch_size else 4)


def test_without_workers_an_exception_in_iter_comes_from_iter() -> None:
    loader = DataLoader(Unopenable("int", 6))
    with pytest.raises(OSError, match="no such stream"):
        iter(loader)


def test_a_worker_whose_stream_cannot_be_opened_says_so_and_others_go_on() -> None:
    dataset = Unopenable("int", 8, "replica", draws=False)
    seen = _as_torch(dataset, most=8, batch_size=2, num_workers=2)
    assert [batch.tolist() for batch in seen[0::2]] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert isinstance(seen[1], OSError)
    assert "Caught FileNotFoundError in DataLoader worker process 1." in str(seen[1])
    assert "no such stream" in str(seen[1])
    assert all(isinstance(error, UnboundLocalError) for error in seen[3::2])


def test_a_failed_worker_init_comes_with_the_workers_first_batch() -> None:
    def fail(worker: int) -> None:
        if worker == 0:
            raise LookupError("no licence")

    seen = _as_torch(Numbers(4), most=4, num_workers=2, worker_init_fn=fail)
    assert isinstance(seen[0], LookupError)
    assert seen[1].tolist() == [0]


@pytest.mark.parametrize("workers", [0, 2])
def test_after_an_exception_a_new_epoch_begins_afresh(workers: int) -> None:
    loader = DataLoader(
        _raising(4), batch_size=2, num_workers=workers, persistent_workers=workers > 0
    )
    for _ in range(2):
        seen = []
        iterator = iter(loader)
        for _ in range(3 * max(workers, 1)):
            try:
                seen.append(next(iterator).tolist())
            except ValueError as error:
                seen.append(_text(error).splitlines()[0])
        assert seen[: -1 : max(workers, 1)][:2] == [[0, 1], [2, 3]]
        assert "ValueError" in seen[-1] or "bad value at 4" in seen[-1]
        assert next(iterator, None) is None
        del iterator
    del loader


# ---- streams without end -------------------------------------------------------------------------------


class Endless(IterableDataset[Any]):
    """Counts for ever, and leaves a file for each item when told where."""

    def __init__(self, folder: str = "") -> None:
        self.folder = folder

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker = 0 if info is None else info.id
        for number in itertools.count():
            if self.folder:
                Path(self.folder, f"{worker} {number}").touch()
            yield torch.full((200,), number)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_an_endless_stream_can_be_left_at_any_time(workers: int, persistent: bool) -> None:
    loader = DataLoader(
        Endless(), batch_size=4, num_workers=workers, persistent_workers=persistent and workers > 0
    )
    for epoch in range(3):
        for number, batch in enumerate(loader):
            assert batch[:, 0].tolist() == [4 * (number // max(workers, 1)) + n for n in range(4)]
            if number == 5 * epoch:
                break
    pids = procs.children()
    assert len(pids) == (workers if persistent else 0)
    del loader
    assert procs.wait_until(lambda: not any(procs.is_running(pid) for pid in pids))


@pytest.mark.parametrize(("workers", "prefetch"), [(1, 3), (2, 2)])
def test_an_endless_stream_is_read_no_further_than_workers_times_prefetch(
    workers: int, prefetch: int, tmp_path: Path
) -> None:
    loader = DataLoader(
        Endless(str(tmp_path)), batch_size=3, num_workers=workers, prefetch_factor=prefetch
    )
    iterator = iter(loader)
    for taken in (0, 1, 6):
        while int(iterator._num_yielded) < taken:
            next(iterator)
        wanted = 3 * (taken + workers * prefetch)
        assert procs.wait_until(lambda wanted=wanted: len(os.listdir(tmp_path)) >= wanted)
        time.sleep(0.2)
        assert len(os.listdir(tmp_path)) == wanted


class Closing(IterableDataset[int]):
    """Has something to put away when it is left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        try:
            yield from range(1000)
        finally:
            (self.folder / f"closed {0 if info is None else info.id}").touch()


def test_a_stream_left_early_is_closed_at_once(tmp_path: Path) -> None:
    gc.disable()
    try:
        for number, _ in enumerate(DataLoader(Closing(tmp_path), batch_size=2)):
            if number == 5:
                break
        assert os.listdir(tmp_path) == ["closed 0"]
    finally:
        gc.enable()
        gc.collect()


@pytest.mark.parametrize("cls", [Torchs, DataLoader])
def test_a_stream_left_early_is_closed_when_its_worker_ends(cls: Any, tmp_path: Path) -> None:
    for number, _ in enumerate(cls(Closing(tmp_path), num_workers=2)):
        if number == 5:
            break
    assert procs.wait_until(lambda: len(os.listdir(tmp_path)) == 2)


def test_a_stream_left_early_is_closed_when_the_next_epoch_begins(tmp_path: Path) -> None:
    loader = DataLoader(Closing(tmp_path), num_workers=2, persistent_workers=True)
    next(iter(loader))
    assert os.listdir(tmp_path) == []
    next(iter(loader))
    assert procs.wait_until(lambda: len(os.listdir(tmp_path)) == 2)


# ---- epochs, chains, single samples, start methods -----------------------------------------------------


def test_persistent_workers_read_the_whole_stream_in_every_epoch() -> None:
    loader = DataLoader(Who(), num_workers=2, persistent_workers=True)
    epochs = [[tuple(int(c) for c in batch) for batch in loader] for _ in range(3)]
    assert epochs[0] == epochs[1] == epochs[2]
    assert len(epochs[0]) == 6
    assert loader.stats()["epoch"] == 3


def test_a_persistent_epoch_left_early_is_followed_by_a_full_one() -> None:
    loader = DataLoader(Uneven(3, 9), num_workers=2, persistent_workers=True)
    whole = [[0], [100], [1], [101], [2], [102], [103], [104], [105], [106], [107], [108]]
    for take in (1, 12, 0, 8, 12):
        iterator = iter(loader)
        assert [next(iterator).tolist() for _ in range(take)] == whole[:take]
        if take == 12:
            assert next(iterator, None) is None


class RandomInTheLast(IterableDataset[float]):
    """Only the last worker has items: random numbers."""

    def __iter__(self) -> Iterator[float]:
        info = get_worker_info()
        assert info is not None
        return (random.random() for _ in range(40 if info.id == info.num_workers - 1 else 0))


@pytest.mark.parametrize(("workers", "prefetch"), [(3, 2), (2, 3), (3, 5)])
def test_the_last_worker_to_go_on_works_as_far_ahead_as_torchs(workers: int, prefetch: int) -> None:
    def epochs(cls: Any) -> list[list[float]]:
        seed_everything(5)
        loader = cls(
            RandomInTheLast(),
            num_workers=workers,
            prefetch_factor=prefetch,
            persistent_workers=True,
        )
        # An epoch goes on with the numbers the one left early had not come to.
        return [[next(batches).item() for _ in range(3)] for batches in map(iter, [loader] * 4)]

    assert epochs(DataLoader) == epochs(Torchs)


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("batch_size", [None, 3])
def test_a_chain_is_read_one_stream_after_the_other(workers: int, batch_size: int | None) -> None:
    chain = ChainDataset([Numbers(4), Documented(10, 15), Numbers(0), Numbers(2)])
    seen = _as_torch(chain, batch_size=batch_size, num_workers=workers)
    values = [torch.as_tensor(batch).flatten().tolist() for batch in seen]
    first = [number for batch in values[:: max(workers, 1)] for number in batch]
    wanted = {0: range(10, 15), 1: range(10, 15), 2: range(10, 13)}[workers]
    assert first[: 4 + len(wanted) + 2] == [0, 1, 2, 3, *wanted, 0, 1]


def test_a_chain_counts_its_items_through() -> None:
    chain = ChainDataset([Numbers(5), _raising(4)])
    seen = _outcomes(DataLoader(chain, batch_size=2, num_workers=1))
    assert "millhead: item 9 of worker 0's iterator" in str(seen[-1])


@pytest.mark.parametrize(
    "kind", ["int", "tensor", "array", "dict", "str", "nested", "numpy float64"]
)
@pytest.mark.parametrize("workers", [0, 2])
def test_without_batches_the_samples_come_as_torch_converts_them(kind: str, workers: int) -> None:
    seen = _as_torch(Stream(kind, 7), batch_size=None, num_workers=workers)
    assert len(seen) == 7


class Batches(IterableDataset[Any]):
    """Makes its own batches, of unequal sizes."""

    def __iter__(self) -> Iterator[Any]:
        for size in (3, 1, 4, 1, 5):
            yield {"x": torch.arange(size), "y": torch.ones(size, 2)}


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stream_may_make_its_own_batches(workers: int) -> None:
    seen = _as_torch(Batches(), batch_size=None, num_workers=workers)
    assert [len(batch["x"]) for batch in seen] == [3, 1, 4, 1, 5]


def test_spawned_workers_read_streams_too() -> None:
    dataset = Stream("dict", 13, "in blocks", errors=((11, "ValueError"),))
    seed_everything(5)
    forked = _outcomes(DataLoader(dataset, batch_size=2, num_workers=2))
    seed_everything(5)
    loader = DataLoader(dataset, batch_size=2, num_workers=2, multiprocessing_context="spawn")
    spawned = _outcomes(loader)
    assert len(spawned) == len(forked) == 7
    errors = [item for item in spawned if isinstance(item, Exception)]
    assert len(errors) == 1
    assert "millhead: item 4 of worker 1's iterator" in str(errors[0])
    for left, right in zip(spawned, forked, strict=True):
        if not isinstance(left, Exception):
            assert describe(left) == describe(right)


@pytest.mark.parametrize("workers", [0, 2])
def test_two_iterators_read_a_stream_each_from_its_start(workers: int) -> None:
    loader = DataLoader(Documented(0, 20), batch_size=2, num_workers=workers)
    for left, right in zip(iter(loader), iter(loader), strict=True):
        assert torch.equal(left, right)


class SlowInOneWorker(IterableDataset[int]):
    """The first worker's first item takes longer than all of the others'."""

    def __init__(self, flag: str) -> None:
        self.flag = flag

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        if info.id == 0:
            procs.wait_until(lambda: os.path.exists(self.flag), seconds=30)
        yield from range(100 * info.id, 100 * info.id + 10)


def test_out_of_order_a_slow_worker_does_not_hold_the_others(tmp_path: Path) -> None:
    flag = tmp_path / "go on"
    dataset = SlowInOneWorker(str(flag))
    iterator = iter(DataLoader(dataset, num_workers=2, in_order=False))
    first = [int(next(iterator)) for _ in range(10)]
    assert first == list(range(100, 110))
    flag.touch()
    assert [int(batch) for batch in iterator] == list(range(10))


class Dies(Numbers):
    def __iter__(self) -> Iterator[int]:
        for number in range(self.length):
            if number == 7:
                os.kill(os.getpid(), signal.SIGKILL)
            yield number


@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_killed_workers_item_is_named(batch_size: int | None) -> None:
    iterator = iter(DataLoader(Dies(20), batch_size=batch_size, num_workers=1))
    with pytest.raises(RuntimeError, match=r"exited unexpectedly.*SIGKILL.*item 7\b"):
        list(iterator)


# ---- stats -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_samples_batches_and_epochs_of_streams_are_counted_exactly(
    workers: int, drop_last: bool
) -> None:
    dataset = Uneven(7, 16, 1)
    loader = DataLoader(dataset, batch_size=3, num_workers=workers, drop_last=drop_last)
    seen = [batch for _ in range(2) for batch in _values(loader)]
    stats = loader.stats()
    assert stats["batches"] == len(seen)
    assert stats["samples"] == sum(len(batch) for batch in seen)
    lengths = dataset.lengths[: max(workers, 1)]
    assert stats["samples"] == 2 * sum(n // 3 * 3 if drop_last else n for n in lengths)
    assert stats["epoch"] == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_single_samples_of_streams_are_counted(workers: int) -> None:
    loader = DataLoader(Documented(0, 11), batch_size=None, num_workers=workers)
    assert len(list(loader)) == 11
    assert (loader.stats()["batches"], loader.stats()["samples"]) == (11, 11)


@pytest.mark.parametrize("workers", [0, 2])
def test_streams_with_exceptions_are_counted_without_the_lost_samples(workers: int) -> None:
    loader = DataLoader(_raising(7, cls=GoesOn), batch_size=2, num_workers=workers)
    times = max(workers, 1)
    seen = _outcomes(loader)
    batches = [item for item in seen if not isinstance(item, Exception)]
    stats = loader.stats()
    assert stats["errors"]["raised"] == times
    assert stats["batches"] == len(batches) == 5 * times
    assert stats["samples"] == sum(len(batch) for batch in batches) == 10 * times


@pytest.mark.parametrize(("workers", "general"), [(0, 0), (1, 2), (2, 4)])
def test_batches_of_streams_come_by_slot(workers: int, general: int) -> None:
    dataset = Stream("image and label", 60, draws=False)
    loader = DataLoader(dataset, batch_size=2, num_workers=workers)
    assert len(list(loader)) == 30
    stats = loader.stats()
    assert stats["path"] == "slot"
    assert stats["paths"]["general"] <= general + workers
    assert stats["paths"]["torch"] == 0


class SometimesSlow(Numbers):
    def __iter__(self) -> Iterator[int]:
        for number in range(self.length):
            time.sleep(0.3 if number == 5 else 0)
            yield number


@pytest.mark.parametrize("workers", [0, 1])
def test_the_slowest_item_is_known_by_its_number(workers: int) -> None:
    loader = DataLoader(SometimesSlow(12), batch_size=2, num_workers=workers)
    assert len(list(loader)) == 6
    slowest = loader.stats()["slowest"][0]
    assert slowest["index"] == 5
    assert slowest["ms"] >= 250
