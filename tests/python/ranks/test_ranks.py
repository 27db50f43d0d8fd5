"""Real ranks: torchrun with gloo on 4, 2 and 3 processes, one after the other."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import procs
from helpers.ranks import BATCH, COUNT, NUMBERS, STEPS
from millhead import _mounts, _rank_info
from millhead.torch import auto_rank0_first, local_rank0_first, rank0_first
from millhead.torch.ranks import world as world_module

Report = Callable[[str, int], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What each rank returned, by case and number of ranks."""
    directory = tmp_path_factory.mktemp("ranks")
    cases = {
        4: ["epoch", "uneven", "mesh", "disagree", "unlike", "stop", "first", "checkpoint"],
        2: ["epoch", "uneven", "stop", "first", "checkpoint", "sampling"],
        3: ["stop", "checkpoint"],
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


def test_a_rank_unlike_the_first_says_so_without_being_asked(report: Report) -> None:
    everyone = report("unlike", 4)
    shorter = (
        "millhead: ranks disagree about the dataset's length (rank 1: 9, rank 0: 10): some end their "
        "epoch before the others, which then wait for ever; make them alike"
    )
    other_seed = (
        "millhead: ranks disagree about seed (rank 1: 1, rank 0: 0): some samples come twice, others "
        "never; make them alike"
    )
    alike = {"same": [], "length": [], "torch's": [], "seed": [], "own": []}
    unlike = {"length": [shorter], "torch's": [shorter], "seed": [other_seed]}
    assert everyone == [alike, {**alike, **unlike}, alike, alike]


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


# --- checkpoints ---


def test_a_checkpoint_goes_on_with_the_same_and_other_numbers_of_ranks(report: Report) -> None:
    first, second, third = (report("checkpoint", world) for world in (4, 2, 3))
    for number, each in enumerate(first):
        theirs = torch.utils.data.DistributedSampler(NUMBERS, 4, number, seed=3)
        theirs.set_epoch(2)
        assert each["seen"] + each["rest"] == list(theirs)
    assert set(_all(first) + _all(second) + _all(third)) == set(range(COUNT))
    assert len(_all(first)) + len(_all(second)) + len(_all(third)) == COUNT + 2  # padding
    assert [each["step"] for each in first + second + third] == [2] * 4 + [5] * 2 + [8] * 3


def test_each_rank_finds_its_own_loaders_state_and_only_rank_0_has_a_file(report: Report) -> None:
    for world, others in ((4, None), (2, 0), (3, 0)):
        everyone = report("checkpoint", world)
        assert [each["kept"] for each in everyone] == list(range(world))
        assert [each["others"] for each in everyone] == [others] * world
        assert [each["made"] for each in everyone] == [True] + [False] * (world - 1)
        for each in everyone:
            assert each["said"].startswith("millhead: not a checkpoint that can be read: ")
            assert "(PLACE/broken.json)" in each["said"]


# --- who goes first ---


def _visits(report: Report, world: int, name: str) -> list[dict[str, Any]]:
    return [each[name] for each in report("first", world)]


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("name", ["rank0", "one machine", "afterwards", "shared mount"])
def test_rank_0_goes_first_and_all_leave_together(report: Report, name: str, world: int) -> None:
    everyone = _visits(report, world, name)
    assert [each["first"] for each in everyone] == [True] + [False] * (world - 1)
    assert everyone[0]["seen"] == []
    assert all(each["seen"][0] == "0" for each in everyone[1:])
    assert all(each["left"] == [str(rank) for rank in range(world)] for each in everyone)


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("name", ["two machines", "local disk", "mixed mounts"])
def test_one_rank_of_each_machine_goes_first(report: Report, name: str, world: int) -> None:
    everyone = _visits(report, world, name)
    firsts = {0, world // 2}
    assert [each["first"] for each in everyone] == [rank in firsts for rank in range(world)]
    for rank, each in enumerate(everyone):
        seen = {int(other) for other in each["seen"][:2]}
        assert seen <= firsts if rank in firsts else seen == firsts
        assert each["left"] == [str(rank) for rank in range(world)]


@pytest.mark.parametrize("world", [2, 4])
def test_when_rank_0_fails_the_others_hear_of_it_and_do_not_begin(
    report: Report, world: int
) -> None:
    everyone = _visits(report, world, "rank 0 fails")
    assert everyone[0] == {"seen": [], "raised": "OSError: no route\nto host 0"}
    for each in everyone[1:]:
        assert each == {
            "seen": None,
            "raised": "RuntimeError: millhead: rank 0 failed and the others stop (rank0_first): "
            "OSError: no route to host 0",
        }


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("name", ["rank 1 fails", "second machine fails"])
def test_when_another_rank_fails_all_hear_of_it(report: Report, name: str, world: int) -> None:
    everyone = _visits(report, world, name)
    failed = 1 if name == "rank 1 fails" else world // 2
    for rank, each in enumerate(everyone):
        if rank == failed:
            assert each["raised"] == f"OSError: no route\nto host {failed}"
        else:
            assert f"rank {failed} failed" in each["raised"], each


TWO = """
import os, signal, sys, time
from datetime import timedelta
import torch.distributed as dist
from millhead.torch import rank0_first
rank, store, how = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group(
    "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(seconds=4)
)
with rank0_first() as first:
    if first and how == "slow":
        time.sleep(8)
    elif first:
        os.kill(os.getpid(), signal.SIGKILL)
print("done")
dist.destroy_process_group()  # at its exit torch now and then aborts a process that still has one
"""


def _two_ranks(store: Path, how: str) -> list[tuple[int, str, str]]:
    """Both ranks' exit code, stdout and stderr; no launcher ends one for the other."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", TWO, str(rank), str(store), how],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=90) for rank in ranks]
        return [(rank.returncode, *each) for rank, each in zip(ranks, said, strict=True)]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def test_work_may_take_longer_than_collective_operations_do(tmp_path: Path) -> None:
    for code, out, err in _two_ranks(tmp_path / "store", "slow"):
        assert (code, out) == (0, "done\n"), err


def test_nobody_waits_for_a_rank_that_was_killed(tmp_path: Path) -> None:
    killed, other = _two_ranks(tmp_path / "store", "killed")
    assert killed[0] == -signal.SIGKILL
    assert other[:2] == (1, "") and "Error" in other[2]


def _enter(enter: Any) -> bool:
    with enter() as first:
        return bool(first)


@pytest.fixture(params=[rank0_first, local_rank0_first, lambda: auto_rank0_first("/")])
def enter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Each of the three, in a process that no launcher started."""
    for names in (*_rank_info.LAUNCHERS, *world_module._LAUNCHERS):
        for name in names:
            monkeypatch.delenv(name, raising=False)
    return request.param


def test_a_process_alone_waits_for_nobody(enter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _enter(enter)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert _enter(enter)


def test_a_group_of_one_waits_for_nobody(enter: Any) -> None:
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    try:
        assert _enter(enter)
    finally:
        torch.distributed.destroy_process_group()


def test_ranks_without_a_process_group_are_told_to_make_one(
    enter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(RuntimeError, match=r"rank 1 of 4 has no process group .*init_process_gr"):
        _enter(enter)


MOUNTS = """
overlay / overlay rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sda1 /home/me/fast\\040disk ext4 rw 0 0
bucket /data fuse.s3fs rw 0 0
fuse-overlayfs /inner fuse.fuse-overlayfs rw 0 0
tmpfs /over tmpfs rw 0 0
mds:/ /over lustre rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/tmp", "overlay", False),
        ("/homes", "overlay", False),
        ("/home", "nfs4", True),
        ("/home/me/set", "nfs4", True),
        ("/home/me/fast disk/set", "ext4", False),
        ("/data/a/b", "fuse.s3fs", True),
        ("/inner/a", "fuse.fuse-overlayfs", False),
        ("/over/a", "lustre", True),
    ],
)
def test_the_mount_of_a_path_is_found(path: str, kind: str, network: bool) -> None:
    mount = _mounts.find_mount(path, MOUNTS)
    assert (mount.kind, mount.is_network()) == (kind, network)


def test_the_command_and_the_package_know_the_same_network_mounts() -> None:
    source = (Path(__file__).resolve().parents[3] / "src" / "sys" / "parse.c").read_text()
    listed = re.search(r"is_network_type.*?types\[\] = \{(.*?)\};", source, re.DOTALL)
    assert listed is not None
    assert set(re.findall(r'"(\w+)"', listed[1])) == _mounts._NETWORK


def test_the_other_samplers_and_shards_step_together(report: Report) -> None:
    everyone = report("sampling", 2)
    for name in ("lengths", "blocks"):
        seen = [index for each in everyone for index in each[name]]
        assert set(seen) == set(range(COUNT))
        assert len(seen) < COUNT + 40  # a batch may come twice, of at most 40 samples
    assert [len(each["blocks"]) for each in everyone] == [COUNT // 2] * 2
    assert [len(each["shards"]) for each in everyone] == [COUNT // 2] * 2
    assert set(everyone[0]["shards"]) <= set(range(7))  # two shards for its two workers: 7 and 3
    assert set(everyone[1]["shards"]) == set(range(50))  # one, which they share
