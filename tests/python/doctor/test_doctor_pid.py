"""``millhead doctor --pid``: loops that run, looked at while they do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from helpers import procs

COMMAND = os.path.join(sysconfig.get_path("scripts"), "millhead")
LOOP = str(procs.HERE / "live_loop.py")


@contextmanager
def _loop(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A training loop from its first batches on."""
    command = [sys.executable, LOOP, *arguments]
    loop = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    children: set[int] = set()
    try:
        assert loop.stdout is not None and loop.stdout.readline() == "ready\n"
        yield loop
    finally:
        children = procs.children(loop.pid)
        loop.terminate()
        loop.communicate(timeout=30)
        until = time.monotonic() + 30
        while any(procs.is_running(pid) for pid in children) and time.monotonic() < until:
            time.sleep(0.05)
        for pid in children:
            if procs.is_running(pid):
                os.kill(pid, signal.SIGKILL)


def _doctor(*arguments: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
    return procs.run([COMMAND, "doctor", *arguments], seconds=seconds)


def _diagnosis(pid: int, *arguments: str) -> dict[str, Any]:
    done = _doctor("--pid", str(pid), "--json", *(arguments or ("--seconds", "2")))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("what", "cause"), [("latency", "latency-bound"), ("device", "device-bound")]
)
def test_a_torch_loop_is_judged_from_outside(what: str, cause: str) -> None:
    with _loop("torch", what, "2") as loop:
        found = _diagnosis(loop.pid)
        assert loop.poll() is None
    assert found["vantage"] == "outside"
    assert found["cause"] == cause, found
    assert f"process {loop.pid} and 2 workers from outside" in found["evidence"][0]


def test_workers_of_a_torch_loop_that_decode_keep_cpus_busy() -> None:
    with _loop("torch", "cpu", "2") as loop:
        found = _diagnosis(loop.pid)
    assert found["vantage"] == "outside"
    assert found["cause"] in ("cpu-bound", "python-bound", "oversubscribed")
    assert found["device_wait_share"] > 0.3


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("latency", "2"), "latency-bound"),
        (("latency", "2", "by sample"), "latency-bound"),
        (("device", "2"), "device-bound"),
    ],
)
def test_a_millhead_loop_is_judged_from_inside(arguments: tuple[str, ...], cause: str) -> None:
    with _loop("millhead", *arguments) as loop:
        found = _diagnosis(loop.pid)
        assert loop.poll() is None
    assert found["vantage"] == "inside"
    assert found["cause"] == cause, found
    assert found["waits"] >= 10
    if cause == "latency-bound":  # four samples of 20 ms, two workers at it
        assert found["wait_s"]["mean"] > 0.02
        assert found["device_wait_share"] > 0.7
    else:
        assert found["wait_s"]["p50"] < 0.005


def test_a_millhead_loop_is_followed_from_epoch_to_epoch() -> None:
    with _loop("millhead", "short", "2") as loop:
        found = _diagnosis(loop.pid, "--seconds", "4")
    assert found["vantage"] == "inside"
    assert found["waits"] > 20  # an epoch has 10 batches, and takes 0.3 s
    assert found["cause"] == "device-bound", found


def test_training_is_not_taken_for_the_validation_between_its_epochs() -> None:
    with _loop("millhead", "validating", "2") as loop:
        found = _diagnosis(loop.pid, "--seconds", "5")
    assert found["waits"] > 20  # an epoch has 20 batches
    assert found["wait_s"]["p99"] < 0.02, "a batch for validation takes 40 ms"
    assert found["cause"] == "device-bound", found


@pytest.mark.parametrize("what", ["trains", "trains in short epochs"])
@pytest.mark.parametrize("kind", ["torch", "millhead"])
def test_training_on_the_cpu_is_no_work_beside_training(kind: str, what: str) -> None:
    with _loop(kind, what, "1") as loop:
        found = _diagnosis(loop.pid, "--seconds", "8")
    assert found["cause"] == "device-bound", found
    assert all(other["cause"] != "main-bound" for other in found["others"]), found


@pytest.mark.parametrize("kind", ["torch", "millhead"])
def test_workers_that_wait_for_each_other_are_seen(kind: str) -> None:
    with _loop(kind, "lock", "4") as loop:
        found = _diagnosis(loop.pid)
    assert found["cause"] == "latency-bound", found
    assert "lock" in found["fix"] and "more workers gain nothing" in found["fix"]
    assert "num_workers" not in found["fix_settings"]


