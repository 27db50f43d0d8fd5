"""The numbers of ``loader.stats()`` and the line at an epoch's end."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import millhead.torch
import pytest
import torch
from helpers import procs
from helpers.parity_cases import Items
from millhead.torch import DataLoader, DistributedSampler, effective_batch_size
from torch.utils.data.datapipes.iter import IterableWrapper

NUMBER = (int, float)
SHAPE: dict[str, Any] = {
    "version": int,
    "path": str,
    "paths": {"slot": int, "general": int, "torch": int},
    "start": str,
    "workers": int,
    "epoch": int,
    "batches": int,
    "samples": int,
    "setup_ms": NUMBER,
    "first_batch_ms": NUMBER,
    "wait_ms": {
        "count": int,
        "mean": NUMBER,
        "p50": NUMBER,
        "p99": NUMBER,
        "max": NUMBER,
        "total": NUMBER,
    },
    "workers_busy": list,
    "bytes_copied": int,
    "bytes_pickled": int,
    "batches_copied_out": int,
    "slots": {"count": int, "bytes": int, "held": int},
    "slowest": list,
    "errors": {"raised": int, "skipped": int, "replaced": int},
    "workers_replaced": int,
    "threads_seen": int,
    "streaming": (dict, type(None)),
    "cpus": int,
    "events_lost": int,
}


def _check(value: Any, shape: Any, place: str = "stats") -> None:
    if isinstance(shape, dict):
        assert isinstance(value, dict), place
        for key, inner in shape.items():
            assert key in value, f"{place} has no {key}"
            _check(value[key], inner, f"{place}[{key!r}]")
    else:
        assert isinstance(value, shape), f"{place} is {value!r}"
        assert not isinstance(value, bool), place


@pytest.mark.parametrize(
    ("workers", "threads", "told"),
    [
        (0, 4, None),
        (2, 1, {"mode": "single-threaded", "threads": 2}),
        (2, 4, {"mode": "threads", "threads": 8}),
        (2, None, None),
    ],
)
def test_streaming_is_what_workers_were_told(workers: int, threads: int | None, told: Any) -> None:
    loader = _used(workers, worker_threads=threads)
    assert loader.stats()["streaming"] == told


def _used(workers: int, **arguments: Any) -> DataLoader[Any]:
    loader = DataLoader(Items("tuple", 40), batch_size=2, num_workers=workers, **arguments)
    for _ in loader:
        pass
    return loader


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_stats_have_the_promised_keys_and_types_at_any_time(moment: str, workers: int) -> None:
    loader = DataLoader(Items("tuple", 40), batch_size=2, num_workers=workers)
    iterator = iter(()) if moment == "before" else iter(loader)
    if moment == "during":
        next(iterator)
    for _ in iterator if moment == "after" else ():
        pass
    _check(loader.stats(), SHAPE)


@pytest.mark.parametrize("workers", [0, 2])
def test_stats_can_be_written_as_json(workers: int) -> None:
    stats = _used(workers).stats()
    assert json.loads(json.dumps(stats)) == stats


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_samples_and_epochs_are_counted(workers: int) -> None:
    loader = _used(workers)
    for _ in loader:
        pass
    stats = loader.stats()
    assert (stats["version"], stats["workers"]) == (1, workers)
    assert (stats["epoch"], stats["batches"], stats["samples"]) == (2, 40, 80)
    assert sum(stats["paths"].values()) == 40


def test_the_last_short_batch_counts_its_own_samples() -> None:
    loader = DataLoader(Items("int", 7), batch_size=4)
    assert len(list(loader)) == 2
    assert loader.stats()["samples"] == 7


def test_the_first_batch_of_a_later_epoch_counts_from_its_own_beginning() -> None:
    loader = DataLoader(Items("int", 8), batch_size=2, num_workers=1, persistent_workers=True)
    list(loader)
    time.sleep(0.2)
    began = time.perf_counter()
    next(iter(loader))
    assert loader.stats()["first_batch_ms"] <= 1e3 * (time.perf_counter() - began)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["default", "persistent", "sample", "limit", "unordered"])
def test_an_epoch_counts_though_nobody_asks_beyond_its_last_batch(kind: str, workers: int) -> None:
    options: dict[str, Any] = {
        "default": {},
        "persistent": {"persistent_workers": workers > 0},
        "sample": {"dispatch": "sample"},
        "limit": {"limit_batches": 3},
        "unordered": {"in_order": workers == 0},
    }[kind]
    loader = DataLoader(Items("tuple", 10), batch_size=2, num_workers=workers, **options)
    for epoch in range(3):
        assert loader.stats()["epoch"] == epoch
        assert len(list(zip(range(len(loader)), loader, strict=False))) == len(loader)
    assert loader.stats()["epoch"] == 3


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_counts_once_however_its_end_is_met(workers: int) -> None:
    loader = DataLoader(Items("tuple", 10), batch_size=2, num_workers=workers)
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)
    assert loader.stats()["epoch"] == 0  # one batch is left
    next(iterator)
    assert loader.stats()["epoch"] == 1
    assert next(iterator, None) is None
    del iterator
    assert loader.stats()["epoch"] == 1


def test_a_resumed_epoch_counts_when_its_last_batch_is_handed_out() -> None:
    loader = DataLoader(Items("tuple", 10), batch_size=2)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    resumed = DataLoader(Items("tuple", 10), batch_size=2)
    resumed.load_state_dict(loader.state_dict())
    iterator = iter(resumed)
    next(iterator)
    assert resumed.stats()["epoch"] == 0
    next(iterator)
    assert resumed.stats()["epoch"] == 1


def test_what_more_ranks_go_on_with_is_no_whole_epoch() -> None:
    """Its sampler's length is that of a whole epoch, and tells nothing about the rest."""
    before = DistributedSampler(range(24), num_replicas=2, rank=0, shuffle=False)
    loader = DataLoader(range(24), batch_size=2, sampler=before)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    after = DistributedSampler(range(24), num_replicas=4, rank=0, shuffle=False)
    resumed = DataLoader(range(24), batch_size=2, sampler=after)
    resumed.load_state_dict(loader.state_dict())
    iterator = iter(resumed)
    next(iterator)
    assert resumed.stats()["epoch"] == 0
    assert [batch.tolist() for batch in iterator] == [[20]]
    assert resumed.stats()["epoch"] == 1


