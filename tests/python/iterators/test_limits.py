"""Limits of descriptors, CPUs and memory: kept, raised where that is allowed, told of otherwise."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import millhead
import millhead.torch.loader_stats
import millhead.torch.start.machine_limits
import numpy as np
import pytest
import torch
from helpers import procs
from helpers import template_cases as tc
from helpers.template_cases import Plain
from millhead.torch import DataLoader

CPUS = sorted(os.sched_getaffinity(0))
MANY = 20


def _told_by(folder: Path, text: str, **options: Any) -> tuple[Any, str]:
    """Runs a script that prints JSON and must leave nothing; that, and what it wrote to stderr."""
    script = folder / "train.py"
    script.write_text(textwrap.dedent(text))
    result = procs.run([sys.executable, "-W", "ignore", str(script)], **options)
    assert result.returncode == 0, result.stderr
    assert result.left == set()  # type: ignore[attr-defined]
    return json.loads(result.stdout), result.stderr


# ---- descriptors ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Loaders of many workers under one limit after the other."""
    text = f"""
        import gc
        import json
        import os
        import re
        import resource
        from helpers import procs
        from millhead.torch import DataLoader
        from helpers.template_cases import Plain

        def tried(context, soft, hard):
            # In a forked child: an unprivileged process cannot raise its hard limit again.
            read, write = os.pipe()
            pid = os.fork()
            if pid:
                os.close(write)
                text = os.read(read, 100_000).decode()
                os.close(read)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
                return json.loads(text)
            loader = DataLoader(
                Plain(2 * {MANY}), num_workers={MANY}, multiprocessing_context=context
            )
            before = len(procs.descriptors())
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            try:
                iterator = iter(loader)
                told = {{"numbers": [int(batch) for batch in iterator]}}
                del iterator
            except Exception as error:
                told = {{"error": type(error).__name__, "text": str(error)}}
            told["start"] = loader.stats()["start"]
            del loader
            gc.collect()
            told["children"] = len(procs.children())
            told["grown"] = len(procs.descriptors()) - before
            told["limit"] = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            os.write(write, json.dumps(told).encode())
            os._exit(0)

        if __name__ == "__main__":
            told = {{"low": len(procs.descriptors()) + 12}}
            for context in ("fork", "spawn"):
                low = tried(context, told["low"], told["low"])
                told[f"refused {{context}}"] = low
                needed = int(re.findall(r"\\d+", low["text"])[1])
                told[f"needed {{context}}"] = needed
                told[f"exact {{context}}"] = tried(context, told["low"], needed)
            print(json.dumps(told))
    """
    told, errors = _told_by(tmp_path_factory.mktemp("descriptors"), text)
    assert errors == ""
    found: dict[str, Any] = told
    return found


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_too_few_descriptors_are_told_of_before_a_worker_starts(
    context: str, descriptors: dict[str, Any]
) -> None:
    told = descriptors[f"refused {context}"]
    assert told["error"] == "RuntimeError"
    assert told["text"].startswith("millhead: ")
    assert f"{MANY} workers need {descriptors[f'needed {context}']}" in told["text"]
    assert f"limit is {descriptors['low']} " in told["text"]
    assert descriptors[f"needed {context}"] > descriptors["low"]
    assert told["start"] == "none"
    assert told["children"] == 0
    assert told["grown"] <= 0


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_the_limit_is_raised_and_the_number_told_is_enough(
    context: str, descriptors: dict[str, Any]
) -> None:
    told = descriptors[f"exact {context}"]
    assert told.get("numbers") == list(range(2 * MANY)), told
    assert told["limit"] == descriptors[f"needed {context}"]
    assert told["children"] == 0


# ---- CPUs ----------------------------------------------------------------------------------------


