"""A worker or the trainer meets its end wherever an entry of a queue changes its state.

Reported, no hang, nothing left: at every point of MH_POINT_LIST (src/workers/control.h). Each case
is a process of its own. To import torch only once they are forks of one server, which is this file
run as a program: a case per line in, a report per line out.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from millhead import _core
from millhead.torch import DataLoader

WORKER_POINTS = [
    "task-taken",
    "sample",
    "task-done",
    "result-begun",
    "result-written",
    "result-published",
]
CONSUMER_POINTS = ["task-written", "task-published", "result-taken", "result-done"]
POINTS = WORKER_POINTS + CONSUMER_POINTS

CASE_SECONDS = 60.0
GONE_SECONDS = 5.0
BATCHES = 16
BATCH_SIZE = 4
WIDTH = 20_000  # floats: a batch is large enough to stay in its slot, not copied


# --- a case, in a process of its own ---


class Numbers(torch.utils.data.Dataset[torch.Tensor]):
    """Sample i is full of i."""

    def __len__(self) -> int:
        return BATCHES * BATCH_SIZE

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((WIDTH,), float(index))


def is_right(number: int, batch: torch.Tensor) -> bool:
    """Whether this is batch ``number``, whole."""
    first = number * BATCH_SIZE
    wanted = torch.arange(first, first + BATCH_SIZE, dtype=torch.float32)
    return batch.shape == (BATCH_SIZE, WIDTH) and bool((batch == wanted[:, None]).all())


def read_all(iterator: Iterator[torch.Tensor]) -> dict[str, Any]:
    """Read until the end or an error."""
    report: dict[str, Any] = {"batches": 0, "right": True, "error": None}
    while True:
        began = time.monotonic()
        try:
            batch = next(iterator)
        except StopIteration:
            return report
        except RuntimeError as error:
            return report | {"error": str(error), "seconds": time.monotonic() - began}
        report["right"] = report["right"] and is_right(report["batches"], batch)
        report["batches"] += 1


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    """What the user's program sees."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if case["patience"] is not None:
        torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = case["patience"]
    if case["victim"] == "worker":
        os.environ["MILLHEAD_TEST_WORKER_CRASH"] = case["point"]
    loader = DataLoader(
        Numbers(),
        batch_size=BATCH_SIZE,
        num_workers=2,
        timeout=case["timeout"],
        multiprocessing_context=case["start"],
    )
    iterator = iter(loader)
    workers = [worker.pid for worker in iterator._workers]
    if case["victim"] == "consumer":
        _core.arm_point(case["point"])
    report = read_all(iterator)
    if report["error"] and not case["timeout"]:
        again = read_all(iterator)
        report["sticky"] = again["error"] == report["error"] and again["batches"] == 0
    began = time.monotonic()
    del iterator
    gc.collect()
    report["ended_in"] = time.monotonic() - began
    report["left_at_end"] = [pid for pid in workers if os.path.exists(f"/proc/{pid}")]
    if report["error"]:
        del os.environ["MILLHEAD_TEST_WORKER_CRASH"]
        report["next_epoch"] = read_all(iter(loader))
    return report


# --- the server ---


def session_of(pid: str) -> int | None:
    """The session of a process, or None when it has ended (a zombie has)."""
    try:
        text = Path("/proc", pid, "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[3])


def members(session: int) -> list[int]:
    """Processes of a session: whatever a case started."""
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and session_of(pid) == session]


def wait_for_case(pid: int) -> int | None:
    """The exit code of a case, or None when it hangs."""
    deadline = time.monotonic() + CASE_SECONDS
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return None