@pytest.mark.parametrize(
    ("workers", "start", "expected"),
    [(0, None, "none"), (1, "fork", "fork"), (1, None, "fork")],
)
def test_the_start_method_is_told(workers: int, start: str | None, expected: str) -> None:
    assert _used(workers, multiprocessing_context=start).stats()["start"] == expected


def test_the_path_is_the_one_most_batches_took() -> None:
    assert _used(0).stats()["path"] == "slot"
    assert _used(2).stats()["path"] == "slot"
    assert _used(2, collate_fn=len).stats()["path"] == "general"


def test_torchs_own_iterator_counts_as_torch() -> None:
    loader = DataLoader(IterableWrapper(range(9)), batch_size=3)
    assert len(list(loader)) == 3
    stats = loader.stats()
    assert stats["path"] == "torch"
    assert stats["batches"] == 3
    _check(stats, SHAPE)


@pytest.mark.parametrize("workers", [0, 2])
def test_reset_starts_again(workers: int) -> None:
    loader = _used(workers)
    assert loader.stats(reset=True)["batches"] == 20
    stats = loader.stats()
    assert stats["batches"] == stats["samples"] == stats["epoch"] == 0
    assert stats["wait_ms"]["count"] == 0
    assert stats["bytes_copied"] == 0
    assert stats["slowest"] == []
    _check(stats, SHAPE)


def test_reset_in_the_middle_counts_only_what_follows() -> None:
    loader = DataLoader(Items("tuple", 40), batch_size=2, num_workers=2)
    iterator = iter(loader)
    for _ in range(12):
        next(iterator)
    loader.stats(reset=True)
    assert sum(1 for _ in iterator) == 8
    stats = loader.stats()
    assert stats["batches"] == 8
    assert stats["samples"] == 16


