"""The stream of batches: its order, its look-ahead, its workers and their seeds."""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import procs
from helpers.compare import seed_everything
from helpers.parity_cases import Buckets, Items
from millhead.torch import DataLoader
from torch.utils.data import get_worker_info
from torch.utils.data.datapipes.iter import IterableWrapper

START_METHODS = ["fork", "spawn", "forkserver"]


class Where:
    """Tells which process and thread loads a sample."""

    def __init__(self, length: int = 12) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        return index, os.getpid(), threading.get_ident()


class Slowing(Where):
    """The earlier the sample, the longer it takes."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.02 * (index % 3 == 0) + random.random() * 0.005)
        return index


def test_without_workers_samples_are_loaded_by_the_calling_thread() -> None:
    for batch in DataLoader(Where(), batch_size=4):
        assert batch[1].tolist() == [os.getpid()] * 4
        assert batch[2].tolist() == [threading.get_ident()] * 4


def test_without_workers_no_process_and_no_thread_is_started() -> None:
    before = threading.active_count(), procs.children(), len(os.listdir("/proc/self/task"))
    for _ in DataLoader(Where(), batch_size=4):
        after = threading.active_count(), procs.children(), len(os.listdir("/proc/self/task"))
        assert after == before


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_batch_b_is_loaded_by_worker_b_modulo_the_number_of_workers(workers: int) -> None:
    pids = [int(batch[1][0]) for batch in DataLoader(Where(12), num_workers=workers)]
    assert len(set(pids)) == workers
    assert os.getpid() not in pids
    assert pids == [pids[number % workers] for number in range(12)]


@pytest.mark.parametrize("start", START_METHODS)
def test_every_start_method_gives_the_same_batches(start: str) -> None:
    loader = DataLoader(
        Items("nested", 20), batch_size=2, num_workers=2, multiprocessing_context=start
    )
    assert [batch["c"].tolist() for batch in loader] == [
        [2 * number / 3, (2 * number + 1) / 3] for number in range(10)
    ]
    assert loader.stats()["start"] in (start, "template")


def test_a_context_object_is_accepted_as_start_method() -> None:
    context = multiprocessing.get_context("fork")
    loader = DataLoader(Items("int", 4), num_workers=1, multiprocessing_context=context)
    assert [int(batch) for batch in loader] == [0, 1, 2, 3]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_batches_come_in_the_samplers_order_whatever_workers_take(workers: int) -> None:
    order = random.Random(5).sample(range(30), 30)
    loader = DataLoader(Slowing(30), sampler=order, num_workers=workers)
    assert [int(batch) for batch in loader] == order


def test_out_of_order_gives_every_sample_once() -> None:
    loader = DataLoader(Slowing(30), batch_size=2, num_workers=2, in_order=False)
    seen = [number for batch in loader for number in batch.tolist()]
    assert sorted(seen) == list(range(30))


class OneSlow(Where):
    def __getitem__(self, index: int) -> int:
        time.sleep(2.0 if index == 0 else 0.01)
        return index


def test_out_of_order_does_not_wait_for_a_slow_sample() -> None:
    iterator = iter(DataLoader(OneSlow(12), num_workers=2, in_order=False))
    first = [int(next(iterator)) for _ in range(10)]
    assert 0 not in first
    assert sorted(first + [int(batch) for batch in iterator]) == list(range(12))


def test_in_order_waits_for_a_slow_sample() -> None:
    loader = DataLoader(OneSlow(6), num_workers=2)
    assert [int(batch) for batch in loader] == list(range(6))


# ---- look-ahead ----------------------------------------------------------------------------------


class Noting(Where):
    """Leaves a file for every sample that was begun."""

    def __init__(self, folder: str, length: int) -> None:
        super().__init__(length)
        self.folder = folder

    def __getitem__(self, index: int) -> Any:
        Path(self.folder, str(index)).touch()
        return index


@pytest.mark.parametrize(("workers", "prefetch"), [(1, 1), (1, 4), (2, 2), (3, 1)])
def test_a_frozen_consumer_has_exactly_workers_times_prefetch_batches_begun(
    workers: int, prefetch: int, tmp_path: Path
) -> None:
    dataset = Noting(str(tmp_path), 60)
    iterator = iter(
        DataLoader(dataset, batch_size=2, num_workers=workers, prefetch_factor=prefetch)
    )

    def begun() -> int:
        return len(list(tmp_path.iterdir())) // 2

    for taken in (0, 1, 5):
        while int(iterator._num_yielded) < taken:
            next(iterator)
        assert procs.wait_until(lambda least=taken: begun() >= least + workers * prefetch)
        time.sleep(0.2)
        assert begun() == taken + workers * prefetch


def test_nothing_is_begun_without_workers_before_it_is_asked_for(tmp_path: Path) -> None:
    iterator = iter(DataLoader(Noting(str(tmp_path), 6), batch_size=2))
    assert not list(tmp_path.iterdir())
    next(iterator)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_slow_consumer_does_not_make_memory_grow() -> None:
    loader = DataLoader(Items("large", 60), batch_size=2, num_workers=2)
    sizes = []
    for number, _ in enumerate(loader):
        time.sleep(0.01)
        if number >= 8:
            sizes.append(loader.stats()["slots"]["bytes"])
    assert len(set(sizes)) == 1


class Half(Where):
    def __getitem__(self, index: int) -> int:
        time.sleep(0.1)
        return index


def test_loading_overlaps_with_the_consumers_work() -> None:
    loader = DataLoader(Half(11), num_workers=1)
    iterator = iter(loader)
    next(iterator)
    began = time.monotonic()
    for _ in iterator:
        time.sleep(0.1)
    assert time.monotonic() - began < 10 * 0.2 * 0.85


# ---- workers -------------------------------------------------------------------------------------


def _pids(loader: Any) -> set[int]:
    return {int(batch[1][0]) for batch in loader}


def test_persistent_workers_are_the_same_processes_in_every_epoch() -> None:
    loader = DataLoader(Where(), num_workers=2, persistent_workers=True)
    first = _pids(loader)
    assert len(first) == 2
    assert _pids(loader) == first
    assert _pids(loader) == first


def test_other_workers_are_new_processes_in_every_epoch() -> None:
    loader = DataLoader(Where(), num_workers=2)
    assert not _pids(loader) & _pids(loader)


class Caching(Where):
    def __getitem__(self, index: int) -> int:
        self.calls = getattr(self, "calls", 0) + 1
        return self.calls


def test_a_datasets_own_state_survives_in_persistent_workers() -> None:
    loader = DataLoader(Caching(6), num_workers=1, persistent_workers=True)
    assert [int(batch) for batch in loader] == [1, 2, 3, 4, 5, 6]
    assert [int(batch) for batch in loader] == [7, 8, 9, 10, 11, 12]
    assert not hasattr(loader.dataset, "calls")


def test_a_persistent_epoch_left_early_is_followed_by_a_full_one() -> None:
    loader = DataLoader(Items("int", 20), num_workers=2, persistent_workers=True)
    for expected in (3, 0, 20, 7, 20):
        iterator = iter(loader)
        assert [int(next(iterator)) for _ in range(expected)] == list(range(expected))


def test_a_persistent_iterator_ends_its_workers_when_it_is_dropped() -> None:
    loader = DataLoader(Where(), num_workers=2, persistent_workers=True)
    pids = _pids(loader)
    loader._iterator = None
    assert procs.wait_until(lambda: not any(procs.is_running(pid) for pid in pids))


def test_workers_end_with_the_epoch_even_when_the_iterator_is_kept() -> None:
    iterator = iter(DataLoader(Where(), num_workers=2))
    pids = {int(batch[1][0]) for batch in iterator}
    assert len(pids) == 2
    assert procs.wait_until(lambda: not any(procs.is_running(pid) for pid in pids))
    assert next(iterator, None) is None


def test_workers_are_daemons_with_the_handles_frameworks_use() -> None:
    iterator = iter(DataLoader(Where(), num_workers=2))
    workers = iterator._workers
    assert len(workers) == 2
    for worker in workers:
        assert worker.daemon
        assert worker.is_alive()
        assert worker.exitcode is None
        assert worker.pid in procs.children()
    iterator._shutdown_workers()
    assert not any(worker.is_alive() for worker in workers)


class Noisy:
    """Order of what happens in a worker."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        _log.append(f"sample {index}")
        return tuple(_log)


