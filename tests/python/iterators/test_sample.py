"""dispatch="sample": the same batches for any number of workers, and nobody waits for a stranger."""

from __future__ import annotations

import itertools
import math
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from helpers import parity_cases as pc
from helpers import procs
from helpers.compare import describe, rng_states, seed_everything
from helpers.parity_cases import Items
from millhead.torch import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
    get_worker_info,
)
from millhead.torch.workers.position_rng import Generators, batch_key, epoch_key, mix, sample_key
from torch.utils.data._utils.collate import default_collate_fn_map

#: Longer than the 2 ms that a run may take: every sample is a run of its own.
ALONE_S = 0.003


class Thing:
    """What torch cannot collate by itself."""


class View(NamedTuple):
    crop: Any
    label: Any


class Augmented:
    """Nested samples of many types that draw from all three global generators."""

    def __init__(self, length: int = 22, seconds: float = 0.0) -> None:
        self.length, self.seconds = length, seconds

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return {
            "index": index,
            "view": View(torch.rand(3, 2), [index % 3 == 0, random.random()]),
            "noise": np.random.rand(2).astype(np.float32),
            "gauss": (np.random.randn(), random.gauss(0, 1), torch.randn(())),
            "whole": np.arange(index, index + 3, dtype=np.int16),
            "scalar": np.float32(np.random.rand()),
            "half": torch.rand(2).to(torch.bfloat16),
        }


class Sleepy(Items):
    """Items of which each takes long enough to be a run of its own."""

    def __getitem__(self, index: Any) -> Any:
        time.sleep(ALONE_S)
        return super().__getitem__(index)


class Counting:
    """Counts in shared memory how often each sample is fetched."""

    def __init__(self, make: Any, length: int = 24, seconds: float = 0.0) -> None:
        self.make, self.length, self.seconds = make, length, seconds
        self.fetched = torch.zeros(length, dtype=torch.int64).share_memory_()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        self.fetched[index] += 1
        time.sleep(self.seconds)
        return self.make(index)


def _loader(dataset: Any, **options: Any) -> Any:
    options = {"batch_size": 4, "dispatch": "sample", **options}
    return DataLoader(dataset, **options)


def _outcomes(loader: Any, most: int = 200) -> list[Any]:
    """Every batch, described, or the class of the exception in its place."""
    iterator: Iterator[Any] = iter(loader)
    seen: list[Any] = []
    while len(seen) < most:
        try:
            seen.append(describe(next(iterator)))
        except StopIteration:
            return seen
        except Exception as error:  # noqa: BLE001 - an outcome to look at
            seen.append(type(error).__name__)
    raise AssertionError("no end")


def _collated(dataset: Any, size: int) -> list[Any]:
    """What default_collate makes of all samples in order, without any loader."""
    seen: list[Any] = []
    for first in range(0, len(dataset), size):
        try:
            samples = [dataset[i] for i in range(first, min(first + size, len(dataset)))]
            seen.append(describe(default_collate(samples)))
        except Exception as error:  # noqa: BLE001 - an outcome to look at
            seen.append(type(error).__name__)
    return seen


# ---- the same for any number of workers ----------------------------------------------------------


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("seconds", [0.0, ALONE_S])
def test_random_augmentation_is_the_same_for_any_number_of_workers(
    shuffle: bool, seconds: float
) -> None:
    runs, after = {}, {}
    for workers in range(5):
        seed_everything(11)
        loader = _loader(Augmented(seconds=seconds), num_workers=workers, shuffle=shuffle)
        runs[workers] = [_outcomes(loader) for _ in range(2)]
        after[workers] = rng_states()
    assert len(runs[0][0]) == 6
    assert runs[0][0] != runs[0][1]
    for workers in range(1, 5):
        assert runs[workers] == runs[0], workers
        assert after[workers] == after[0], workers


