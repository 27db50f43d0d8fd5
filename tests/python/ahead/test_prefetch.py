"""``millhead.prefetch``: the same items in order, ahead of the loop; errors in place; a clean end."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest
from helpers import procs

MODES = ["thread", "process"]
both = pytest.mark.parametrize("mode", MODES)


def _batches() -> Iterator[dict[str, Any]]:
    for number in range(7):
        yield {"x": np.full((3, 50_000), number), "small": np.arange(number), "name": str(number)}


@both
def test_items_come_in_order_and_as_they_are(mode: str) -> None:
    found = list(millhead.prefetch(_batches, 3, mode=mode))
    for left, right in zip(found, _batches(), strict=True):
        assert left["name"] == right["name"]
        for key in ("x", "small"):
            assert left[key].dtype == right[key].dtype
            assert np.array_equal(left[key], right[key])
            left[key] += 1  # the loop's own: writable, and nobody else's
    assert [int(item["x"][0, 0]) for item in found] == list(range(1, 8))


@both
def test_a_function_and_a_list_give_every_epoch_a_generator_one(mode: str) -> None:
    ahead = millhead.prefetch(_batches, mode=mode)
    assert [len(list(ahead)) for _ in range(3)] == [7, 7, 7]
    listed = millhead.prefetch([1, 2, 3], mode=mode)
    assert len(listed) == 3
    assert [list(listed) for _ in range(2)] == [[1, 2, 3]] * 2
    ahead.close()
    listed.close()


def test_a_thread_makes_n_items_ahead_and_no_more() -> None:
    made: list[int] = []

    def count() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    with millhead.prefetch(count, 3) as ahead:
        iterator = iter(ahead)
        assert next(iterator) == 0
        assert procs.wait_until(lambda: len(made) == 4)
        time.sleep(0.1)
        assert len(made) == 4


class Fails:
    """Goes on after an exception, as an iterator may."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Fails:
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at == 3:
            raise KeyError("sample 3")
        if self.at == 6:
            raise StopIteration
        return self.at


@both
def test_an_exception_comes_in_its_place_and_the_next_call_goes_on(mode: str) -> None:
    iterator = iter(millhead.prefetch(Fails(), 2, mode=mode))
    assert [next(iterator), next(iterator)] == [1, 2]
    with pytest.raises(KeyError, match="sample 3") as caught:
        next(iterator)
    if mode == "process":
        assert "__next__" in str(caught.value.__cause__)  # the traceback over there
    assert list(iterator) == [4, 5]
    assert list(iterator) == []


@both
def test_a_loop_that_is_left_ends_the_maker_and_its_generator(mode: str, tmp_path: Path) -> None:
    closed = tmp_path / "closed"

    def endless() -> Iterator[int]:
        try:
            yield from range(1_000_000)
        finally:
            closed.touch()

    threads = threading.active_count()
    for number in millhead.prefetch(endless, 2, mode=mode):
        if number == 5:
            break
    gc.collect()
    assert procs.wait_until(closed.exists)
    assert procs.wait_until(lambda: threading.active_count() == threads)


def test_a_process_that_is_killed_is_named() -> None:
    def kill() -> Iterator[int]:
        yield 1
        os.kill(os.getpid(), signal.SIGKILL)

    iterator = iter(millhead.prefetch(kill, 1, mode="process"))
    assert next(iterator) == 1
    with pytest.raises(RuntimeError, match="ended by signal 9"):
        next(iterator)
    assert list(iterator) == []


def test_what_cannot_be_sent_is_refused_with_what_to_do() -> None:
    generator = (number for number in range(3))
    with pytest.raises(TypeError, match="mode='thread'"):
        iter(millhead.prefetch(generator, mode="process", context="spawn"))


INTERRUPTED = """
import sys, time, millhead
def slow():
    yield 1
    time.sleep(60)
    yield 2
for item in millhead.prefetch(slow, 2, mode=sys.argv[1]):
    print("got", item, flush=True)
"""


@both
def test_control_c_and_the_end_of_the_program_do_not_hang(mode: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"got 1\n"
        program.send_signal(signal.SIGINT)
        _, told = program.communicate(timeout=30)
    assert program.returncode == -signal.SIGINT
    assert told.splitlines()[-1] == b"KeyboardInterrupt"


@both
def test_a_watched_loop_tells_what_making_items_takes(mode: str) -> None:
    def slow() -> Iterator[int]:
        for number in range(30):
            time.sleep(0.02)
            yield number

    ahead = millhead.prefetch(slow, 2, mode=mode)
    watched = millhead.watch(ahead)
    assert list(watched) == list(range(30))
    verdict = watched.verdict()
    assert verdict["loader"]["kind"] == "prefetch"
    assert verdict["stages"]["wait_blocked"] > 0.5
    assert verdict["cause"] == "latency-bound"
    stats = ahead.stats()
    assert (stats["path"], stats["batches"], stats["wait_ms"]["count"]) == ("prefetch", 30, 31)
    assert ahead.stats(reset=True) and ahead.stats()["batches"] == 0


def test_the_fix_for_a_loop_over_a_generator_is_prefetch() -> None:
    class Slow:
        def __iter__(self) -> Iterator[int]:
            for number in range(40):
                time.sleep(0.02)
                yield number

    watched = millhead.watch(Slow())
    for _ in watched:
        time.sleep(0.02)
    verdict = watched.verdict()
    assert verdict["cause"] == "latency-bound"
    assert "for batch in millhead.prefetch(batches, 2): a thread" in verdict["fix"]
    assert verdict["predicted_gain"] > 1.2


@pytest.mark.parametrize("n", [0, -1, 1.5])
def test_a_wrong_count_or_mode_is_refused(n: Any) -> None:
    with pytest.raises(ValueError, match="n should be"):
        millhead.prefetch([], n)
    with pytest.raises(ValueError, match="mode should be"):
        millhead.prefetch([], mode="fibre")
    with pytest.raises(TypeError, match="another iterable.*, not 3"):
        millhead.prefetch(3)  # type: ignore[arg-type]
