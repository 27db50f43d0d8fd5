"""Dask in workers: its three modes read the same, and one cluster serves all ranks of a machine."""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import procs
from millhead import _core
from millhead.torch.workers import dask_modes

pytestmark = pytest.mark.limit(200)

STARTS = ("fork", "template", "spawn", "forkserver")
MODES = ("single-threaded", "threads", "cluster")
#: Dask's own words where a cluster is closed before its clients, and where its workers are slow to end.
_DASKS = (
    "Failed to reconnect to scheduler",
    "distributed.nanny - WARNING - Worker process still alive",
)
Case = Callable[[str], Any]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """What a program of dask_cases.py found; it must have said nothing and left nothing."""
    directory = tmp_path_factory.mktemp("dask")

    @functools.cache
    def run(name: str) -> Any:
        program = [sys.executable, str(procs.HERE / "dask_cases.py"), name, str(directory)]
        done = procs.run(program, seconds=180)
        assert done.returncode == 0, done.stderr
        assert not done.left  # type: ignore[attr-defined]
        lines = done.stderr.splitlines()
        assert [line for line in lines if not any(words in line for words in _DASKS)] == []
        return json.loads(done.stdout)

    return run


# ---- three modes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("start", STARTS)
def test_every_mode_reads_the_same_in_workers(case: Case, start: str, mode: str) -> None:
    found = case("modes")
    run = found[f"{start} {mode}"]
    assert run["start"] == start
    assert run["numbers"] == found["alone"]["numbers"]
    assert len(run["askers"]) == 2
    assert run["readers"] == (found["cluster"] if mode == "cluster" else run["askers"])


@pytest.mark.parametrize("start", STARTS)
def test_stats_tell_the_mode_and_all_its_threads(case: Case, start: str) -> None:
    totals = {"single-threaded": 2, "threads": 2 * 3, "cluster": 2}
    for mode, threads in totals.items():
        told = case("modes")[f"{start} {mode}"]["streaming"]
        assert told == {"mode": mode, "threads": threads}


def test_the_modes_are_no_reason_for_advice(case: Case) -> None:
    advice = {text for run in case("modes").values() if "advice" in run for text in run["advice"]}
    assert all("workers start one by one" in text for text in advice)


# ---- what the program has said itself ------------------------------------------------------------


@pytest.mark.parametrize(("mode", "threads"), [("single-threaded", 2), ("threads", 8 * 4)])
def test_a_mode_that_was_chosen_stays_beside_a_cluster(case: Case, mode: str, threads: int) -> None:
    run = case("choices")[mode]
    assert run["readers"] == run["askers"]
    assert run["streaming"] == {"mode": mode, "threads": threads}


@pytest.mark.parametrize("name", ["number", "threads", "pool", "executor"])
def test_threads_that_were_chosen_are_told_to_workers_that_inherit_nothing(
    case: Case, name: str
) -> None:
    run = case("carried")[name]
    assert run["streaming"] == {"mode": "threads", "threads": 2 * 4}
    assert run["numbers"] == case("modes")["alone"]["numbers"]


@pytest.mark.parametrize("start", STARTS)
def test_workers_have_the_threads_that_were_chosen(case: Case, start: str) -> None:
    assert case("carried")[f"{start} at once"] == [4]


def test_no_threads_can_be_chosen_too(case: Case) -> None:
    told = case("carried")["single-threaded"]["streaming"]
    assert told == {"mode": "single-threaded", "threads": 2}


def test_a_scheduler_that_no_worker_can_have_is_not_told(case: Case) -> None:
    assert case("carried")["processes"]["streaming"] == {"mode": "threads", "threads": 2 * 3}


def test_what_a_dataset_says_in_its_worker_stays(case: Case) -> None:
    assert case("carried")["own"] == ["single-threaded"]