@pytest.fixture
def unbound_thread() -> Iterator[None]:
    """A thread of this process that may use all CPUs while this one is bound to the first."""
    ready, done = threading.Event(), threading.Event()

    def wait() -> None:
        ready.set()
        done.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    ready.wait()
    os.sched_setaffinity(0, CPUS[:1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, CPUS)
        done.set()
        thread.join()


@pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_of_a_bound_thread_get_the_processes_cpus(
    context: str, unbound_thread: None
) -> None:
    loader = DataLoader(tc.Facts(2), num_workers=1, multiprocessing_context=context)
    told = [json.loads(text) for batch in loader for text in batch]
    assert [facts["cpus"] for facts in told] == [CPUS, CPUS]
    assert sorted(os.sched_getaffinity(0)) == CPUS[:1]


def test_workers_of_a_bound_process_keep_its_mask(tmp_path: Path) -> None:
    text = """
        import json
        from helpers import template_cases as tc
        import torch
        from millhead.torch import DataLoader

        torch.rand(600, 600) @ torch.rand(600, 600)
        loader = DataLoader(tc.Facts(2), num_workers=2, multiprocessing_context="fork")
        print(json.dumps([json.loads(text)["cpus"] for batch in loader for text in batch]))
    """
    told, errors = _told_by(tmp_path, text, preexec_fn=lambda: os.sched_setaffinity(0, CPUS[-1:]))
    assert told == [CPUS[-1:]] * 2, errors


# ---- memory --------------------------------------------------------------------------------------


@pytest.fixture
def available(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes the machine's available memory look like a number of bytes, for the checks alone."""
    core = millhead.torch.start.machine_limits._core

    def have(size: int) -> None:
        names = {name: getattr(core, name) for name in dir(core) if not name.startswith("__")}
        names["memory"] = lambda: (core.memory()[0], size)
        monkeypatch.setattr(
            millhead.torch.start.machine_limits, "_core", types.SimpleNamespace(**names)
        )

    return have


def _advice(action: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(millhead.torch.loader_stats, "_advised", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [str(item.message) for item in caught if item.category is millhead.Advice]


def test_memory_that_workers_would_need_and_that_is_not_there_is_told_of_once(
    available: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = DataLoader(Plain(), num_workers=3, multiprocessing_context="fork")
    available(7_000_000)
    (text,) = _advice(lambda: [list(loader), list(loader)], monkeypatch)
    each = millhead.torch.start.machine_limits.FORKED_BYTES
    assert "3 workers need about" in text
    assert f"{3 * each / 1e6:.0f} MB" in text
    assert "7 MB are available" in text
    available(3 * each + 10**6)
    assert _advice(lambda: list(loader), monkeypatch) == []


@pytest.mark.parametrize(
    "large",
    [
        np.zeros(3_000_000, dtype=np.uint8),
        torch.zeros(3_000_000, dtype=torch.uint8),
        b"x" * 3_000_000,
    ],
    ids=["array", "tensor", "bytes"],
)
def test_a_dataset_that_does_not_fit_when_pickled_is_refused_with_figures(
    large: Any, available: Callable[[int], None]
) -> None:
    loader = DataLoader(tc.Holding(large), num_workers=1, multiprocessing_context="spawn")
    available(2_000_000)
    children = procs.children()
    with (
        warnings.catch_warnings(),
        pytest.raises(MemoryError, match="takes 3 MB .* 2 MB of memory are available"),
    ):
        warnings.simplefilter("ignore")
        iter(loader)
    assert loader.stats()["start"] == "none"
    assert procs.children() == children


def test_a_refused_dataset_may_come_again_when_there_is_memory(
    available: Callable[[int], None],
) -> None:
    large = np.arange(400_000)
    loader = DataLoader(tc.Holding(large), num_workers=1, multiprocessing_context="spawn")
    available(2_000_000)
    with warnings.catch_warnings(), pytest.raises(MemoryError):
        warnings.simplefilter("ignore")
        iter(loader)
    available(10**12)
    assert [int(batch) for batch in loader] == list(range(8))
    assert loader.stats()["start"] == "template"


def test_too_little_address_space_is_an_error_and_passes(tmp_path: Path) -> None:
    """RLIMIT_AS a little above what the trainer has: no hang, nothing left, and then it works."""
    text = """
        import gc
        import json
        import re
        import resource
        from helpers import procs
        from millhead.torch import DataLoader
        from helpers.template_cases import Plain

        def tried(megabytes):
            with open("/proc/self/status") as file:
                size = int(re.search(r"VmSize:\\s+(\\d+)", file.read())[1]) * 1024
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            if megabytes is not None:
                resource.setrlimit(resource.RLIMIT_AS, (size + megabytes * 2**20, hard))
            loader = DataLoader(Plain(40), num_workers=2, multiprocessing_context="fork")
            try:
                return [int(batch) for batch in loader]
            except (MemoryError, RuntimeError, OSError) as error:
                return f"{type(error).__name__}: {error}"
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (hard, hard))

        told = []
        before = len(procs.descriptors())
        for megabytes in (0, 1, 16, None):
            told.append(tried(megabytes))
            gc.collect()
            assert not procs.children()
            assert len(procs.descriptors()) == before
        print(json.dumps(told))
    """
    told, errors = _told_by(tmp_path, text)
    assert told[0].startswith("MemoryError")
    for outcome in told[1:3]:  # a worker that cannot start may leave the reason on stderr
        where = errors if "stderr" in outcome else outcome
        assert outcome == list(range(40)) or "memory" in where.lower(), outcome
    assert told[3] == list(range(40))
