"""Frameworks train on our iterators without noticing: see frameworks.py and framework_scenes.py."""

from __future__ import annotations

import json
import sys
from typing import Any

import frameworks
import millhead.torch
import pytest
from helpers import procs
from helpers.framework_scenes import FRAMEWORKS, Framework, Noisy, Sizes, keeps_class
from torch.utils.data import DataLoader


@pytest.mark.limit(500)
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_sees_torchs_batches_from_our_iterators(name: str) -> None:
    report = frameworks.run(name, frameworks.arguments([]))
    assert report["differences"] == []
    assert report["iterator"] == "millhead"
    assert report["batches"] >= 8 * report["ranks"] // 2
    assert report["left_running"] == 0
    assert frameworks.is_good(report)


@pytest.mark.limit(500)
@pytest.mark.parametrize("name", ["accelerate-2-ranks", "ignite"])
def test_other_numbers_will_do(name: str) -> None:
    sizes = ["--samples", "11", "--batch-size", "3", "--workers", "0", "--epochs", "1"]
    report = frameworks.run(name, frameworks.arguments(sizes))
    assert frameworks.is_good(report)


def test_the_program_prints_one_object() -> None:
    command = [sys.executable, str(procs.PROGRAMS / "frameworks.py")]
    sizes = ["--samples", "9", "--workers", "1", "--seed", "11", "--epochs", "1"]
    done = procs.run([*command, "--json", "--only", "profiler", *sizes])
    assert done.returncode == 0, done.stderr
    (profiler,) = json.loads(done.stdout)["frameworks"].values()
    assert profiler["iterator"] == "millhead"
    assert profiler["batches_equal"] is True
    assert profiler["batches"] == 6


# ---- the comparison itself -----------------------------------------------------------------------


@keeps_class
def _unequal(cls: Any, sizes: Sizes) -> Any:
    iterator = iter(cls(Noisy(sizes.samples)))
    return [*iterator, type(iterator).__module__]


@keeps_class
def _drawing(cls: Any, sizes: Sizes) -> Any:
    list(cls(Noisy(sizes.samples)))
    if cls is millhead.torch.DataLoader:
        import torch

        torch.rand(1)


def _without_loader(cls: Any, sizes: Sizes) -> Any:
    return []


def _own_iterators(cls: Any, sizes: Sizes) -> Any:
    class Own(DataLoader[Any]):
        def _get_iterator(self) -> Any:
            return super()._get_iterator()

    return list(Own(Noisy(sizes.samples)))


@pytest.mark.filterwarnings("ignore::millhead.Advice")
@pytest.mark.parametrize(
    ("scene", "iterators", "baseline", "different"),
    [
        (_unequal, "millhead", "torch", ["install", "import"]),
        (_drawing, "millhead", "torch", ["import"]),
        (_without_loader, "none", "none", []),
        (_own_iterators, "torch", "torch", []),
    ],
)
def test_what_is_not_as_it_should_be_is_told(
    scene: Any, iterators: str, baseline: str, different: list[str]
) -> None:
    report = frameworks.in_this_process(Framework("json", (scene,)), Sizes(samples=3), 5)
    assert report["iterators"] == iterators
    assert report["baseline"] == baseline
    told = [text.partition(":")[0] for text in report["differences"]]
    assert told == [f"{scene.__name__} by {way}" for way in different]


# ---- numbers -------------------------------------------------------------------------------------


def test_stats_of_a_loader_that_accelerate_made() -> None:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState

    accelerator = Accelerator(cpu=True)
    millhead.torch.install()
    try:
        loader = accelerator.prepare(DataLoader(Noisy(9), batch_size=2, num_workers=1))
        assert millhead.torch.stats(loader)["batches"] == 0
        assert len(list(loader)) == 5
        stats = millhead.torch.stats(loader)
    finally:
        millhead.torch.uninstall()
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()
    assert (stats["batches"], stats["samples"], stats["workers"]) == (5, 9, 1)
