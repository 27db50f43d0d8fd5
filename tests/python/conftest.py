"""Every test is held to a time limit and must leave no child process and no descriptor behind."""

from __future__ import annotations

import gc
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
from collections.abc import Generator, Iterator
from typing import Any

import millhead.torch.loader_stats
import pytest
import torch
from helpers import procs
from helpers.accelerator import accelerator  # noqa: F401 - a fixture
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

LIMIT_SECONDS = 100.0


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "limit(seconds): another time limit than 100 s")
    config.addinivalue_line("filterwarnings", "ignore:This DataLoader will create:UserWarning")


@pytest.fixture(scope="session", autouse=True)
def standing_helpers() -> None:
    """Starts what multiprocessing keeps for good, so that no test is blamed for it."""
    multiprocessing.resource_tracker.ensure_running()
    multiprocessing.forkserver.ensure_running()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # what is imported stays: collecting between tests then costs little


@pytest.fixture(autouse=True)
def no_advice_given_yet(nothing_left: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Advice is given once per process; every test counts as one."""
    monkeypatch.setattr(millhead.torch.loader_stats, "_advised", set())


@pytest.fixture(autouse=True)
def no_torch_workers_beside_a_sanitizer(
    nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skips what starts torch's own workers under AddressSanitizer: they come with threads in this
    process, and a fork beside a thread may find the sanitizer's allocator locked for ever."""

    def skip(iterator: Any, *_: Any) -> None:
        iterator._shutdown = True  # for its finaliser
        pytest.skip("torch's own workers do not go with AddressSanitizer")

    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        monkeypatch.setattr(_MultiProcessingDataLoaderIter, "__init__", skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[_FAILED] = report.failed
    return report


_FAILED = pytest.StashKey[bool]()


@pytest.fixture(autouse=True)
def time_limit(request: pytest.FixtureRequest) -> Iterator[None]:
    """Raises in the test when it takes too long."""
    marker = request.node.get_closest_marker("limit")
    seconds = float(marker.args[0]) if marker else LIMIT_SECONDS

    def stop(*_: Any) -> None:
        raise TimeoutError(f"the test took more than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def _left_over(children: set[int], descriptors: dict[int, str]) -> list[str]:
    left = [f"child process {pid}" for pid in sorted(procs.children() - children)]
    for number, target in procs.descriptors().items():
        if descriptors.get(number) != target:
            left.append(f"descriptor {number} ({target})")
    return left


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest, time_limit: None) -> Iterator[None]:
    """Fails a test that leaves child processes or descriptors behind.

    Those that take ``monkeypatch`` ask for this one first: what a test put in a module's place is
    then gone, with all that it kept alive, when this looks.
    """
    children, descriptors = procs.children(), procs.descriptors()
    yield
    if request.node.stash.get(_FAILED, True):
        return  # its traceback keeps what the test used alive
    if _left_over(children, descriptors):
        gc.collect()
        procs.wait_until(lambda: not _left_over(children, descriptors))
    left = _left_over(children, descriptors)
    assert not left, f"left behind: {', '.join(left)}"
