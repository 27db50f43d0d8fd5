"""A run is sampled from outside: its processes, the machine, its GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers import procs
from millhead import _core
from millhead.watching import usage_sampler
from millhead.watching.usage_sampler import Sampler

# Writes the header of a run, starts a child that works, and waits to be ended
PROGRAM = """
    import json, os, sys, time
    pid = os.fork()
    if pid == 0:
        while os.getppid() != 1:
            sum(range(1000))
        os._exit(0)
    header = {"event": "header", "pid": os.getpid(), "boot": sys.argv[2]}
    with open(sys.argv[1], "a") as file:
        file.write(json.dumps(header) + "\\n")
    sys.stdin.read()
    os.kill(pid, 9)
"""


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@contextmanager
def _program(path: Path, boot: str | None = None) -> Iterator[int]:
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(path), boot or _boot()]
    child = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        yield child.pid
    finally:
        child.communicate(timeout=30)


def _wait_for(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def _events(path: Path, name: str) -> list[dict[str, Any]]:
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    events = [json.loads(line) for line in whole.split(b"\n") if line]
    return [event for event in events if event["event"] == name]


def _workers(path: Path) -> list[dict[str, Any]]:
    return [event for event in _events(path, "usage") if event["role"] == "worker"]


def test_processes_and_the_machine_are_sampled_into_the_runs_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with Sampler(tmp_path, interval=0.05) as sampler, _program(path) as pid:
        _wait_for(lambda: len(_workers(path)) >= 5)
    assert sampler.problem is None
    main = [event for event in _events(path, "usage") if event["role"] == "main"]
    assert {event["pid"] for event in main} == {pid}
    workers = _workers(path)
    assert workers[-1]["cpu"] > workers[0]["cpu"] > 0
    times = [event["t"] for event in workers]
    assert times == sorted(times) and times[-1] <= time.monotonic_ns()
    for event in main + workers:
        assert set(event) >= {"t", "cpu", "delay", "rss", "read", "threads", "state"}
        assert "started" not in event
    assert all(event["pss"] > 100_000 for event in main)
    system = _events(path, "system")
    assert system[-1]["busy"] > system[0]["busy"] > 0
    assert system[0]["cpus"] == os.cpu_count() and system[0]["available"] > 0


def test_each_rank_goes_into_its_own_file(tmp_path: Path) -> None:
    first, second = tmp_path / "events.jsonl", tmp_path / "events.rank1.jsonl"
    with Sampler(tmp_path, interval=0.05), _program(first) as one, _program(second) as two:
        _wait_for(lambda: _events(first, "system") and _events(second, "system"))
    for path, pid, other in ((first, one, two), (second, two, one)):
        pids = {event["pid"] for event in _events(path, "usage")}
        assert pid in pids and other not in pids


def test_nothing_is_written_before_the_header(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sampler = Sampler(tmp_path)
    sampler.sample()
    assert not path.exists()
    for part in ('{"event": "header", ', f'"pid": {os.getpid()}}}'):
        with path.open("a") as file:
            file.write(part)
        sampler.sample()
    assert path.read_text() == f'{{"event": "header", "pid": {os.getpid()}}}'
    with path.open("a") as file:
        file.write("\n")
    sampler.sample()
    assert _events(path, "usage")[0]["pid"] == os.getpid()


def test_what_runs_on_another_machine_is_not_sampled(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "events.jsonl", tmp_path / "events.rank1.jsonl"
    with Sampler(tmp_path, interval=0.05), _program(ours), _program(theirs, "another-boot"):
        _wait_for(lambda: len(_events(ours, "system")) >= 3)
    assert len(theirs.read_text().splitlines()) == 1


def test_memory_is_walked_seldom_where_that_is_dear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, resident, walks, cost, pid = 100.0, 1000, 0, 0.05, 7
    cpu = 0.0

    def usage(pid: int, pss: bool) -> dict[str, Any]:
        nonlocal walks, cpu
        walks += pss
        cpu += cost if pss else 0.0
        share = {"pss": resident // 2} if pss else {}
        return {"pid": pid, "started": 1, "rss": resident, **share}

    def sample() -> int:
        path = tmp_path / f"events.rank{pid}.jsonl"
        path.write_text(json.dumps({"event": "header", "pid": pid}) + "\n")
        sampler._trees.clear()
        sampler.sample()
        path.unlink(missing_ok=True)
        share: int = json.loads(written[0])["pss"]
        written.clear()
        return share

    written: list[bytes] = []
    sampler = Sampler(tmp_path)
    monkeypatch.setattr(usage_sampler.time, "monotonic", lambda: now)
    monkeypatch.setattr(usage_sampler.time, "thread_time", lambda: cpu)
    monkeypatch.setattr(usage_sampler.os, "write", lambda _file, line: written.append(line))
    monkeypatch.setattr(_core, "usage", usage)
    monkeypatch.setattr(_core, "children", lambda _pid: [])
    assert sample() == 500 and walks == 1
    now += 0.05 / usage_sampler.MEMORY_BUDGET - 0.1
    resident, cost = 1100, 0.0
    assert sample() == 600 and walks == 1  # as much more as is resident
    pid = 8
    assert sample() == 550 and walks == 2  # a new one is walked at once
    now, pid = now + 0.2, 7
    assert sample() == 550 and walks == 3
    assert sample() == 550 and walks == 4  # it cost nothing


def test_delay_does_not_go_back_when_threads_end(monkeypatch: pytest.MonkeyPatch) -> None:
    given = iter([(5, 10), (5, 30), (5, 20), (5, 40), (6, 3)])  # the last is another process

    def usage(pid: int, pss: bool) -> dict[str, Any]:
        started, delay = next(given)
        return {"pid": pid, "started": started, "delay": delay}

    monkeypatch.setattr(_core, "usage", usage)
    usages = usage_sampler.ProcessUsage()
    assert [usages.of(1, walk=False)["delay"] for _ in range(5)] == [10, 30, 30, 40, 3]


FAMILY = """
    import os, time
    from millhead import _core
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        grandchild = os.fork()
        if grandchild:
            os.write(writing, b"%d" % grandchild)
        time.sleep(60)
    grandchild = int(os.read(reading, 99))
    print(_core.children(os.getpid()) == [child, grandchild])
    os.kill(child, 9)
    os.kill(grandchild, 9)