@pytest.mark.parametrize("name", ["init", "init spawn"])
def test_a_client_that_worker_init_fn_makes_stays(case: Case, name: str) -> None:
    found = case("choices")
    assert found[name]["readers"] == found["theirs"]


def test_a_worker_that_does_not_use_dask_connects_to_nothing(case: Case) -> None:
    assert case("choices")["plain"] == 2  # workers, each with one thread


def test_none_leaves_dask_alone(case: Case) -> None:
    assert case("choices")["None"] == [["None"], None]


@pytest.mark.parametrize("start", ["fork", "template"])
def test_a_cluster_inside_the_process_is_out_of_reach(case: Case, start: str) -> None:
    found = case("inside")
    assert found[start]["readers"] == found[start]["askers"]
    assert found[start]["numbers"] == case("alone")["numbers"]
    assert found[start]["streaming"] == {"mode": "single-threaded", "threads": 2}
    (advice,) = found["fork"]["advice"]
    assert advice.startswith("millhead: workers compute by themselves what this process has its")
    assert "(inproc://" in advice
    assert found["template"]["advice"] == []  # once is enough


# ---- what comes by a fork ------------------------------------------------------------------------


def test_a_forked_worker_decodes_what_is_large(case: Case) -> None:
    assert case("forks")["large"] == list(range(12))


def test_data_in_the_clusters_memory_can_be_read(case: Case) -> None:
    assert case("forks")["futures"] == list(range(12))


def test_a_client_of_the_training_process_raises_rather_than_hangs(case: Case) -> None:
    assert "Client is closed" in case("forks")["held"]


@pytest.mark.parametrize(("name", "threads"), [("number", 6), ("pool", 6), ("executor", 6)])
def test_pools_that_the_training_process_used_do_not_hang(
    case: Case, name: str, threads: int
) -> None:
    run = case("pools")[name]
    assert run["numbers"] == case("alone")["numbers"]
    assert run["streaming"] == {"mode": "threads", "threads": threads}
    assert len(case("pools")["default"]["numbers"]) == len(run["numbers"])


def test_workers_that_outlive_the_cluster_raise_rather_than_hang(case: Case) -> None:
    assert "CancelledError" in case("outlived")


# ---- one cluster for all -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpus", "ranks", "advised"), [(20, 1, (2, 4)), (20, 8, (3, 4)), (2, 2, (1, 1))]
)
def test_the_plan_says_how_large_it_is(cpus: int, ranks: int, advised: tuple[int, int]) -> None:
    assert _core.plan_cluster(cpus, ranks) == advised


