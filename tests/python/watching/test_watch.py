"""``millhead.watch``: the loop and its stream stay what they were, and the events tell what it did."""

from __future__ import annotations

import contextlib
import csv
import gc
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import millhead
import millhead.torch
import numpy
import pytest
import torch
import torch.utils.data
from helpers import procs
from millhead import _core
from millhead.watching import hot_code
from millhead.watching.torch_loaders import bytes_in
from torch.utils.data import Dataset, IterableDataset, get_worker_info

LOADERS: list[Any] = [torch.utils.data.DataLoader, millhead.torch.DataLoader]
STARTS = [(0, None), (2, "fork"), (2, "spawn"), (2, "forkserver")]
STARTUP = str(Path(millhead.__file__).parent / "_startup")


class Random(Dataset[torch.Tensor]):
    """Samples with random numbers of all generators; every eighth one is slow."""

    def __init__(self, length: int = 48) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % 8 == 0:
            time.sleep(0.002)
        numbers = [float(index), random.random(), float(numpy.random.rand())]
        return torch.cat((torch.tensor(numbers), torch.rand(1)))


class Own(Dataset[int]):
    """Its samples tell what a worker knows of it."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        info = get_worker_info()
        return int(info is None or type(info.dataset) is Own)


class Failing(Dataset[int]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise KeyError("the fifth")
        return index


class Together(Dataset[int]):
    """Fetches whole batches."""

    def __len__(self) -> int:
        return 8

    def __getitems__(self, indices: list[int]) -> list[int]:
        time.sleep(0.001)
        return [10 * index for index in indices]


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        yield from range(0 if info is None else 100 * info.id, 10)


def _init(worker: int) -> None:
    torch.manual_seed(worker)


def _collate(samples: list[Any]) -> Any:
    time.sleep(0.001)
    return torch.utils.data.default_collate(samples)


def _events(run: Path, *kinds: str) -> list[dict[str, Any]]:
    text = (run / "events.jsonl").read_bytes()
    events = [json.loads(line) for line in text.split(b"\n")[:-1]]
    return [event for event in events if not kinds or event["event"] in kinds]


def _keys(events: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return sorted((event["epoch"], event["worker"], event["nth"]) for event in events)


# ---- the stream ----------------------------------------------------------------------------------


@pytest.mark.parametrize("loader_class", LOADERS, ids=["torch", "millhead"])
@pytest.mark.parametrize(("workers", "start"), STARTS)
def test_the_stream_is_the_same_bit_for_bit(
    loader_class: Any, workers: int, start: str | None, tmp_path: Path
) -> None:
    def stream(watched: bool) -> list[Any]:
        torch.manual_seed(5)
        random.seed(5)
        numpy.random.seed(5)
        loader = loader_class(
            Random(),
            batch_size=8,
            shuffle=True,
            num_workers=workers,
            multiprocessing_context=start,
            persistent_workers=workers > 0,
        )
        loop = millhead.watch(loader, run=tmp_path) if watched else loader
        batches = [batch.tolist() for _ in range(2) for batch in loop]
        if watched:
            loop.close()
        after = (random.random(), float(numpy.random.rand()), torch.rand(2).tolist())
        return [*batches, after]

    assert stream(watched=True) == stream(watched=False)
    waits, fetches = _events(tmp_path, "wait"), _events(tmp_path, "fetch")
    assert len(waits) == 12
    assert _keys(waits) == _keys(fetches) == _keys(_events(tmp_path, "collate"))
    assert {event["worker"] for event in waits} == ({0, 1} if workers else {-1})
    assert sum(event["samples"] for event in fetches) == 96
    slow = {event["index"] for event in _events(tmp_path, "sample") if event["ns"] >= 2e6}
    assert slow >= {0, 8, 16, 24, 32, 40}


@pytest.mark.parametrize("loader_class", LOADERS, ids=["torch", "millhead"])
@pytest.mark.parametrize("workers", [0, 2])
def test_users_objects_stay_the_users(loader_class: Any, workers: int) -> None:
    loader = loader_class(
        Own(), batch_size=2, num_workers=workers, collate_fn=_collate, worker_init_fn=_init
    )
    watched = millhead.watch(loader)
    iterator = iter(watched)
    assert [batch.tolist() for batch in iterator] == [[1, 1], [1, 1]]
    assert loader.worker_init_fn is _init and loader.collate_fn is _collate
    assert type(loader.dataset) is Own
    assert isinstance(iterator, torch.utils.data.dataloader._BaseDataLoaderIter)
    assert len(watched) == 2 and watched.batch_size == 2
    with pytest.raises(AttributeError):
        _ = watched.no_such_thing


@pytest.mark.parametrize("loader_class", LOADERS, ids=["torch", "millhead"])
@pytest.mark.parametrize("workers", [0, 2])
def test_exceptions_pass_and_the_loop_goes_on(
    loader_class: Any, workers: int, tmp_path: Path
) -> None:
    watched = millhead.watch(
        loader_class(Failing(), batch_size=2, num_workers=workers), run=tmp_path
    )
    iterator = iter(watched)
    got: list[Any] = []
    while True:
        try:
            got.append(next(iterator).tolist())
        except KeyError as error:
            got.append("the fifth" in str(error))
        except StopIteration:
            break
    assert got == [[0, 1], [2, 3], True, [6, 7], [8, 9], [10, 11]]
    watched.close()
    (error,) = _events(tmp_path, "error")
    assert error["what"].startswith("KeyError") and "the fifth" in error["what"]
    # What failed has a number too: those after it are still joined rightly
    assert set(_keys(_events(tmp_path, "wait"))) == set(_keys(_events(tmp_path, "fetch")))


@pytest.mark.parametrize("loader_class", LOADERS, ids=["torch", "millhead"])
@pytest.mark.parametrize("workers", [0, 2])
def test_streams_whole_batches_and_single_samples(
    loader_class: Any, workers: int, tmp_path: Path
) -> None:
    def values(dataset: Any, run: str | None, **options: Any) -> list[Any]:
        loader = loader_class(dataset, num_workers=workers, **options)
        loop = loader if run is None else millhead.watch(loader, run=tmp_path / run)
        found = [torch.as_tensor(batch).tolist() for batch in loop]
        if run is not None:
            loop.close()
        return found

    for run, dataset, options in (
        ("stream", Stream(), {"batch_size": 3}),
        ("dropped", Stream(), {"batch_size": 3, "drop_last": True}),
        ("items", Stream(), {"batch_size": None}),
        ("together", Together(), {"batch_size": 3}),
        ("samples", Random(6), {"batch_size": None}),
    ):
        if run == "samples":
            torch.manual_seed(1), random.seed(1), numpy.random.seed(1)
        plain = values(dataset, None, **options)
        if run == "samples":
            torch.manual_seed(1), random.seed(1), numpy.random.seed(1)
        assert values(dataset, run, **options) == plain, run
        waits, fetches = _events(tmp_path / run, "wait"), _events(tmp_path / run, "fetch")
        assert _keys(waits) == _keys(fetches) and len(waits) == len(plain), run


def test_what_cannot_be_iterated_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="watch takes a loader or another iterable, not 5"):
        millhead.watch(5)


def test_a_generator_is_closed_when_the_loop_is_left() -> None:
    closed = []

    class Closing(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            try:
                yield from range(100)
            finally:
                closed.append(True)

    for loader_class in LOADERS:
        for _ in millhead.watch(loader_class(Closing(), batch_size=2)):
            break
        assert closed == [True]
        closed.clear()


# ---- what is written -----------------------------------------------------------------------------


def test_any_iterable_has_waits_and_steps(tmp_path: Path) -> None:
    def numbers() -> Iterator[int]:
        for number in range(4):
            time.sleep(0.003)
            yield number

    for _ in (watched := millhead.watch(numbers(), run=tmp_path, name="numbers")):
        time.sleep(0.001)
    watched.close()
    told = [event["event"] for event in _events(tmp_path)]
    assert [name for name in told if name not in ("usage", "system", "gpu", "hot")] == [
        "header",
        "loader",
        "setup",
        "wait",
        *["step", "wait"] * 3,
        "step",
        "epoch",
        "end",
    ]
    (loader,) = _events(tmp_path, "loader")
    assert (loader["kind"], loader["name"]) == ("iterable", "numbers")
    assert all(event["ns"] >= 3e6 for event in _events(tmp_path, "wait"))
    assert all(event["ns"] >= 1e6 for event in _events(tmp_path, "step"))
    (epoch,) = _events(tmp_path, "epoch")
    assert epoch["batches"] == 4 and epoch["complete"]
    stats = watched.stats()
    assert stats["batches"] == 4 and stats["wait_s"]["count"] == 3
    assert 0 < stats["wait_share"] < 1 and stats["wait_s"]["mean"] >= 0.003
    assert stats["wait_share"] == pytest.approx(
        stats["wait_s"]["total"] / (stats["wait_s"]["total"] + stats["step_s"]["total"]), rel=0.01
    )
    assert stats["first_batch_s"] >= 0.003


def test_where_the_time_went(tmp_path: Path) -> None:
    """A sample that sleeps is blocked, a transform in Python is no native code, collate is apart."""

    class Slow(Dataset[int]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            time.sleep(0.03)
            ends = time.thread_time() + 0.1
            count = 0
            while time.thread_time() < ends:
                count += 1
            return index

    def collate(samples: list[int]) -> list[int]:
        time.sleep(0.02)
        return samples

    loader = torch.utils.data.DataLoader(Slow(), batch_size=2, num_workers=1, collate_fn=collate)
    watched = millhead.watch(loader, run=tmp_path)
    assert list(watched) == [[0, 1], [2, 3]]
    watched.close()
    for event in _events(tmp_path, "fetch"):
        assert event["cpu"] >= 0.2e9 and event["ns"] - event["cpu"] - event["delay"] >= 0.045e9
        assert event["probes"] > 0 and event["native"] <= event["probes"] / 2
    for event in _events(tmp_path, "sample"):
        assert 0.09e9 <= event["cpu"] <= event["ns"] - 0.02e9
    for event in _events(tmp_path, "collate"):
        assert event["ns"] >= 0.02e9 and event["cpu"] < 0.02e9


def test_the_probe_tells_native_code_from_python() -> None:
    import zlib

    data = os.urandom(1 << 21)

    def shares(work: Any) -> float:
        _core.probe_take()
        ends = time.thread_time() + 0.2
        while time.thread_time() < ends:
            work()
        probes, native = _core.probe_take()
        assert probes > 5
        return float(native) / probes

    assert hot_code.start_probe()
    try:
        assert shares(lambda: zlib.compress(data, 1)) > 0.8
        assert shares(lambda: sum(number for number in range(100))) < 0.2
        _core.probe_take()
        time.sleep(0.1)
        assert _core.probe_take()[0] <= 2  # blocked: nothing to ask about
    finally:
        _core.probe_stop()
    shares_after = _core.probe_take()
    assert shares_after[0] <= 2


class SlowOrder(torch.utils.data.SequentialSampler):
    """A sampler that takes its time, in the process that asks it; its length is torch's to tell."""

    def __init__(self) -> None:
        super().__init__(range(240))

    def __iter__(self) -> Iterator[int]:
        for index in super().__iter__():
            time.sleep(0.005)
            yield index


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("loader_class", LOADERS, ids=["torch", "millhead"])
def test_a_slow_sampler_is_found(loader_class: Any, workers: int, tmp_path: Path) -> None:
    loader = loader_class(range(240), 4, sampler=SlowOrder(), num_workers=workers)
    watched = millhead.watch(loader, run=tmp_path)
    for _ in watched:
        time.sleep(0.005)
    verdict = watched.verdict()
    assert verdict["cause"] == "main-bound"
    assert "sampler" in verdict["fix"]
    assert verdict["fix_settings"] == {}
    orders = _events(tmp_path, "order")
    # Without workers an order is part of its own batch's wait; with them, of an earlier one's.
    assert len(orders) >= (50 if workers else 0)
    assert all(event["ns"] >= 4 * 5_000_000 for event in orders[:50])