def serve_case(case: dict[str, Any]) -> dict[str, Any]:
    """Fork a case, wait for it, look what it left."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.write(writer, json.dumps(run_case(case)).encode())
        os._exit(0)
    os.close(writer)
    code = wait_for_case(pid)
    deadline = time.monotonic() + GONE_SECONDS
    while (left := members(pid)) and code is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    if code is None:
        os.waitpid(pid, 0)
    text = os.read(reader, 65536) if select.select([reader], [], [], 0)[0] else b""
    os.close(reader)
    return {"code": code, "left": len(left), **(json.loads(text) if text else {})}


def serve() -> None:
    """Serve cases until standard input ends."""
    for line in sys.stdin:
        print(json.dumps(serve_case(json.loads(line))), flush=True)


# --- the tests ---


class Server:
    """The process that runs the cases."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def run(self, point: str, victim: str, number: int, **more: Any) -> dict[str, Any]:
        """Run one case: ``number`` is the signal, raised when the point is met the third time."""
        case = {"point": f"{point}:3:{number}", "victim": victim, "timeout": 0, "start": "fork"}
        case |= {"patience": None} | more
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(case).encode() + b"\n")
        output = self._process.stdout
        assert select.select([output], [], [], 2 * CASE_SECONDS)[0], "the server does not answer"
        report: dict[str, Any] = json.loads(output.readline())
        assert report["code"] is not None, f"{case} hangs: {report}"
        return report

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate(timeout=10)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One for all tests here."""
    it = Server()
    yield it
    it.close()


def assert_undisturbed(report: dict[str, Any]) -> None:
    """The point was not met: all batches, no error, nothing left."""
    assert report["code"] == 0
    assert report["error"] is None
    assert (report["batches"], report["right"]) == (BATCHES, True)
    assert (report["left_at_end"], report["left"]) == ([], 0)


def assert_survived(report: dict[str, Any]) -> None:
    """An error was raised, what came before it was right, and the next epoch is whole."""
    assert report["code"] == 0
    assert report["right"]
    assert report["batches"] < BATCHES
    assert (report["left_at_end"], report["left"]) == ([], 0)
    assert report["next_epoch"] == {"batches": BATCHES, "right": True, "error": None}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
@pytest.mark.parametrize("point", WORKER_POINTS)
def test_a_dead_worker_is_reported(server: Server, point: str, number: int) -> None:
    report = server.run(point, "worker", number)
    assert_survived(report)
    assert "exited unexpectedly" in report["error"]
    assert f"killed by {signal.Signals(number).name}" in report["error"]
    assert report["seconds"] < 5
    assert report["sticky"]


def test_the_report_names_the_sample(server: Server) -> None:
    error = server.run("sample", "worker", signal.SIGKILL)["error"]
    assert "fetching, sample index 2 (number 2 of its batch)" in error or (
        "fetching, sample index 6 (number 2 of its batch)" in error
    )


@pytest.mark.parametrize("point", CONSUMER_POINTS)
def test_a_worker_never_meets_the_consumers_points(server: Server, point: str) -> None:
    assert_undisturbed(server.run(point, "worker", signal.SIGKILL))


@pytest.mark.parametrize("point", CONSUMER_POINTS)
def test_workers_end_with_their_trainer(server: Server, point: str) -> None:
    report = server.run(point, "consumer", signal.SIGKILL)
    assert report["code"] == -signal.SIGKILL
    assert report["left"] == 0, f"workers are there {GONE_SECONDS} s after their trainer"


@pytest.mark.parametrize("point", WORKER_POINTS)
def test_the_consumer_never_meets_the_workers_points(server: Server, point: str) -> None:
    assert_undisturbed(server.run(point, "consumer", signal.SIGKILL))


@pytest.mark.parametrize("point", WORKER_POINTS)
def test_a_stopped_worker_times_out(server: Server, point: str) -> None:
    patience = None if point == "sample" else 0.5  # one with torch's own five seconds
    report = server.run(point, "worker", signal.SIGSTOP, timeout=2, patience=patience)
    assert_survived(report)
    assert report["error"].startswith("DataLoader timed out after 2 seconds")
    assert 2 <= report["seconds"] < 7
    assert report["ended_in"] < 15


@pytest.mark.parametrize("point", CONSUMER_POINTS)
def test_no_worker_stops_at_the_consumers_points(server: Server, point: str) -> None:
    assert_undisturbed(server.run(point, "worker", signal.SIGSTOP, timeout=20))


def test_a_dead_spawned_worker_is_reported(server: Server) -> None:
    report = server.run("result-written", "worker", signal.SIGKILL, start="spawn")
    assert_survived(report)
    assert "exited unexpectedly" in report["error"]
    assert report["seconds"] < 5


def test_spawned_workers_end_with_their_trainer(server: Server) -> None:
    report = server.run("result-taken", "consumer", signal.SIGKILL, start="spawn")
    assert report["code"] == -signal.SIGKILL
    assert report["left"] == 0


def test_every_point_is_tested() -> None:
    header = Path(__file__).parents[3] / "src" / "workers" / "control.h"
    text = header.read_text()
    names = [line.split('"')[1] for line in text.splitlines() if "X(MH_POINT_" in line]
    assert sorted(names) == sorted(POINTS)


if __name__ == "__main__":
    serve()