_log: list[str] = []


def log_init(worker: int) -> None:
    _log.append(f"init {worker} {torch.initial_seed() == get_worker_info().seed}")  # type: ignore[union-attr]


def collate_log(batch: list[Any]) -> Any:
    return batch[-1]


def test_worker_init_runs_once_after_seeding_and_before_the_first_sample() -> None:
    loader = DataLoader(Noisy(), num_workers=2, worker_init_fn=log_init, collate_fn=collate_log)
    assert list(loader) == [
        ("init 0 True", "sample 0"),
        ("init 1 True", "sample 1"),
        ("init 0 True", "sample 0", "sample 2"),
        ("init 1 True", "sample 1", "sample 3"),
    ]
    assert _log == []


class Info:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None
        return {
            "id": info.id,
            "workers": info.num_workers,
            "seed": info.seed,
            "same dataset": info.dataset is self,
            "method": info.worker_method,
            "torch seed": torch.initial_seed(),
        }


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_get_worker_info_tells_id_count_seed_and_dataset(start: str) -> None:
    seed_everything(9)
    base = int(torch.empty((), dtype=torch.int64).random_().item())
    seed_everything(9)
    loader = DataLoader(
        Info(), batch_size=None, num_workers=2, multiprocessing_context=start, collate_fn=dict
    )
    for number, info in enumerate(loader):
        assert info == {
            "id": number % 2,
            "workers": 2,
            "seed": base + number % 2,
            "same dataset": True,
            "method": "multiprocessing",
            "torch seed": base + number % 2,
        }