def test_a_slow_sampler_is_found_where_workers_share_batches(tmp_path: Path) -> None:
    loader = millhead.torch.DataLoader(
        range(240), 4, sampler=SlowOrder(), num_workers=2, dispatch="sample"
    )
    watched = millhead.watch(loader, run=tmp_path)
    for _ in watched:
        time.sleep(0.005)
    assert len(_events(tmp_path, "order")) >= 50
    verdict = watched.verdict()
    assert (verdict["cause"], verdict["fix_settings"]) == ("main-bound", {})
    assert "sampler" in verdict["fix"]


class SlowBeginning(torch.utils.data.SequentialSampler):
    """A sampler that sorts everything before its first index."""

    def __init__(self) -> None:
        super().__init__(range(80))

    def __iter__(self) -> Iterator[int]:
        time.sleep(0.3)
        yield from super().__iter__()


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("loader_class", LOADERS, ids=["torch", "millhead"])
def test_a_sampler_that_begins_slowly_is_no_start_of_workers(
    loader_class: Any, persistent: bool, tmp_path: Path
) -> None:
    loader = loader_class(
        range(80), 4, sampler=SlowBeginning(), num_workers=2, persistent_workers=persistent
    )
    torchs = torch.utils.data.dataloader._MultiProcessingDataLoaderIter
    ask = torchs._try_put_index
    watched = millhead.watch(loader, run=tmp_path)
    for _ in range(3):
        for _ in watched:
            time.sleep(0.005)
    assert torchs._try_put_index is ask  # as it was
    setups = _events(tmp_path, "setup")
    assert len(setups) == 3
    assert all(300_000_000 <= event["order"] <= event["ns"] for event in setups)
    verdict = watched.verdict()
    assert verdict["cause"] == "startup-bound"
    assert "sampler" in verdict["fix"]
    assert verdict["fix_settings"] == {}


