"""timeout=: when it is raised, what it says of the worker, and what is left after it."""

from __future__ import annotations

import functools
import multiprocessing
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import procs
from millhead.torch import DataLoader
from torch.utils.data import IterableDataset, get_worker_info

Torchs = torch.utils.data.DataLoader
LONG = 120.0  # longer than any test may take


class Stuck:
    """Hangs in sample 3, in a way of its own, and says so by a file."""

    def __init__(self, flag: Path, how: Callable[[], Any] = lambda: time.sleep(LONG)) -> None:
        self.flag = flag
        self.how = how

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        if index == 3:
            self.read_a_lost_file()
        return index

    def read_a_lost_file(self) -> None:
        self.flag.touch()
        self.how()


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    """A file that is there when a sample hangs, or when a late one may come."""
    return tmp_path / "flag"


def _line_of(function: Callable[..., Any], text: str) -> str:
    """File and line where a function has a text, as a stack shows it."""
    lines = Path(__file__).read_text().splitlines()
    first = function.__code__.co_firstlineno
    number = next(n for n in range(first, len(lines) + 1) if text in lines[n - 1])
    return f'File "{__file__}", line {number} in {function.__name__}'


def _time_out(
    dataset: Any, flag: Path, timeout: float = 0.3, **arguments: Any
) -> tuple[str, list[int]]:
    """What is raised once a sample hangs, and the workers' pids; nothing may be left of them."""
    arguments = {"num_workers": 1, "prefetch_factor": 8, **arguments}
    iterator = iter(DataLoader(dataset, timeout=timeout, **arguments))
    pids = [worker.pid for worker in iterator._workers]
    assert procs.wait_until(flag.exists, seconds=60)  # now the batches before it are there
    with pytest.raises(RuntimeError, match="DataLoader timed out") as caught:
        while True:
            began = time.monotonic()
            next(iterator)
    assert time.monotonic() - began >= timeout * 0.9
    for worker in iterator._workers:
        worker.kill()
    iterator._shutdown_workers()
    assert procs.wait_until(lambda: not any(procs.is_running(pid) for pid in pids))
    return str(caught.value), pids


# ---- what is said ------------------------------------------------------------------------------------


def test_seconds_worker_sample_and_stack_are_named(flag: Path) -> None:
    text, pids = _time_out(Stuck(flag), flag, timeout=1, num_workers=2)
    assert text.startswith("DataLoader timed out after 1 seconds")
    assert f"worker 1 (pid {pids[1]})" in text
    assert "sample index 3" in text
    assert _line_of(Stuck.__getitem__, "self.read_a_lost_file()") in text
    assert _line_of(Stuck.read_a_lost_file, "self.how()") in text


def test_the_stack_ends_where_the_sample_hangs(flag: Path) -> None:
    text, _ = _time_out(Stuck(flag), flag)
    stack = text[text.index("most recent call first") :].splitlines()
    assert [line.rpartition(" in ")[2] for line in stack[1:4]] == [
        "<lambda>",
        "read_a_lost_file",
        "__getitem__",
    ]


def test_the_place_in_the_batch_is_told(flag: Path) -> None:
    text, _ = _time_out(Stuck(flag), flag, batch_size=6)
    assert "sample index 3 (number 3 of its batch)" in text


def test_single_samples_are_named_too(flag: Path) -> None:
    text, _ = _time_out(Stuck(flag), flag, batch_size=None)
    assert "sample index 3" in text
    assert "in read_a_lost_file" in text