def test_a_loop_that_hangs_says_in_which_sample() -> None:
    with _loop("millhead", "stuck", "2") as loop:
        time.sleep(5)  # what makes a worker stuck
        found = _diagnosis(loop.pid, "--seconds", "1")
    assert found["waits"] == 0
    evidence = "\n".join(found["evidence"])
    assert "no batch was taken meanwhile" in evidence
    assert "in hand for" in evidence and "is at its sample" in evidence
    assert found["device_wait_share"] > 0.9


def test_the_text_says_where_it_looked_from() -> None:
    with _loop("torch", "device", "1") as loop:
        done = _doctor("--pid", str(loop.pid), "--seconds", "1")
    assert done.returncode == 0
    assert "seen from outside" in done.stdout
    assert "loader: torch, 1 worker\n" in done.stdout  # of its batches nothing is known


# ---- pids that will not do -----------------------------------------------------------------------


def _one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    assert done.returncode == code
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("millhead: ") and "(doctor): " in line
    return line


@pytest.mark.parametrize("text", ["", "x", "-3", "0", "1.5", "99999999999"])
def test_what_is_no_pid_is_a_usage_error(text: str) -> None:
    assert "--pid" in _one_line(_doctor(f"--pid={text}"), 2)


@pytest.mark.parametrize("text", ["0", "x", "4000"])
def test_a_time_that_will_not_do_is_a_usage_error(text: str) -> None:
    assert "seconds" in _one_line(_doctor("--pid", str(os.getpid()), f"--seconds={text}"), 2)


def test_a_pid_of_no_process() -> None:
    assert "there is no process 4194305" in _one_line(_doctor("--pid", "4194305"), 1)


def test_a_process_without_a_loader() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        line = _one_line(_doctor("--pid", str(child.pid), "--seconds", "1"), 1)
        child.kill()
    assert f"process {child.pid} has no loader with workers" in line
    assert "millhead doctor -- COMMAND" in line


def test_a_loop_without_workers_is_not_seen() -> None:
    with _loop("torch", "device", "0") as loop:
        line = _one_line(_doctor("--pid", str(loop.pid), "--seconds", "1"), 1)
    assert "has no loader with workers" in line


@pytest.mark.parametrize("kind", ["torch", "millhead"])
def test_a_worker_names_its_trainer(kind: str) -> None:
    with _loop(kind, "device", "1") as loop:
        workers = [pid for pid in procs.children(loop.pid) if procs.is_running(pid)]
        lines = [_one_line(_doctor("--pid", str(pid), "--seconds", "1"), 1) for pid in workers]
    assert any(f"is a loader's worker: give {loop.pid}" in line for line in lines), lines


def test_a_worker_left_behind_makes_no_trainer_of_who_adopts_it() -> None:
    """As init has it, after a trainer was killed: a torch worker whose parent is another program."""
    worker = "open('/proc/self/comm', 'w').write('pt_data_worker'); print('ready', flush=True)"
    worker = f"{worker}; import time; time.sleep(60)"
    shell = ["sh", "-c", '"$0" -c "$1" & wait', sys.executable, worker]
    with subprocess.Popen(shell, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
        (left,) = procs.children(parent.pid)
        of_parent = _one_line(_doctor("--pid", str(parent.pid), "--seconds", "1"), 1)
        of_worker = _one_line(_doctor("--pid", str(left), "--seconds", "1"), 1)
        os.kill(left, signal.SIGKILL)
    assert f"process {parent.pid} has no loader with workers" in of_parent
    assert f"process {left} is a loader's worker, left behind" in of_worker


def test_a_launcher_names_its_children_that_have_loaders() -> None:
    launcher = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]])"
    command = [sys.executable, "-c", launcher, LOOP, "torch", "device", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        (loop,) = procs.children(child.pid)
        line = _one_line(_doctor("--pid", str(child.pid), "--seconds", "1"), 1)
        os.kill(loop, signal.SIGTERM)
        child.wait(timeout=30)
    assert f"but these have: {loop} " in line


@pytest.mark.skipif(os.getuid() != 0, reason="needs to become another user")
def test_a_process_of_another_user() -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        subprocess.Popen(["sleep", "60"]) as child,
    ):
        os.chmod(directory, 0o755)  # where that user can start it, wherever we are installed
        done = subprocess.run(
            [shutil.copy(COMMAND, directory), "doctor", "--pid", str(child.pid)],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            user=65534,
            group=65534,
            extra_groups=[],
            cwd="/",
        )
        child.kill()
    line = _one_line(done, 1)
    assert f"process {child.pid} is another user's" in line
    assert "as that user, or as root" in line