"""


def test_children_of_children_are_found() -> None:
    done = procs.run_python(textwrap.dedent(FAMILY))
    assert done.stdout == "True\n", done.stderr


def test_a_process_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="no process 4194304"):
        _core.usage(4194304)  # beyond any pid


# A header, and a child that waits for a lock which its parent holds
LOCKED = """
    import json, multiprocessing, os, sys
    lock = multiprocessing.Lock()
    lock.acquire()
    pid = os.fork()
    if pid == 0:
        lock.acquire()
        os._exit(0)
    header = {"event": "header", "pid": os.getpid(), "boot": sys.argv[2]}
    with open(sys.argv[1], "a") as file:
        file.write(json.dumps(header) + "\\n")
    sys.stdin.read()
    lock.release()
"""


def test_a_worker_that_waits_for_a_lock_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    monkeypatch.setitem(globals(), "PROGRAM", LOCKED)
    with _program(path) as pid, Sampler(tmp_path, interval=0.2):
        _wait_for(lambda: [event for event in _events(path, "usage") if event.get("lock") == 1])
    looks = _events(path, "usage")
    assert {event["role"] for event in looks if event.get("lock")} == {"worker"}
    assert not [event for event in looks if event["pid"] == pid and "lock" in event]


def test_looks_between_samples_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([True, False, False])
    monkeypatch.setattr(_core, "locked", lambda _pid: next(answers))
    path = tmp_path / "events.jsonl"
    with _program(path):
        sampler = Sampler(tmp_path)
        _wait_for(path.exists)
        _wait_for(lambda: (sampler.sample(), _events(path, "usage"))[1])
        tree = next(iter(sampler._trees.values()))
        assert tree is not None
        for _ in range(3):
            tree.look()
        sampler.sample()
    assert _events(path, "usage")[-1]["lock"] == 0.25  # it worked at the fourth look
