"""The programs of this directory, each with a small share of its work."""

from __future__ import annotations

import json
import random
import resource
import signal
import subprocess
import sys
from typing import Any

import pytest
from helpers import procs

KINDS = ["fork", "template", "forkserver"]


def _run(program: str, *arguments: str, seconds: float, **options: Any) -> dict[str, Any]:
    """Runs a program of this directory and returns its JSON; fails with what it printed."""
    mark, environment = procs.new_mark()
    try:
        result = subprocess.run(
            [sys.executable, str(procs.PROGRAMS / program), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            **options,
        )
        assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
        assert procs.wait_until(lambda: not procs.marked(mark))
        report: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
        return report
    finally:
        procs.end_marked(mark)


@pytest.mark.limit(400)
def test_sixty_random_cases_equal_torch() -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"parity.py --cases 60 --seed {seed}")
    report = _run("parity.py", "--cases", "60", "--seed", str(seed), "--json", seconds=390)
    assert report["cases"] == report["equal"] == report["rng_after_equal"] == 60
    assert report["failed"] == []
    assert report["paths"]["slot"] >= 15
    assert report["paths"]["general"] >= 15


@pytest.mark.limit(240)
@pytest.mark.parametrize("start", KINDS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV], ids=lambda n: n.name)
def test_a_killed_workers_pid_signal_and_sample_are_named(
    number: signal.Signals, start: str
) -> None:
    report = _run("kill.py", "--signal", str(int(number)), "--start", start, "--json", seconds=220)
    assert set(report) == {
        "seconds",
        "pid",
        "signal",
        "index",
        "orphans",
        "fds_delta",
        "shm_left",
    }
    assert report["seconds"] < 5
    assert report["signal"] == number
    assert report["orphans"] == report["fds_delta"] == report["shm_left"] == 0


@pytest.mark.limit(240)
def test_a_killed_template_ends_no_epoch_and_the_next_one_has_a_new_template() -> None:
    report = _run("kill.py", "--victim", "template", "--json", seconds=220)
    assert report["epoch"] == "finished"
    assert report["next_batches"] == 12
    assert report["new_template"]
    assert report["signal"] == signal.SIGKILL
    assert report["orphans"] == report["fds_delta"] == report["shm_left"] == 0


@pytest.mark.limit(240)
@pytest.mark.parametrize("start", KINDS)
def test_no_worker_outlives_a_killed_trainer(start: str) -> None:
    report = _run("kill.py", "--parent", "--start", start, "--json", seconds=220)
    assert report["orphans"] == 0
    assert report["seconds"] < 5


def _few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))


@pytest.mark.limit(240)
def test_kept_batches_cost_no_descriptors_and_no_mappings() -> None:
    report = _run("keep.py", "3000", seconds=220, preexec_fn=_few_descriptors)
    assert report["kept"] >= 3000
    assert report["corrupt"] == 0
    assert report["fds_delta"] == 0
    assert report["maps_delta"] < 64