@pytest.mark.parametrize(
    "options",
    [
        {"persistent_workers": True},
        {"multiprocessing_context": "spawn"},
        {"multiprocessing_context": "forkserver", "persistent_workers": True},
        {"prefetch_factor": 1},
        {"prefetch_factor": 7},
        {"worker_init_fn": pc.init_draws},
        {"sampler": pc.Eager(22)},
    ],
    ids=str,
)
def test_nor_does_it_depend_on_how_workers_are_run(options: dict[str, Any]) -> None:
    own = {key: value for key, value in options.items() if key == "sampler"}
    runs = []
    for given in (own, {"num_workers": 2, **options}):
        seed_everything(12)
        loader = _loader(Augmented(), **given)
        runs.append([_outcomes(loader) for _ in range(3)])
    assert runs[0] == runs[1]


CHANGED_BY_PICKLING = ("computing namedtuple",)


class Assorted:
    """Eight samples of each kind, one kind after the other."""

    kinds = (*pc.PLAIN, *pc.ODD, "conj tensor", "neg tensor", "contains itself")

    def __len__(self) -> int:
        return 8 * len(self.kinds)

    def __getitem__(self, index: int) -> Any:
        kind = self.kinds[index // 8]
        return None if kind in CHANGED_BY_PICKLING else pc.SAMPLES[kind](index % 8)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_any_sample_gives_what_default_collate_gives(workers: int) -> None:
    seen = _outcomes(_loader(Assorted(), num_workers=workers), most=1000)
    for number, expected in enumerate(_collated(Assorted(), 4)):
        assert seen[number] == expected, Assorted.kinds[number // 2]


@pytest.mark.parametrize("kind", pc.PLAIN)
def test_plain_samples_take_slots_and_give_the_same(kind: str) -> None:
    loader = _loader(Items(kind, 24), num_workers=1, prefetch_factor=1)
    assert _outcomes(loader) == _collated(Items(kind, 24), 4)
    assert loader.stats()["paths"]["slot"] == (0 if "zero-size" in kind else 5)


@pytest.mark.parametrize(
    "kind",
    [
        "tensor",
        "str in dict",
        "int then float",
        "bool then int",
        "float then str",
        "huge int sometimes",
        "none sometimes",
        "ragged",
        "unequal shapes now and then",
        "dtype differs in a batch",
        "array dtype differs in a batch",
        "dtype changes later",
        "shape changes later",
        "grows",
        "keys change",
        "extra key",
        "missing key",
        "keys in another order",
        "numpy of two dtypes",
        "int then tensor",
        "tensor and array",
        "tuple changes to list",
        "longer namedtuple",
        "str becomes int",
    ],
)
def test_however_a_batch_is_split_it_is_collated_as_one(kind: str) -> None:
    dataset = Sleepy(kind, 36)
    loader = _loader(dataset, batch_size=6, num_workers=3, persistent_workers=True)
    expected = _collated(Items(kind, 36), 6)
    for _ in range(2):  # with and without a schema from the start
        assert _outcomes(loader) == expected


def test_numbers_and_tensors_of_one_type_are_told_apart() -> None:
    def make(index: int) -> Any:
        return index if index % 2 and index > 15 else torch.tensor(index)

    dataset = Counting(make, seconds=ALONE_S)
    expected = _collated(Counting(make), 4)
    assert expected[4:] == ["TypeError", "TypeError"]  # torch stacks no ints
    assert _outcomes(_loader(dataset, num_workers=2)) == expected


def test_a_batch_of_no_samples_is_an_error_in_its_place() -> None:
    for workers in (0, 2):
        loader = DataLoader(
            Items("int", 4), batch_sampler=[[0, 1], [], [2]], num_workers=workers, dispatch="sample"
        )
        seen = _outcomes(loader)
        assert seen[1] == "IndexError"
        assert [seen[0], seen[2]] == [describe(torch.tensor([0, 1])), describe(torch.tensor([2]))]


@pytest.mark.parametrize("kind", ["string", "numpy", "tensor"])
def test_indices_of_any_kind_are_served(kind: str) -> None:
    runs = []
    for workers in (0, 2):
        dataset = pc.Keyed("int", 12) if kind == "string" else Items("int", 12)
        sampler = pc.Converted(12, kind)
        runs.append(_outcomes(_loader(dataset, sampler=sampler, num_workers=workers)))
    assert runs[0] == runs[1]
    assert len(runs[0]) == 3


def test_a_large_batch_has_room() -> None:
    loader = _loader(range(100_000), batch_size=40_000, num_workers=2)
    assert [int(batch.sum()) for batch in loader] == [
        int(default_collate(list(range(100_000))[first : first + 40_000]).sum())
        for first in (0, 40_000, 80_000)
    ]


def test_subsets_and_tables_are_served() -> None:
    table = TensorDataset(torch.arange(24).reshape(12, 2), torch.rand(12))
    subset = Subset(Items("array", 30), list(range(5, 25)))
    for dataset in (table, subset):
        assert _outcomes(_loader(dataset, num_workers=2)) == _outcomes(_loader(dataset))


# ---- generators ----------------------------------------------------------------------------------


def test_keys_are_these_for_ever() -> None:
    assert mix(0) == 0xE220A8397B1DCDAF  # SplitMix64's first output for the seed 0
    assert mix(1) == 0x910A2DEC89025CC1
    key = epoch_key(1234, 5)
    assert [sample_key(key, 6), batch_key(key, 6)] == KEYS
    assert (
        len({sample_key(key, n) for n in range(1000)} | {batch_key(key, n) for n in range(1000)})
        == 2000
    )


KEYS = [0x16A6BCC67985E778, 0x7A46E5CA4D54CBB0]


def test_a_seed_leaves_nothing_of_what_was_drawn_before() -> None:
    generators = Generators(("random", "numpy", "torch"))
    drawn = []
    for _ in range(2):  # each is one of a pair: the other one is kept for the next call
        generators.seed(2**63 + 12345)
        drawn.append((random.gauss(0, 1), np.random.randn(), float(torch.randn(()))))
    assert drawn[0] == drawn[1]


def test_no_generator_repeats_another() -> None:
    generators = Generators(("random", "numpy", "torch"))
    generators.seed(mix(77))
    words = [random.getrandbits(32), int(np.random.randint(2**32, dtype=np.uint64))]
    words.append(int(torch.randint(2**32, (), dtype=torch.int64)))
    assert len(set(words)) == 3


def test_without_workers_the_callers_generators_stay_as_they_are() -> None:
    iterator = iter(_loader(Augmented()))
    before = rng_states()
    next(iterator)
    assert rng_states() == before
    failing = iter(_loader(Items("int", 4, draws=True, errors=((2, "ValueError"),))))
    before = rng_states()
    with pytest.raises(ValueError, match="2"):
        next(failing)
    assert rng_states() == before


def test_only_the_named_generators_are_seeded() -> None:
    class Draws:
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> tuple[float, float]:
            return random.random(), float(torch.rand(()))

    seen = []
    for start in (1, 2):
        seed_everything(13)
        random.seed(start)
        (batch,) = _loader(Draws(), batch_size=6, rng=("torch",))
        seen.append(batch)
    assert not torch.equal(seen[0][0], seen[1][0])
    assert torch.equal(seen[0][1], seen[1][1])


def test_collate_functions_of_the_users_draw_by_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    def collate_things(batch: list[Any], *, collate_fn_map: Any = None) -> float:
        return random.random()

    class Things:
        def __len__(self) -> int:
            return 12

        def __getitem__(self, index: int) -> Any:
            random.random()
            return Thing()

    monkeypatch.setitem(default_collate_fn_map, Thing, collate_things)
    runs = []
    for workers in (0, 2):
        seed_everything(14)
        before = random.getstate()
        runs.append(list(_loader(Things(), num_workers=workers)))
        assert random.getstate() == before
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 3


def test_ranks_draw_as_one_process_would() -> None:
    def draws(workers: int, ranks: int, rank: int) -> list[float]:
        seed_everything(15)
        dataset: Any = Augmented(24)
        sampler: Any = DistributedSampler(dataset, ranks, rank, shuffle=False)
        loader = _loader(dataset, sampler=sampler, num_workers=workers)
        return [float(x) for batch in loader for x in batch["scalar"]]

    alone = draws(0, 1, 0)
    assert draws(0, 2, 0) == alone[0::2]
    assert draws(2, 2, 1) == alone[1::2]
    assert draws(2, 3, 2) == alone[2::3]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at", [0, 4, None])
def test_any_number_of_workers_goes_on(workers: int, persistent: bool, at: int | None) -> None:
    def make(workers: int) -> Any:
        return _loader(
            Augmented(),
            num_workers=workers,
            shuffle=True,
            persistent_workers=persistent and workers > 0,
        )

    seed_everything(16)
    loader = make(workers)
    _outcomes(loader)
    iterator = iter(loader)
    list(itertools.islice(iterator, at))
    state = loader.state_dict()
    expected = _outcomes(loader) if at is None else [describe(batch) for batch in iterator]
    for resumed in (0, 1, 2):
        seed_everything(17)
        again = make(resumed)
        again.load_state_dict(state)
        assert _outcomes(again) == expected


def test_another_number_of_ranks_draws_on_as_one_process_would() -> None:
    def make(ranks: int, rank: int) -> Any:
        dataset: Any = Augmented(24)
        sampler: Any = DistributedSampler(dataset, ranks, rank, shuffle=False, uneven=True)
        return _loader(dataset, sampler=sampler, num_workers=1, batch_size=2)

    def draws(batches: Any) -> list[float]:
        return [float(x) for batch in batches for x in batch["scalar"]]

    seed_everything(15)
    alone = draws(make(1, 0))
    seed_everything(15)
    loader = make(2, 0)
    list(itertools.islice(iter(loader), 3))
    state = loader.state_dict()
    for rank in range(3):
        again = make(3, rank)
        again.load_state_dict(state)
        assert draws(again) == alone[12:][rank::3]


# ---- slots ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.0, ALONE_S])
def test_batches_come_by_slots_and_no_sample_is_fetched_twice(seconds: float) -> None:
    dataset = Counting(lambda i: (torch.full((3, 100), float(i)), i), 60, seconds)
    loader = _loader(dataset, num_workers=3)
    for number, (images, labels) in enumerate(loader):
        assert labels.tolist() == list(range(4 * number, 4 * number + 4))
        assert images[:, 0, 0].tolist() == [float(label) for label in labels]
    stats = loader.stats()
    assert stats["path"] == "slot"
    assert stats["paths"] == {"slot": 15 - 6, "general": 6, "torch": 0}
    assert stats["samples"] == 60
    assert dataset.fetched.tolist() == [1] * 60


def test_large_batches_are_not_copied_and_never_change_while_held() -> None:
    dataset = Counting(lambda i: torch.full((64, 300), float(i)), 80, 0.001)
    loader = _loader(dataset, num_workers=2)
    kept = [batch for number, batch in enumerate(loader) if number % 3 == 0]
    for number, batch in enumerate(kept):
        assert batch[:, 0, 0].tolist() == [float(12 * number + n) for n in range(4)]
    assert loader.stats()["slots"]["count"] <= 2 * 2 + 3


def test_a_batch_that_was_torn_is_fetched_again_but_not_for_ever() -> None:
    dataset = Counting(lambda i: i if i % 2 else float(i), 400, ALONE_S)
    loader = _loader(dataset, num_workers=3, batch_size=2)
    assert [batch.tolist() for batch in loader] == [[float(i), i + 1.0] for i in range(0, 400, 2)]
    twice = int((dataset.fetched > 1).sum())
    assert int(dataset.fetched.max()) <= 2
    assert twice <= 2 * 6 + 2 * 2 * math.log2(400)


# ---- who does what -------------------------------------------------------------------------------


def test_the_first_batch_is_shared_by_all_workers() -> None:
    begun = torch.zeros(4, dtype=torch.int64).share_memory_()

    def make(index: int) -> int:
        info = get_worker_info()
        assert info is not None
        assert (info.num_workers, len(info.dataset)) == (4, 8)  # type: ignore[arg-type]
        begun[info.id] = 1
        assert procs.wait_until(lambda: int(begun.sum()) == 4, 60)
        return info.id

    (batch,) = _loader(Counting(make, 8), batch_size=8, num_workers=4)
    assert Counter(batch.tolist()) == {0: 2, 1: 2, 2: 2, 3: 2}


class Waiting(Counting):
    """Sample 1 takes until so many samples have been asked for."""

    def __init__(self, length: int, until: int) -> None:
        super().__init__(self.number, length)
        self.until = until

    def number(self, index: int) -> int:
        if index == 1:
            assert procs.wait_until(lambda: int(self.fetched.sum()) == self.until, 60)
        return index


def test_a_slow_sample_holds_only_its_own_batch() -> None:
    dataset = Waiting(80, until=80)
    loader = _loader(dataset, num_workers=2, prefetch_factor=2, in_order=False)
    order = [int(batch[0]) // 4 for batch in loader]
    assert sorted(order) == list(range(20))
    assert 0 in order[-2:]  # the last sample to be asked for lets it go
    assert dataset.fetched.tolist() == [1] * 80


def test_in_order_the_others_are_ready_when_it_comes() -> None:
    loader = _loader(Waiting(80, until=2 * 3 * 4), num_workers=2, prefetch_factor=3)
    assert [int(batch[0]) for batch in loader] == list(range(0, 80, 4))


def test_no_more_batches_are_begun_than_workers_times_prefetch() -> None:
    dataset = Counting(lambda i: i, 80)
    iterator = iter(_loader(dataset, num_workers=2, prefetch_factor=3))
    assert procs.wait_until(lambda: int(dataset.fetched.sum()) == 24)
    time.sleep(0.3)
    assert int(dataset.fetched.sum()) == 24
    next(iterator)
    assert procs.wait_until(lambda: int(dataset.fetched.sum()) == 28)
    time.sleep(0.2)
    assert int(dataset.fetched.sum()) == 28


def test_the_slowest_samples_are_named() -> None:
    def make(index: int) -> int:
        time.sleep(1.0 if index == 13 else 0)
        return index

    loader = _loader(Counting(make), num_workers=2)
    list(loader)
    slowest = loader.stats()["slowest"][0]
    assert slowest["index"] == 13
    assert slowest["ms"] >= 1000
    assert slowest["worker"] in (0, 1)


def test_an_epoch_that_is_left_early_does_not_disturb_the_next() -> None:
    loader = _loader(range(400), num_workers=2, persistent_workers=True)
    for _ in range(3):
        assert next(iter(loader)).tolist() == [0, 1, 2, 3]
    assert [int(batch[0]) for batch in loader] == list(range(0, 400, 4))


def test_a_consumer_that_is_away_for_long_finds_everything() -> None:
    loader = _loader(Items("str in dict", 400), batch_size=40, num_workers=2, prefetch_factor=5)
    iterator = iter(loader)  # every batch by parts: more results than a ring holds
    time.sleep(0.5)
    assert [batch["name"][0] for batch in iterator] == [f"n{i}" for i in range(0, 400, 40)]


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_errors_come_in_their_place_and_the_stream_goes_on(workers: int) -> None:
    dataset = Sleepy("int", 24, errors=((5, "ValueError"), (6, "KeyError"), (20, "OSError")))
    seen = _outcomes(_loader(dataset, num_workers=workers))
    assert [seen[1], seen[5]] == ["ValueError", "OSError"]
    assert [seen[n] for n in (0, 2, 3, 4)] == [
        describe(torch.arange(4 * n, 4 * n + 4)) for n in (0, 2, 3, 4)
    ]


def test_the_message_is_the_same_whoever_took_the_sample() -> None:
    class Late:
        """The lower one of two bad samples takes longer."""

        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> int:
            if index in (1, 6):
                time.sleep(0.3 if index == 1 else 0)
                raise ValueError(f"bad {index}")
            return index

    texts = set()
    for workers in (1, 2, 3):
        with pytest.raises(ValueError, match="bad 1") as caught:
            next(iter(_loader(Late(), batch_size=8, num_workers=workers)))
        texts.add(str(caught.value))
    (text,) = texts
    assert text.startswith("Caught ValueError in a DataLoader worker process.\nOriginal Traceback")
    assert text.endswith("millhead: sample index 1 (number 1 of 8)\n")


@pytest.mark.parametrize("name", ["TwoArguments", "KeywordOnly", "Silent", "StopIteration"])
def test_odd_exceptions_come_through(name: str) -> None:
    dataset = Items("int", 8, errors=((5, name),))
    seen = _outcomes(_loader(dataset, num_workers=2))
    assert seen[0] == describe(torch.arange(4))
    assert len(seen) == (1 if name == "StopIteration" else 2)


def test_a_failing_worker_init_fn_is_reported() -> None:
    def fail(worker: int) -> None:
        raise LookupError("no licence")

    loader = _loader(Items("int", 8), num_workers=2, worker_init_fn=fail)
    with pytest.raises(LookupError, match=r"in DataLoader worker process [01]\."):
        next(iter(loader))


LICENCE = r"in DataLoader worker process 1\.(.|\n)*no licence"


def _failing_late(go: Path, **options: Any) -> Any:
    """A loader whose worker 1 fails to start, once there is a file."""

    def fail(worker: int) -> None:
        while worker == 1 and not go.exists():
            time.sleep(0.01)
        if worker == 1:
            raise LookupError("no licence")

    return _loader(Items("int", 16), num_workers=2, worker_init_fn=fail, timeout=60, **options)


def _first_fails(loader: Any) -> bool:
    try:
        next(iter(loader))
    except LookupError:
        return True
    return False


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_late_failure_of_worker_init_fn_is_told_with_the_next_batch(
    tmp_path: Path, on_error: str
) -> None:
    """Also where the other worker has fetched all there is: no run was left to fail with."""
    go = tmp_path / "go"
    iterator = iter(_failing_late(go, on_error=on_error))  # of four batches, all under way
    next(iterator)
    begun = time.monotonic()
    while len(iterator._tasks.assembler._ready) < 3:  # by worker 0 alone
        assert time.monotonic() < begun + 60
        iterator._tasks.assembler.ready(10_000_000)
        iterator._tasks.assembler._receive(10_000_000)
    go.touch()
    assert iterator._consumer_end.ready(30_000_000_000) == 1
    for _ in range(3):  # the same for each: no chance decides which
        with pytest.raises(LookupError, match=LICENCE):
            next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_a_late_failure_of_worker_init_fn_is_told_at_the_end_of_the_epoch(tmp_path: Path) -> None:
    go = tmp_path / "go"
    iterator = iter(_failing_late(go))
    for _ in range(4):
        next(iterator)
    go.touch()
    assert iterator._consumer_end.ready(30_000_000_000) == 1
    with pytest.raises(LookupError, match=LICENCE):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_a_failure_of_worker_init_fn_is_not_lost_with_an_epoch_left_early(tmp_path: Path) -> None:
    go = tmp_path / "go"
    loader = _failing_late(go, persistent_workers=True)
    next(iter(loader))
    go.touch()
    assert procs.wait_until(lambda: _first_fails(loader), seconds=60)
    assert all(_first_fails(loader) for _ in range(5))


def test_a_failure_of_worker_init_fn_is_told_with_an_empty_batch(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.touch()
    iterator = iter(_failing_late(go, batch_size=1, batch_sampler=[[], [0, 1], [2, 3]]))
    assembler = iterator._tasks.assembler
    assert procs.wait_until(lambda: assembler.ready(0) == 0 and assembler._failed_starts, 60)
    with pytest.raises(LookupError, match=LICENCE):
        next(iterator)


@pytest.mark.parametrize("kind", ["kill", "segfault"])
def test_a_dead_worker_is_reported_with_signal_and_sample(kind: str) -> None:
    number = signal.SIGKILL if kind == "kill" else signal.SIGSEGV

    def make(index: int) -> int:
        if index == 13:
            os.kill(os.getpid(), number)
        return index

    loader = _loader(Counting(make, seconds=ALONE_S), num_workers=2)
    with pytest.raises(RuntimeError, match=r"exited unexpectedly: killed by SIG") as caught:
        list(loader)
    text = str(caught.value)
    assert f"signal {int(number)}" in text
    assert "sample index 13 (number 1 of its batch)" in text


def test_a_timeout_names_the_worker_that_has_the_sample() -> None:
    def make(index: int) -> int:
        time.sleep(30 if index == 2 else 0)
        return index

    loader = _loader(Counting(make), num_workers=3, timeout=0.7)
    with pytest.raises(RuntimeError, match="timed out after 0.7 seconds") as caught:
        list(loader)
    assert "sample index 2" in str(caught.value)
    assert "in make" in str(caught.value)


# ---- bad samples ---------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["skip", "replace"])
@pytest.mark.parametrize("seconds", [0.0, ALONE_S])
@pytest.mark.filterwarnings("ignore::millhead.Advice")
def test_bad_samples_are_dealt_with_alike_for_any_number_of_workers(
    policy: str, seconds: float
) -> None:
    class Flawed(Augmented):
        def __getitem__(self, index: int) -> Any:
            if index in (1, 5, 6, 13, 21):
                raise ValueError(f"{random.random()}")
            return super().__getitem__(index)

    runs, errors = [], []
    for workers in range(4):
        seed_everything(18)
        loader = _loader(Flawed(seconds=seconds), num_workers=workers, on_error=policy)
        runs.append([_outcomes(loader) for _ in range(2)])
        errors.append(loader.stats()["errors"])
    assert "ValueError" not in runs[0][0]
    assert runs[1] == runs[0]
    assert runs[2] == runs[0]
    assert runs[3] == runs[0]
    key = "skipped" if policy == "skip" else "replaced"
    assert errors == [{"raised": 0, "skipped": 0, "replaced": 0, key: 10}] * 4


@pytest.mark.filterwarnings("ignore::millhead.Advice")
@pytest.mark.parametrize("workers", [0, 3])
def test_a_batch_of_which_nothing_is_left_raises_its_first_error(workers: int) -> None:
    errors = tuple((index, "ValueError") for index in range(4, 8))
    dataset = Sleepy("int", 16, errors=errors)
    loader = _loader(dataset, num_workers=workers, on_error="skip")
    iterator = iter(loader)
    assert next(iterator).tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="4") as caught:
        next(iterator)
    text = str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
    assert "millhead: sample index 4" in text
    assert [batch.tolist() for batch in iterator] == [[8, 9, 10, 11], [12, 13, 14, 15]]


@pytest.mark.filterwarnings("ignore::millhead.Advice")
def test_skipping_goes_on_in_slots() -> None:
    class Flawed:
        def __len__(self) -> int:
            return 60

        def __getitem__(self, index: int) -> Any:
            time.sleep(ALONE_S)
            if index % 10 == 9:
                raise ValueError("torn")
            return View({"a": torch.full((2,), index)}, (index, [float(index)]))

    loader = _loader(Flawed(), batch_size=6, num_workers=2, on_error="skip")
    for number, batch in enumerate(loader):
        wanted = [i for i in range(6 * number, 6 * number + 6) if i % 10 != 9]
        assert batch.crop["a"][:, 1].tolist() == wanted
        assert batch.label[0].tolist() == wanted
        assert type(batch).__name__ == "View"
    assert loader.stats()["paths"]["slot"] == 6


# ---- what it does not support --------------------------------------------------------------------


class _Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.mark.parametrize(
    ("dataset", "options", "words"),
    [
        (_Stream(), {}, "map-style"),
        (Items("int", 4), {"batch_size": None}, "batch_size=None"),
        (Items("int", 4), {"collate_fn": list}, "default_collate"),
        (pc.ManyItems("int", 4), {}, "__getitems__"),
        (Items("int", 4), {"rng": ("jax",)}, "rng should name"),
        (Items("int", 4), {"rng": "torch"}, "rng should name"),
        (Items("int", 4), {"rng": None}, "rng should name"),
    ],
)
def test_what_it_does_not_support_is_refused_at_once(
    dataset: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        _loader(dataset, **options)


def test_what_is_only_known_later_is_refused_then() -> None:
    dataset: Any = Items("int", 4)
    loader = _loader(dataset)
    vars(dataset)["__getitems__"] = list
    with pytest.raises(ValueError, match="__getitems__"):
        iter(loader)


def test_arguments_are_attributes() -> None:
    loader = _loader(range(4), rng=["torch"], on_error="skip")
    assert (loader.dispatch, loader.rng, loader.on_error) == ("sample", ["torch"], "skip")
    assert DataLoader(Items("int", 4)).rng == ("random", "numpy", "torch")
    assert [int(batch[0]) for batch in _loader(range(4), rng=())] == [0]
