"""Real ranks: torchrun with gloo on 4, 2 and 3 processes, one after the other."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import procs
import pytest
import torch
from ranks import BATCH, COUNT, NUMBERS, STEPS

Report = Callable[[str, int], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What each rank returned, by case and number of ranks."""
    directory = tmp_path_factory.mktemp("ranks")
    cases = {
        4: ["epoch", "uneven", "mesh", "disagree", "stop"],
        2: ["epoch", "uneven", "stop"],
        3: ["stop"],
    }
    for world, names in cases.items():
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        program = [f"--nproc-per-node={world}", str(procs.HERE / "ranks.py"), str(directory)]
        done = procs.run([*torchrun, *program, *names], seconds=240, env={"OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr
        assert not done.left  # type: ignore[attr-defined]

    def read(case: str, world: int) -> list[dict[str, Any]]:
        everyone = json.loads((directory / f"{case}.{world}.json").read_text())
        assert len(everyone) == world
        return list(everyone)

    return read


pytestmark = pytest.mark.limit(400)


def _all(everyone: list[dict[str, Any]]) -> list[int]:
    return [index for each in everyone for index in each["seen"]]


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_cover_the_data_as_torchs_sampler_does(report: Report, world: int) -> None:
    everyone = report("epoch", world)
    assert set(_all(everyone)) == set(range(COUNT))
    for number, each in enumerate(everyone):
        assert (each["rank"], each["of"]) == (number, world)
        theirs = torch.utils.data.DistributedSampler(NUMBERS, world, number, seed=3)
        theirs.set_epoch(2)
        assert each["seen"] == list(theirs)


@pytest.mark.parametrize("world", [2, 4])
def test_uneven_ranks_train_on_every_sample_once(report: Report, world: int) -> None:
    everyone = report("uneven", world)
    assert sorted(_all(everyone)) == list(range(4 * world + 1))
    for number, each in enumerate(everyone):
        assert each["lengths"] == [5] + [4] * (world - 1)
        assert len(each["seen"]) == each["lengths"][number]


def test_ranks_of_one_replica_see_the_same_samples(report: Report) -> None:
    everyone = report("mesh", 4)
    assert [(each["dp"], each["tp"]) for each in everyone] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert everyone[0]["seen"] == everyone[1]["seen"]
    assert everyone[2]["seen"] == everyone[3]["seen"]
    assert sorted(everyone[0]["seen"] + everyone[2]["seen"]) == list(range(COUNT))


def test_ranks_that_do_not_fit_together_are_told_so_everywhere(report: Report) -> None:
    everyone = report("disagree", 4)
    assert all(said == everyone[0] for said in everyone)
    assert everyone[0] == {
        "length": "ranks disagree about the dataset's length (10 on 0, 2, 3; 9 on 1): make their "
        "samplers alike",
        "seed": "ranks disagree about seed (0 on 0; 1 on 1; 2 on 2; 3 on 3): make their samplers "
        "alike",
        "rank": "the group's samplers have ranks [0, 0, 0, 0] of 4: each is wanted equally often",
    }


def test_an_epoch_goes_on_with_other_numbers_of_ranks(report: Report) -> None:
    first, second, third = report("stop", 4), report("stop", 2), report("stop", 3)
    for world, everyone in ((4, first), (2, second)):
        assert [len(each["seen"]) for each in everyone] == [STEPS[world] * BATCH] * world
    assert [len(each["seen"]) for each in third] == [12] * 3  # as many steps on every rank
    for everyone, position in ((first, 40), (second, 70), (third, COUNT)):
        assert all(each["state"] == everyone[0]["state"] for each in everyone)
        assert everyone[0]["state"]["position"] == position
    times = Counter(_all(first) + _all(second) + _all(third))
    assert set(times) == set(range(COUNT))
    generator = torch.Generator().manual_seed(3 + 2)
    order = torch.randperm(COUNT, generator=generator).tolist()
    again = [index for index, number in times.items() if number > 1]
    assert sorted(again) == sorted(order[:2])  # padding: the epoch's head, as torch has it