def test_get_worker_info_is_none_in_the_main_process() -> None:
    assert get_worker_info() is None
    for batch in DataLoader(Items("int", 4), collate_fn=lambda batch: get_worker_info()):
        assert batch is None


class Draws:
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))


def _draws(loader: Any) -> list[tuple[float, ...]]:
    return [tuple(float(column) for column in batch) for batch in loader]


def test_workers_draw_different_numbers_from_every_generator() -> None:
    numbers = _draws(DataLoader(Draws(), num_workers=3))
    for column in zip(*numbers, strict=True):
        assert len(set(column)) == 6


def test_epochs_draw_different_numbers() -> None:
    loader = DataLoader(Draws(), num_workers=2)
    assert not set(_draws(loader)) & set(_draws(loader))


def test_a_fixed_generator_makes_runs_repeat() -> None:
    def run() -> list[tuple[float, ...]]:
        generator = torch.Generator().manual_seed(3)
        return _draws(DataLoader(Draws(), num_workers=2, shuffle=True, generator=generator))

    assert run() == run()


def test_workers_compute_with_one_torch_thread() -> None:
    loader = DataLoader(
        Items("int", 2), num_workers=1, collate_fn=lambda batch: torch.get_num_threads()
    )
    torch.set_num_threads(2)
    try:
        assert list(loader) == [1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


# ---- iterators -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_stopiteration_comes_once_and_stays(workers: int, persistent: bool) -> None:
    loader = DataLoader(Items("int", 3), num_workers=workers, persistent_workers=persistent)
    iterator = iter(loader)
    for _ in range(len(loader)):
        next(iterator)
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(iterator)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterator_can_be_used_step_by_step(workers: int) -> None:
    loader = DataLoader(Items("int", 10), batch_size=3, num_workers=workers)
    iterator = iter(loader)
    assert iter(iterator) is iterator
    assert len(iterator) == 4
    assert [len(next(iterator)) for _ in range(len(loader))] == [3, 3, 3, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_two_iterators_of_one_loader_do_not_disturb_each_other(workers: int) -> None:
    loader = DataLoader(Items("large", 16), num_workers=workers)
    for left, right in zip(iter(loader), iter(loader), strict=True):
        assert torch.equal(left, right)
        assert left.data_ptr() != right.data_ptr()


def test_an_iterator_cannot_be_pickled() -> None:
    import pickle

    with pytest.raises(NotImplementedError):
        pickle.dumps(iter(DataLoader(Items("int", 2))))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("batch_size", [None, 1, 4])
def test_an_empty_dataset_gives_no_batch(workers: int, batch_size: int | None) -> None:
    assert list(DataLoader(Items("int", 0), batch_size=batch_size, num_workers=workers)) == []


class Unready:
    """A batch sampler that knows its length only once it was begun."""

    def __iter__(self) -> Any:
        self.batches = [[1, 2], [3]]
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("extra", [{}, {"snapshot_every_n_steps": 3, "snapshot_rng": True}])
def test_a_samplers_length_is_nobodys_business(workers: int, extra: dict[str, Any]) -> None:
    loader = DataLoader(Items("int", 9), batch_sampler=Unready(), num_workers=workers, **extra)
    assert [batch.tolist() for batch in loader] == [[1, 2], [3]]
    streams = []
    makers: list[Any] = [torch.utils.data.DataLoader, partial(DataLoader, **extra)]
    for make in makers:
        seed_everything(3)
        loader = make(Items("int", 9), batch_sampler=Buckets(9), num_workers=workers)
        streams.append([[b.tolist() for _ in range(3) for b in loader], random.random()])
    assert streams[0] == streams[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_of_a_users_sampler_counts_once_its_length_was_asked_for(workers: int) -> None:
    loader = DataLoader(Items("int", 9), batch_sampler=Buckets(9), num_workers=workers)
    for _ in zip(range(len(loader)), loader, strict=False):
        pass
    assert loader.stats()["epoch"] == 1


def test_a_dataset_that_cannot_tell_its_length_raises_when_torch_would() -> None:
    class Mute(Where):
        def __len__(self) -> int:
            raise ValueError("not known yet")

    for workers in (0, 1):
        loader = DataLoader(Mute(), sampler=[0, 1], num_workers=workers)
        assert len(list(loader)) == 2
        assert loader.state_dict()["length"] is None
    iterator = iter(DataLoader(Mute(), batch_size=2))
    with pytest.raises(ValueError, match="not known yet"):
        next(iterator)


def test_more_workers_than_batches_end_cleanly() -> None:
    assert len(list(DataLoader(Items("int", 2), num_workers=3))) == 2


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_of_very_many_indices_is_loaded(workers: int) -> None:
    loader = DataLoader(Items("int", 150_000), batch_size=150_000, num_workers=workers)
    (batch,) = loader
    assert torch.equal(batch, torch.arange(150_000))


@pytest.mark.parametrize("workers", [0, 1])
def test_long_keys_reach_the_dataset_whole(workers: int) -> None:
    class Lengths:
        def __getitem__(self, key: str) -> int:
            return len(key)

    keys = ["x" * length for length in (1, 5000, 70_000, 2_000_000, 3)]
    loader = DataLoader(Lengths(), sampler=keys, batch_size=None, num_workers=workers)
    assert list(loader) == [len(key) for key in keys]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_pipe_is_served_by_torchs_own_iterator(workers: int) -> None:
    pipe = IterableWrapper(range(8)).sharding_filter()
    loader = DataLoader(pipe, batch_size=2, num_workers=workers)
    seen = sorted(number for batch in loader for number in batch.tolist())
    assert seen == list(range(8))
    assert loader.stats()["path"] == "torch"
    assert loader.stats()["paths"] == {"slot": 0, "general": 0, "torch": 4}


def test_a_profile_shows_torchs_row() -> None:
    for workers, name in (
        (0, "_SingleProcessDataLoaderIter"),
        (1, "_MultiProcessingDataLoaderIter"),
    ):
        with torch.profiler.profile() as profile:
            for _ in DataLoader(Items("int", 2), num_workers=workers):
                pass
        rows = {row.key: row.count for row in profile.key_averages()}
        assert rows.get(f"enumerate(DataLoader)#{name}.__next__") == 3


def test_iterators_are_instances_of_torchs_classes() -> None:
    from torch.utils.data.dataloader import (
        _BaseDataLoaderIter,
        _MultiProcessingDataLoaderIter,
        _SingleProcessDataLoaderIter,
    )

    assert isinstance(iter(DataLoader(Items("int", 2))), _SingleProcessDataLoaderIter)
    iterator = iter(DataLoader(Items("int", 2), num_workers=1))
    assert isinstance(iterator, _MultiProcessingDataLoaderIter)
    assert isinstance(iterator, _BaseDataLoaderIter)


def test_pin_memory_without_an_accelerator_warns_as_torch_does() -> None:
    if torch.accelerator.is_available():
        pytest.skip("needs a machine without an accelerator")
    with pytest.warns(UserWarning, match="no accelerator is found"):
        batches = list(DataLoader(Items("int", 2), pin_memory=True))
    assert not batches[0].is_pinned()


class Stuck(Where):
    def __getitem__(self, index: int) -> int:
        time.sleep(30 if index == 3 else 0)
        return index


def test_a_timeout_names_the_seconds_and_the_sample() -> None:
    iterator = iter(DataLoader(Stuck(6), num_workers=1, timeout=1))
    began = time.monotonic()
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 1 seconds.*index 3"):
        list(iterator)
    assert 0.9 < time.monotonic() - began < 10
    iterator._workers[0].kill()