class Items(Stuck, IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        for number in range(12):
            yield self[number]


@pytest.mark.parametrize("batch_size", [2, None])
def test_items_of_streams_are_named(batch_size: int | None, flag: Path) -> None:
    text, _ = _time_out(Items(flag), flag, batch_size=batch_size)
    assert re.search(r"\bitem 3\b", text)
    assert _line_of(Items.__iter__, "yield self[number]") in text


def collate_for_ever(flag: Path, samples: list[int]) -> Any:
    if samples[0] == 2:
        flag.touch()
        time.sleep(LONG)
    return samples


def test_a_collate_function_that_hangs_is_in_the_stack(flag: Path) -> None:
    collate = functools.partial(collate_for_ever, flag)
    text, _ = _time_out(range(8), flag, batch_size=2, collate_fn=collate)
    assert _line_of(collate_for_ever, "time.sleep(LONG)") in text


def test_a_collate_function_that_hangs_is_not_blamed_on_a_sample(flag: Path) -> None:
    collate = functools.partial(collate_for_ever, flag)
    text, _ = _time_out(range(8), flag, batch_size=2, collate_fn=collate)
    assert "collating" in text
    assert "fetching" not in text.splitlines()[0]


def _spin() -> None:
    while True:
        pass


def _wait_for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def _wait_on_a_thread() -> None:
    thread = threading.Thread(target=time.sleep, args=(LONG,), daemon=True)
    thread.start()
    thread.join()


@pytest.mark.parametrize("how", [_spin, _wait_for_a_lock, _wait_on_a_thread])
def test_whatever_a_sample_waits_for_its_stack_is_had(how: Callable[[], None], flag: Path) -> None:
    text, _ = _time_out(Stuck(flag, how), flag)
    assert f"in {how.__name__}" in text
    assert "in read_a_lost_file" in text


def _block_all_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(LONG)


def test_a_worker_that_answers_no_signal_is_said_to_give_no_stack(flag: Path) -> None:
    text, pids = _time_out(Stuck(flag, _block_all_signals), flag)
    assert f"worker 0 (pid {pids[0]})" in text
    assert "sample index 3" in text
    assert "no stack" in text


def test_a_stopped_worker_is_named_as_stopped() -> None:
    iterator = iter(DataLoader(range(40), num_workers=2, timeout=1))
    assert [int(next(iterator)) for _ in range(4)] == [0, 1, 2, 3]
    pid = iterator._workers[0].pid
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(RuntimeError, match="DataLoader timed out after 1 seconds") as caught:
        for _ in range(36):
            next(iterator)
    text = str(caught.value)
    assert f"worker 0 (pid {pid})" in text
    assert "stopped" in text
    assert f"kill -CONT {pid}" in text
    os.kill(pid, signal.SIGCONT)
    rest = [int(batch) for batch in iterator]
    assert rest == list(range(rest[0], 40))
    assert rest[0] % 2 == 0


class SlowToLoad(Stuck):
    """Cannot be unpickled in a hurry, and not in a template, because it opens a file."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.file = Path(__file__).open()  # noqa: SIM115 - as long as the dataset lives
        if multiprocessing.current_process().name != "millhead-template":
            time.sleep(LONG)


@pytest.mark.filterwarnings("ignore:millhead. workers start one by one")
def test_a_worker_that_is_still_unpickling_is_said_to_be(flag: Path) -> None:
    dataset = SlowToLoad(flag, how=print)
    loader = DataLoader(dataset, num_workers=2, multiprocessing_context="spawn", timeout=90)
    iterator = iter(loader)  # waits for the template, which can be worker 0 only
    pid = iterator._workers[1].pid
    next(iterator)
    iterator._group.timeout = 1
    with pytest.raises(RuntimeError, match="^DataLoader timed out after 1 seconds") as caught:
        next(iterator)
    assert "worker 1" in str(caught.value)
    assert "has not begun to work" in str(caught.value)
    iterator._workers[1].kill()
    iterator._shutdown_workers()
    assert procs.wait_until(lambda: not procs.is_running(pid))


class NeverLoaded(Stuck):
    def __setstate__(self, state: dict[str, Any]) -> None:
        time.sleep(LONG)


def test_a_dataset_that_never_finishes_unpickling_is_reported(flag: Path) -> None:
    loader = DataLoader(
        NeverLoaded(flag, print), num_workers=1, multiprocessing_context="spawn", timeout=1
    )
    with pytest.raises(RuntimeError, match="^DataLoader timed out after 1 seconds") as caught:
        next(iter(loader))
    (pid,) = re.findall(r"pid (\d+)", str(caught.value))
    assert procs.wait_until(lambda: not procs.is_running(int(pid)))


# ---- when it is raised -------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0.05, 1.5])
def test_short_and_long_timeouts_are_kept_and_told(timeout: float, flag: Path) -> None:
    text, _ = _time_out(Stuck(flag), flag, timeout=timeout)
    assert text.startswith(f"DataLoader timed out after {timeout} seconds")


class Quick:
    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> int:
        return index


def test_a_slow_consumer_is_not_blamed_on_the_workers() -> None:
    iterator = iter(DataLoader(Quick(), num_workers=2, timeout=1, prefetch_factor=1))
    for number, batch in enumerate(iterator):
        assert int(batch) == number
        if number == 4:
            time.sleep(1.3)


class Late(Quick):
    """Sample 3 comes when it is told to."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __getitem__(self, index: int) -> int:
        if index == 3:
            procs.wait_until(self.flag.exists, seconds=60)
        return index


@pytest.mark.parametrize(
    ("cls", "workers"),
    [(Torchs, 1), (DataLoader, 1), (DataLoader, 2)],
    ids=["torch", "1 worker", "2 workers"],
)
def test_after_a_timeout_the_late_batch_and_all_others_still_come(
    workers: int, cls: Any, flag: Path
) -> None:
    iterator = iter(cls(Late(flag), num_workers=workers, timeout=1))
    seen: list[int] = []
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        while True:
            seen.append(int(next(iterator)))
    flag.touch()
    seen += [int(batch) for batch in iterator]
    assert seen == list(range(30))


def test_out_of_order_only_a_wait_for_all_is_too_long(flag: Path) -> None:
    loader = DataLoader(Late(flag), num_workers=2, timeout=1, in_order=False, prefetch_factor=1)
    iterator = iter(loader)
    first = [int(next(iterator)) for _ in range(29)]
    assert 3 not in first
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        next(iterator)
    flag.touch()
    assert [int(batch) for batch in iterator] == [3]


def test_a_persistent_epoch_after_a_timeout_is_whole(flag: Path) -> None:
    loader = DataLoader(Late(flag), num_workers=2, timeout=1, persistent_workers=True)
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        list(loader)
    flag.touch()
    for _ in range(2):
        assert [int(batch) for batch in loader] == list(range(30))


def test_without_workers_a_timeout_is_refused_as_torch_refuses_it() -> None:
    def failure(cls: Any) -> tuple[type, str]:
        with pytest.raises(Exception, match="timeout") as caught:
            iter(cls(Quick(), timeout=1))
        return caught.type, str(caught.value)

    assert failure(DataLoader) == failure(Torchs)


# ---- what is left ------------------------------------------------------------------------------------


def _ignore_terminate() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(LONG)


def test_a_loop_that_times_out_leaves_nothing_even_of_a_stubborn_worker(flag: Path) -> None:
    """The conftest looks for processes and descriptors; here nobody shuts down by hand."""

    def train() -> set[int]:
        pids: set[int] = set()
        try:
            loader = DataLoader(Stuck(flag, _ignore_terminate), num_workers=2, timeout=1)
            for _ in loader:
                pids |= procs.children()
        except RuntimeError as error:
            assert "timed out" in str(error)
        return pids

    pids = train()
    assert len(pids) == 2
    assert procs.wait_until(lambda: not any(procs.is_running(pid) for pid in pids), seconds=20)


# ---- order -------------------------------------------------------------------------------------------


class OneSleeps(Quick):
    def __getitem__(self, index: int) -> int:
        if index == 0:
            time.sleep(3)
        return index


def test_out_of_order_one_sample_of_three_seconds_does_not_hold_the_others() -> None:
    loader = DataLoader(OneSleeps(), num_workers=2, in_order=False, prefetch_factor=1)
    seen = [int(batch) for batch in loader]
    assert seen == [*range(1, 30), 0]


class WhoLoads(Quick):
    def __len__(self) -> int:
        return 120

    def __getitem__(self, index: int) -> int:
        info = get_worker_info()
        assert info is not None
        return info.id


def test_out_of_order_no_worker_is_left_waiting_for_a_slow_consumer() -> None:
    seen: list[int] = []
    for batch in DataLoader(WhoLoads(), num_workers=2, in_order=False):
        seen.append(int(batch))
        time.sleep(0.005)
    assert len(seen) == 120
    middle = seen[20:100]  # while both have work
    assert min(middle.count(0), middle.count(1)) >= 10


class Leisurely:
    """Every sample is waited for."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        time.sleep(0.25)
        return index


def test_an_infinite_timeout_waits() -> None:
    loader = DataLoader(Leisurely(), batch_size=1, num_workers=1, timeout=float("inf"))
    assert [int(batch) for batch in loader] == [0, 1, 2]