@pytest.mark.parametrize("workers", [0, 1])
def test_waits_are_measured_in_milliseconds(workers: int) -> None:
    class Slow(Items):
        def __getitem__(self, index: Any) -> Any:
            time.sleep(0.03)
            return index

    loader = DataLoader(Slow("int", 10), num_workers=workers)
    began = time.perf_counter()
    for _ in loader:
        pass
    elapsed = (time.perf_counter() - began) * 1000
    waits = loader.stats()["wait_ms"]
    assert waits["count"] == 10
    assert waits["total"] <= elapsed  # no moment counts twice
    assert 20 < waits["p50"] <= waits["p99"] <= waits["max"] * 1.1
    assert 200 < waits["total"] < 10_000
    assert abs(waits["mean"] * waits["count"] - waits["total"]) < 0.02 * waits["total"]


@pytest.mark.parametrize("workers", [0, 1])
def test_the_slowest_samples_are_named(workers: int) -> None:
    class OneSlow(Items):
        def __getitem__(self, index: Any) -> Any:
            time.sleep(0.2 if index == 23 else 0)
            return index

    loader = DataLoader(OneSlow("int", 60), batch_size=4, shuffle=True, num_workers=workers)
    for _ in loader:
        pass
    slowest = loader.stats()["slowest"]
    assert len(slowest) <= 10
    assert slowest[0]["index"] == 23
    assert 190 < slowest[0]["ms"] < 5000
    assert set(slowest[0]) == {"index", "ms", "worker"}
    times = [entry["ms"] for entry in slowest]
    assert times == sorted(times, reverse=True)


def test_busy_workers_are_told_from_idle_ones() -> None:
    class Busy(Items):
        def __getitem__(self, index: Any) -> Any:
            time.sleep(0.05 if index % 2 == 0 else 0)
            return index

    loader = DataLoader(Busy("int", 30), num_workers=2)
    for _ in loader:
        pass
    busy = loader.stats()["workers_busy"]
    assert len(busy) == 2
    assert all(0 <= share <= 1 for share in busy)
    assert busy[0] > 0.1
    assert busy[0] > 2 * busy[1]


@pytest.mark.parametrize("workers", [0, 1])
def test_raised_errors_are_counted(workers: int) -> None:
    dataset = Items("int", 8, errors=((2, "ValueError"), (5, "KeyError")))
    loader = DataLoader(dataset, num_workers=workers)
    iterator = iter(loader)
    raised = 0
    while True:
        try:
            next(iterator)
        except (ValueError, KeyError):
            raised += 1
        except StopIteration:
            break
    assert raised == 2
    stats = loader.stats()
    assert stats["errors"] == {"raised": 2, "skipped": 0, "replaced": 0}
    assert stats["batches"] == 6
    iterator._shutdown_workers() if workers else None


def test_tensor_bytes_are_copied_and_not_pickled_on_the_slot_path() -> None:
    loader = DataLoader(Items("large", 80), batch_size=2, num_workers=2)
    iterator = iter(loader)
    for _ in range(10):
        next(iterator)
    loader.stats(reset=True)
    for _ in iterator:
        pass
    stats = loader.stats()
    assert stats["paths"] == {"slot": 30, "general": 0, "torch": 0}
    assert stats["bytes_pickled"] < 30 * 1000


def test_held_slots_are_counted_while_a_batch_lives() -> None:
    loader = DataLoader(Items("large", 80), batch_size=2, num_workers=1)
    iterator = iter(loader)
    for _ in range(8):
        batch = next(iterator)
    assert loader.stats()["slots"]["held"] >= 1
    del batch
    assert loader.stats()["slots"]["held"] == 0


def test_stats_of_an_iterator_are_its_loaders() -> None:
    loader = DataLoader(Items("int", 6))
    iterator = iter(loader)
    next(iterator)
    assert millhead.torch.stats(iterator)["batches"] == 1
    assert millhead.torch.stats(loader) == loader.stats()


def test_stats_of_something_else_raise_typeerror() -> None:
    with pytest.raises(TypeError):
        millhead.torch.stats([1, 2, 3])


def test_stats_are_cheap_enough_to_read_at_every_step() -> None:
    loader = _used(2)
    began = time.perf_counter()
    for _ in range(200):
        loader.stats()
    assert (time.perf_counter() - began) / 200 < 0.005


# ---- MILLHEAD_VERBOSE -----------------------------------------------------------------------------