class Distant(torch.utils.data.Dataset[int]):
    """Waits for every sample."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> int:
        time.sleep(0.01)
        return index


def test_the_cause_is_named_where_workers_share_batches(tmp_path: Path) -> None:
    loader = millhead.torch.DataLoader(Distant(), 4, num_workers=2, dispatch="sample")
    watched = millhead.watch(loader, run=tmp_path)
    for _ in watched:
        time.sleep(0.002)
    verdict = watched.verdict()
    assert verdict["cause"] == "latency-bound"
    assert verdict["fix_settings"]["num_workers"] > 2


class Stepping(torch.utils.data.Dataset[int]):
    """One whose state workers bring along."""

    def __len__(self) -> int:
        return 240

    def __getitem__(self, index: int) -> int:
        return index

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        assert state == {}


def test_a_slow_sampler_is_found_in_an_epoch_that_was_resumed(tmp_path: Path) -> None:
    def loader() -> Any:
        return millhead.torch.DataLoader(
            Stepping(), 4, sampler=SlowOrder(), num_workers=2, snapshot_every_n_steps=4
        )

    first = loader()
    batches = iter(first)
    for _ in range(6):
        next(batches)
    state = first.state_dict()
    assert state["_steps_since_snapshot"] == 2  # those are fetched again
    del batches
    second = loader()
    second.load_state_dict(state)
    watched = millhead.watch(second, run=tmp_path)
    for _ in watched:
        time.sleep(0.005)
    assert len(_events(tmp_path, "order")) >= 40
    assert "sampler" in watched.verdict()["fix"]


class Texts(torch.utils.data.Dataset[str]):
    """Long texts that cost nothing to make."""

    def __len__(self) -> int:
        return 320

    def __getitem__(self, index: int) -> str:
        return chr(97 + index % 26) * 500_000


@pytest.mark.parametrize("loader_class", LOADERS, ids=["torch", "millhead"])
def test_no_workers_are_advised_where_pickling_costs_more(
    loader_class: Any, tmp_path: Path
) -> None:
    watched = millhead.watch(loader_class(Texts(), batch_size=8), run=tmp_path)
    for _ in watched:
        time.sleep(0.0005)
    (first, *_) = _events(tmp_path, "wait")
    assert first["texts"] == 8 * 500_000
    verdict = watched.verdict()
    assert "num_workers" not in verdict["fix_settings"]


def test_a_loop_in_another_thread_is_watched_without_the_probe(tmp_path: Path) -> None:
    import threading

    watched = millhead.watch(torch.utils.data.DataLoader(Random(8), batch_size=4), run=tmp_path)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(len(batch) for batch in watched))
    thread.start()
    thread.join()
    watched.close()
    assert found == [4, 4]
    assert [("cpu" in event, "probes" in event) for event in _events(tmp_path, "fetch")] == [
        (True, False),
        (True, False),
    ]


def test_a_verdict_in_the_middle_knows_every_batch(tmp_path: Path) -> None:
    """Lines are written ten times a second: those that wait for it count too."""
    watched = millhead.watch(torch.utils.data.DataLoader(range(100), batch_size=2), run=tmp_path)
    for number, _ in enumerate(watched, 1):
        if number in (3, 20):
            watched.verdict()
            assert len(_events(tmp_path, "wait")) == len(_events(tmp_path, "fetch")) == number
    assert len(_events(tmp_path, "wait")) == len(_events(tmp_path, "step")) == 50


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_forked_child_writes_nothing_of_its_parents(goes_on: bool, tmp_path: Path) -> None:
    watched = millhead.watch(range(100), run=tmp_path)
    iterator = iter(watched)
    for _ in range(50):
        next(iterator)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            if goes_on:
                next(iterator)
            del iterator, watched
            gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    assert len(list(iterator)) == 50
    watched.close()
    batches = [event["batch"] for event in _events(tmp_path, "wait")]
    assert sorted(batches) == sorted([*range(100), *([50] if goes_on else [])])


@pytest.mark.parametrize("persistent", [False, True])
def test_a_loop_that_is_left_early(persistent: bool, tmp_path: Path) -> None:
    loader = torch.utils.data.DataLoader(
        Random(), batch_size=4, num_workers=2, persistent_workers=persistent
    )
    for epoch in range(3):
        for number, _ in enumerate(millhead.watch(loader, run=tmp_path)):
            if epoch < 2 and number == 1:
                break
    millhead.watch(loader, run=tmp_path).close()
    epochs = _events(tmp_path, "epoch")
    assert [event["epoch"] for event in epochs] == [0, 1, 2]
    assert [event["batches"] for event in epochs] == [2, 2, 12]
    assert [event["complete"] for event in epochs] == [False, False, True]
    assert len(_events(tmp_path, "loader")) == 1
    assert set(_keys(_events(tmp_path, "wait"))) <= set(_keys(_events(tmp_path, "fetch")))
    with (tmp_path / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["0", "1", "2", "all"]
    assert [row["batches"] for row in rows] == ["2", "2", "12", "16"]


def test_nested_iterators_and_two_at_once(tmp_path: Path) -> None:
    outer = millhead.watch(torch.utils.data.DataLoader(range(4)), run=tmp_path, name="outer")
    inner = millhead.watch(torch.utils.data.DataLoader(range(3)), run=tmp_path, name="inner")
    assert [(int(a), int(b)) for a in outer for b in inner] == [
        (a, b) for a in range(4) for b in range(3)
    ]
    first, second = iter(outer), iter(outer)
    assert [int(a) for pair in zip(first, second, strict=True) for a in pair] == [
        0, 0, 1, 1, 2, 2, 3, 3,
    ]  # fmt: skip
    outer.close()
    epochs = Counter(event["loader"] for event in _events(tmp_path, "epoch"))
    assert epochs == {0: 3, 1: 4}


def test_the_effective_batch_size_is_written_down(tmp_path: Path) -> None:
    sampler = millhead.torch.DistributedSampler(range(12), num_replicas=3, rank=0)
    loader = millhead.torch.DataLoader(range(12), 2, sampler=sampler, accumulate=2)
    (watched := millhead.watch(loader, run=tmp_path)).__iter__().__next__()
    watched.close()
    (event,) = _events(tmp_path, "loader")
    assert (event["batch_size"], event["effective_batch_size"]) == (2, 12)


def test_the_bytes_of_a_batch_are_told_by_what_they_are_in() -> None:
    tensor, array = torch.zeros(3, 4), numpy.zeros(5, dtype=numpy.int16)
    assert bytes_in(tensor) == (48, -1)
    assert bytes_in({"a": [tensor, "text"], "b": (array, b"to", {"c": tensor})}) == (106, 6)
    assert bytes_in(torch.zeros(0)) == (0, -1)
    assert bytes_in(["a", 7, None]) == (-1, 10)
    assert bytes_in([{"x": 0.5, "y": "text"}] * 2000) == (-1, 333 * (4 + 9))  # as far as seen
    assert bytes_in(["\u6c34\u8eca", "\ud800"]) == (-1, 9)  # as they are pickled: in UTF-8
    assert bytes_in([tensor] * 2000) == (-1, -1)  # looked at no longer than that
    endless: list[Any] = [tensor]
    endless.append(endless)
    assert bytes_in(endless) == (-1, -1)


def test_samples_in_turn_are_runs(tmp_path: Path) -> None:
    loader = millhead.torch.DataLoader(Random(16), batch_size=8, num_workers=2, dispatch="sample")
    watched = millhead.watch(loader, run=tmp_path)
    assert sum(len(batch) for batch in watched) == 16
    watched.close()
    assert {event["worker"] for event in _events(tmp_path, "wait")} == {-1}
    assert sum(event["samples"] for event in _events(tmp_path, "fetch")) == 16
    assert _events(tmp_path, "loader")[0]["dispatch"] == "sample"


def test_without_a_run_nothing_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loader = torch.utils.data.DataLoader(Random(8), batch_size=4, num_workers=2)
    for _ in range(2):
        for _ in (watched := millhead.watch(loader)):
            pass
    stats = watched.stats()
    assert (stats["epochs"], stats["batches"], stats["samples"]) == (2, 4, 16)
    events = [json.loads(line) for line in Path(watched._watch.log.path).read_text().splitlines()]
    assert Counter(event["event"] for event in events)["fetch"] == 4
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_written_stops_no_loop() -> None:
    loader = torch.utils.data.DataLoader(range(4), num_workers=1)
    watched = millhead.watch(loader, run="/proc/no/such")
    with pytest.warns(millhead.Advice, match="events are lost"):
        batches = list(watched)
    assert [int(batch) for batch in batches] == [0, 1, 2, 3]
    assert watched.stats()["events_lost"] > 0 and watched.stats()["batches"] == 4


# ---- every loader of a program -------------------------------------------------------------------

SCRIPT = """
import torch, torch.utils.data, sys
class Squares(torch.utils.data.Dataset):
    def __len__(self): return 12
    def __getitem__(self, index): return torch.tensor([index * index])
