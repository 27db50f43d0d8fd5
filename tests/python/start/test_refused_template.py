"""A template that must not be forked becomes the first worker itself."""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import millhead
import millhead.torch.start.template
import pytest
import torch
import torch.utils.data
from helpers import procs
from helpers import template_cases as tc
from helpers.compare import describe, rng_states, seed_everything
from millhead.torch import DataLoader


def _loader(dataset: Any, context: str = "spawn", **arguments: Any) -> Any:
    return DataLoader(dataset, num_workers=2, multiprocessing_context=context, **arguments)


def _numbers(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch]


def _epoch(loader: Any) -> list[Any]:
    """Every batch and the generators' states after the epoch."""
    seed_everything(7)
    return [*(describe(batch) for batch in loader), rng_states()]


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore::millhead.Advice")
def test_a_refused_template_is_the_first_worker(tmp_path: Path, context: str) -> None:
    note = tmp_path / "unpickled"
    loader = _loader(tc.OpensAndCounts(40, str(note)), context=context, batch_size=4)
    iterator = iter(loader)
    workers = {worker.pid for worker in iterator._workers}
    assert _numbers(iterator) == list(range(40))
    assert loader.stats()["start"] == context
    assert {int(pid) for pid in note.read_text().split()} == workers
    assert len(note.read_text().split()) == 2
    assert procs.wait_until(lambda: not any(map(procs.is_running, workers)))
    assert _numbers(loader) == list(range(40))
    assert len(note.read_text().split()) == 4


@pytest.mark.filterwarnings("ignore::millhead.Advice")
def test_a_refused_template_draws_the_numbers_of_torchs_first_worker() -> None:
    arguments: dict[str, Any] = {"batch_size": 3, "shuffle": True}
    theirs = torch.utils.data.DataLoader(
        tc.OpensAugmented(14), num_workers=2, multiprocessing_context="fork", **arguments
    )
    ours = _loader(tc.OpensAugmented(14), **arguments)
    assert _epoch(ours) == _epoch(theirs)
    assert ours.stats()["start"] == "spawn"


@pytest.mark.filterwarnings("ignore::millhead.Advice")
def test_a_refused_template_that_is_killed_is_reported_as_a_worker() -> None:
    loader = _loader(tc.OpensFacts(60), prefetch_factor=1)
    iterator = iter(loader)
    next(iterator)
    victim, other = (worker.pid for worker in iterator._workers)
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=rf"pid\(s\) {victim}\) exited .*SIGKILL \(signal 9\)"):
        list(iterator)
    assert procs.wait_until(lambda: not procs.is_running(other))


@pytest.mark.parametrize("failing", ["advice", "plan"])
def test_a_refused_template_that_is_not_needed_ends(
    failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = procs.children()
    loader = _loader(tc.OpensFacts(2))

    def fail(*_: Any) -> None:
        raise OSError("gone")

    if failing == "advice":
        with warnings.catch_warnings(), pytest.raises(millhead.Advice):
            warnings.simplefilter("error", millhead.Advice)
            iter(loader)
    else:
        monkeypatch.setattr(millhead.torch.start.template.Template, "_ask_for", fail)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", millhead.Advice)
            assert len(list(loader)) == 2
    gc.collect()
    assert procs.wait_until(lambda: procs.children() == before)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_refused_template_ends_with_the_trainer(tmp_path: Path, number: int) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, signal, sys\n"
        "from millhead.torch import DataLoader\n"
        "from helpers.template_cases import OpensFacts\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "    loader = DataLoader(OpensFacts(60), num_workers=2, multiprocessing_context='spawn')\n"
        "    iterator = iter(loader)\n"
        "    next(iterator), next(iterator)\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    list(iterator)\n"
    )
    result: Any = procs.run([sys.executable, str(script)])
    assert result.returncode == -number
    assert result.left == set()
    assert result.stderr.count("Traceback") == (number == signal.SIGINT)