EPOCHS = """
from helpers.parity_cases import Items
from millhead.torch import DataLoader
loader = DataLoader(Items("int", 20), batch_size=2, num_workers={workers})
for _ in range(3):
    list(loader)
next(iter(loader))
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_verbose_prints_one_line_at_the_end_of_each_epoch(workers: int) -> None:
    result = procs.run_python(EPOCHS.format(workers=workers), env={"MILLHEAD_VERBOSE": "1"})
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("millhead: epoch")]
    assert len(lines) == 4
    assert result.stderr.strip().splitlines() == lines
    assert result.stdout == ""
    for number, line in enumerate(lines[:3]):
        assert re.match(rf"millhead: epoch {number}: 10 batches", line), line
        assert "20 samples" in line
    assert lines[3].startswith("millhead: epoch 3 left early: 1 batches"), lines[3]
    assert "2 samples" in lines[3]


LEFT_EARLY = """
import time
from millhead.torch import DataLoader
class Slow:
    def __len__(self): return 8
    def __getitem__(self, index):
        time.sleep(0.05 if first else 0.0)
        return index
first = True
loader = DataLoader(Slow(), batch_size=2)
for epoch in range(2):
    for number, _ in enumerate(loader):
        if number == 2:
            break
    first = False
print(loader.stats()["epoch"])
"""


def test_verbose_tells_of_an_epoch_that_is_left_early_with_its_own_waits() -> None:
    result = procs.run_python(LEFT_EARLY, env={"MILLHEAD_VERBOSE": "1"})
    assert (result.returncode, result.stdout) == (0, "0\n"), result.stderr
    slow, quick = [line for line in result.stderr.splitlines() if "left early" in line]
    assert "3 batches" in slow and "3 batches" in quick
    means = [float(line.partition("(mean ")[2].split()[0]) for line in (slow, quick)]
    assert means[0] > 90 and means[1] < 20, result.stderr
    for share in ("p50 ", "p99 "):
        of_epoch = [float(line.partition(share)[2].split()[0]) for line in (slow, quick)]
        assert of_epoch[0] > 90 and of_epoch[1] < 20, result.stderr


@pytest.mark.parametrize("value", [None, "0", ""])
def test_without_verbose_nothing_is_printed(value: str | None) -> None:
    env = {} if value is None else {"MILLHEAD_VERBOSE": value}
    result = procs.run_python(EPOCHS.format(workers=2), env=env)
    assert result.returncode == 0
    assert result.stderr == result.stdout == ""


EFFECTIVE = """
from helpers.parity_cases import Items
from millhead.torch import DataLoader, DistributedSampler
data = Items("int", 20)
sampler = DistributedSampler(data, num_replicas=4, rank=1)
list(DataLoader(data, batch_size=2, sampler=sampler, accumulate=3))
list(DataLoader(data, batch_size=2))
list(DataLoader(data, batch_size=None))
loader = DataLoader(data, batch_size=5)
for _ in zip(range(len(loader)), loader):
    pass
"""


@pytest.mark.parametrize("world", [1, 2])
def test_verbose_tells_the_effective_batch_size(world: int) -> None:
    env = {"MILLHEAD_VERBOSE": "1", "RANK": "0", "WORLD_SIZE": str(world)}
    result = procs.run_python(EFFECTIVE, env=env)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    ends = [line.rpartition(" ms)")[2] for line in result.stderr.splitlines()]
    assert ends == [
        ", batch 2 x 4 ranks x 3 accumulated = 24",
        ", batch 2" if world == 1 else ", batch 2 x 2 ranks = 4",
        "",
        ", batch 5" if world == 1 else ", batch 5 x 2 ranks = 10",
    ]


def test_the_effective_batch_size_of_any_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert effective_batch_size(DataLoader(range(9), 4, accumulate=2)) == 24
    assert effective_batch_size(torch.utils.data.DataLoader(range(9), 4)) == 12
    assert effective_batch_size(DataLoader(range(9), batch_sampler=[[1, 2], [3]])) is None
    sampler = torch.utils.data.DistributedSampler(range(9), num_replicas=8, rank=1)
    assert effective_batch_size(torch.utils.data.DataLoader(range(9), 4, sampler=sampler)) == 32


@pytest.mark.parametrize("accumulate", [0, -1, 1.5, True, None])
def test_what_is_no_number_of_batches_to_accumulate_is_refused(accumulate: Any) -> None:
    with pytest.raises(ValueError, match="accumulate should be"):
        DataLoader(range(9), accumulate=accumulate)