def test_a_process_alone_has_it_for_itself(case: Case) -> None:
    found = case("alone")
    assert found["threads"] == [2]
    assert found["streaming"] == {"mode": "cluster", "threads": 2}
    assert set(found["readers"]).isdisjoint(found["askers"])
    assert found["after"]["readers"] == found["after"]["askers"]
    assert found["after"]["numbers"] == found["numbers"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_when_its_process_is_ended(number: signal.Signals, tmp_path: Path) -> None:
    mark, environment = procs.new_mark()
    program = [sys.executable, str(procs.HERE / "dask_cases.py"), "waits", str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(program, env=environment, **pipes)  # type: ignore[call-overload]
    try:
        assert process.stdout.readline() == b"ready\n"
        assert len(procs.marked(mark)) >= 3  # the program, its loader's worker, the cluster's
        process.send_signal(number)
        process.wait(60)
        assert procs.wait_until(lambda: not procs.marked(mark), 20)
    finally:
        procs.end_marked(mark)
        process.communicate()


def test_without_dask_one_line_says_so() -> None:
    done = procs.run_python(
        "import sys; sys.modules['distributed'] = None\n"
        "from millhead.torch import shared_cluster\n"
        "with shared_cluster(): pass"
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: millhead: dask's clusters cannot be imported (")
    assert last.endswith("install dask[distributed]")


# ---- ranks ---------------------------------------------------------------------------------------


def _torchrun(cases: str, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    program = [str(procs.HERE / "dask_ranks.py"), cases, str(directory)]
    return procs.run(
        [*torchrun, *program], seconds=180, env={"OMP_NUM_THREADS": "1", **environment}
    )


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Any]]:
    """What both ranks found, by case."""
    directory = tmp_path_factory.mktemp("ranks")
    done = _torchrun("share,machines,fails", directory)
    assert done.returncode == 0, done.stderr
    assert not done.left  # type: ignore[attr-defined]
    return lambda name: [
        json.loads((directory / f"{name}.{rank}.json").read_text()) for rank in range(2)
    ]


def test_all_ranks_and_their_workers_share_one_cluster(ranks: Callable[[str], list[Any]]) -> None:
    first, second = ranks("share")
    assert first["readers"] == second["readers"] == [second["late"]]
    assert first["numbers"] == second["numbers"]
    assert set(first["askers"]).isdisjoint(second["askers"])
    for each in (first, second):
        assert len(each["askers"]) == 2
        assert each["threads"] == [2]  # for both ranks together
        assert each["streaming"] == {"mode": "cluster", "threads": 2}
        assert each["advice"] == []
        assert each["after"] == "closed"


def test_each_machine_has_its_own(ranks: Callable[[str], list[Any]]) -> None:
    first, second = ranks("machines")
    assert set(first["readers"]).isdisjoint(second["readers"])
    assert first["streaming"] == second["streaming"] == {"mode": "cluster", "threads": 1}


def test_a_rank_that_cannot_start_or_reach_it_is_told_to_all(
    ranks: Callable[[str], list[Any]],
) -> None:
    first, second = ranks("fails")
    told = (
        "RuntimeError: millhead: rank {} failed and the others stop (shared_cluster): OSError: {}"
    )
    error = "no room for this"
    assert first == [f"OSError: {error}", told.format(1, error)]
    assert second == [told.format(0, error), f"OSError: {error}"]


def test_a_rank_that_was_killed_is_not_waited_for(tmp_path: Path) -> None:
    """Without torchrun, which would end the first rank as well."""
    mark, environment = procs.new_mark()
    program = [sys.executable, str(procs.HERE / "dask_ranks.py"), "forsaken", str(tmp_path)]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            program, env={**environment, **world, "RANK": rank}, stderr=subprocess.DEVNULL
        )
        for rank in "01"
    ]
    try:
        assert ranks[1].wait(90) == -signal.SIGKILL
        assert procs.wait_until((tmp_path / "forsaken.0.json").exists, 60)
        ranks[0].wait(60)
        assert procs.wait_until(lambda: not procs.marked(mark), 20)
    finally:
        procs.end_marked(mark)
        for rank in ranks:
            rank.wait()


@pytest.mark.parametrize("rank", ["0", "1"])
@pytest.mark.parametrize("way", ["raise", "kill"])
def test_a_rank_that_ends_in_the_block_leaves_nothing(way: str, rank: str, tmp_path: Path) -> None:
    done = _torchrun(way, tmp_path, ENDING_RANK=rank)
    assert done.returncode != 0
    assert not done.left  # type: ignore[attr-defined]
    assert ("ValueError: this rank has enough" in done.stderr) == (way == "raise")


def test_letting_go_of_a_schedulers_socket_touches_no_other(tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    ours, theirs = socket.socketpair()
    before = set(os.listdir("/proc/self/fd"))
    socket.setdefaulttimeout(5.0)  # what Python gives to every socket object it makes
    try:
        with open(tmp_path / "file", "w"):
            dask_modes._stop_listening(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        assert os.get_blocking(ours.fileno())
        assert os.readlink(f"/proc/self/fd/{listener.fileno()}") == os.devnull
        assert set(os.listdir("/proc/self/fd")) == before
    finally:
        socket.setdefaulttimeout(None)
        for each in (listener, ours, theirs):
            each.close()