def main():
    loader = torch.utils.data.DataLoader(
        Squares(), batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1])
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for epoch in range(2):
        for batch in loader:
            model(batch.float()).sum().backward()
            optimizer.step()
    print(type(iter(loader)).__module__)
if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("ours", [False, True], ids=["torch", "millhead"])
def test_the_environment_watches_a_program(start: str, ours: bool, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    environment = {
        **os.environ,
        "PYTHONPATH": STARTUP,
        "MILLHEAD_WATCH": str(tmp_path / "run"),
        "MILLHEAD_WATCH_HOOKS": "1",
        **({"MILLHEAD_RUN": "1"} if ours else {}),
    }
    command = [sys.executable, str(script), start]
    done = procs.run(command, seconds=90.0, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (
        "millhead.torch.iterators.multiprocess" if ours else "torch.utils.data.dataloader"
    )
    run = tmp_path / "run"
    (loader,) = _events(run, "loader")
    assert loader["kind"] == ("millhead" if ours else "torch")
    waits = _events(run, "wait")
    assert len(waits) == 6 and set(_keys(waits)) <= set(_keys(_events(run, "fetch")))
    assert all("train" in event for event in _events(run, "step"))
    assert [event["event"] for event in _events(run)][-1] == "end"
    assert (run / "summary.csv").exists() and (run / "run.json").exists()


def test_watch_all_and_back(tmp_path: Path) -> None:
    before = torch.utils.data.DataLoader.__iter__
    loader = torch.utils.data.DataLoader(range(4), batch_size=2)
    millhead.torch.watch_all(tmp_path)
    try:
        assert len(list(loader)) == 2
        watched = millhead.watch(loader)  # the same recording
        assert len(list(watched)) == 2 and watched.stats()["epochs"] == 2
    finally:
        millhead.torch.unwatch_all()
    assert torch.utils.data.DataLoader.__iter__ is before
    assert len(list(loader)) == 2
    assert len(_events(tmp_path, "epoch")) == 2


def test_importing_millhead_imports_no_torch() -> None:
    code = "import sys, millhead; millhead.watch([1]); print('torch' in sys.modules)"
    done = procs.run([sys.executable, "-c", code], seconds=60.0)
    assert done.stdout.strip() == "False", done.stderr


def test_a_process_that_nobody_samples_looks_at_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = iter([{"pss": 100}, {}, {"pss": 300}])

    def usage(pid: int, walk: bool) -> dict[str, Any]:
        return {"pid": pid, "started": 7, "rss": 1000, "delay": 5, **next(shares)}

    monkeypatch.setattr(_core, "usage", usage, raising=False)
    monkeypatch.setattr(_core, "system", lambda: {"cpus": 2}, raising=False)
    monkeypatch.setattr(_core, "children", lambda pid: [], raising=False)
    monkeypatch.setattr("millhead.watching.usage_sampler.SELF_PERIOD_NS", 0)
    watched = millhead.watch(range(3), run=tmp_path)
    iterator = iter(watched)
    for number in range(3):
        assert next(iterator) == number
        time.sleep(0.11)  # lines are written ten times a second
    watched.close()
    found = [(event["pid"], event["role"], event["pss"]) for event in _events(tmp_path, "usage")]
    assert found == [
        (os.getpid(), "main", 100),
        (os.getpid(), "main", 100),
        (os.getpid(), "main", 300),
    ]
    assert [event["cpus"] for event in _events(tmp_path, "system")] == [2, 2, 2]
    monkeypatch.setenv("MILLHEAD_SAMPLED", "1")
    watched = millhead.watch([1], run=tmp_path / "outside")
    assert list(watched) == [1]
    watched.close()
    assert not _events(tmp_path / "outside", "usage", "system")


def test_a_delay_is_no_more_than_the_time_off_the_cpus() -> None:
    fetches = _core.Fetches(0, 0, 0, False)

    def fetch() -> dict[str, int]:
        fetches.begin()
        time.sleep(0.002)
        fetches.fetched(1)
        found = [json.loads(line) for line in fetches.done().splitlines()]
        return next(event for event in found if event["event"] == "fetch")

    cpus = os.sched_getaffinity(0)
    rival = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        for process in (0, rival.pid):
            os.sched_setaffinity(process, {min(cpus)})
        for _ in range(5):
            rival.send_signal(signal.SIGSTOP)
            events = [fetch() for _ in range(5)]  # the thread hardly waits for a CPU,
            rival.send_signal(signal.SIGCONT)
            until = time.monotonic() + 0.06
            while time.monotonic() < until:  # then it does, between two fetches
                pass
            rival.send_signal(signal.SIGSTOP)
            events.append(fetch())
            for event in events:
                assert event["ns"] >= 2_000_000
                assert 0 <= event.get("delay", 0) <= event["ns"] - event["cpu"]
    finally:
        rival.kill()
        rival.wait()
        os.sched_setaffinity(0, cpus)


def test_a_loader_of_torchs_is_watched_where_millhead_torch_was_not_imported() -> None:
    code = (
        "import millhead\n"
        "from torch.utils.data import DataLoader\n"
        "print(len(list(millhead.watch(DataLoader(range(6), batch_size=2)))))\n"
    )
    done = procs.run_python(code)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
