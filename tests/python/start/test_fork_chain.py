"""Workers of fork loaders: they fork one another, all from the trainer as it was at iter()."""

from __future__ import annotations

import errno
import gc
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import millhead.torch.start.fork_chain as chain
import pytest
import torch.utils.data
from helpers import procs
from helpers import template_cases as tc
from helpers.template_cases import Plain
from millhead.torch import DataLoader

#: So many that the last ones are not forked when a loop that ends at once ends.
MANY = 64


def _loader(dataset: Any, workers: int = 3, **arguments: Any) -> Any:
    return DataLoader(dataset, num_workers=workers, multiprocessing_context="fork", **arguments)


# ---- as torch's workers --------------------------------------------------------------------------


class Kin(Plain):
    """Tells what a worker's process is to the trainer's."""

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        parent = multiprocessing.parent_process()
        own = multiprocessing.current_process()
        assert parent is not None
        facts = {
            "parent": [os.getppid(), parent.pid, parent.name, parent.is_alive()],
            "own": [type(own).__name__, own.name.partition("-")[0], own.daemon],
            "pid": own.pid == os.getpid(),
            "standard input": sys.stdin.read(),
            "children": len(multiprocessing.active_children()),
            "mask": len(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        }
        return json.dumps(facts)


def test_workers_are_to_the_trainer_what_torchs_are() -> None:
    arguments: dict[str, Any] = {"num_workers": 3, "multiprocessing_context": "fork"}
    ours = list(DataLoader(Kin(6), **arguments))
    assert ours == list(torch.utils.data.DataLoader(Kin(6), **arguments))
    assert json.loads(ours[0][0])["parent"][0] == os.getpid()


def test_multiprocessing_knows_the_workers_as_children() -> None:
    before = set(multiprocessing.active_children())
    iterator = iter(_loader(Plain(40)))
    children = set(multiprocessing.active_children()) - before
    assert {child.pid for child in children} == {worker.pid for worker in iterator._workers}
    assert {child.pid for child in children} <= procs.children()
    assert all(child.daemon and child.is_alive() for child in children)
    del iterator
    gc.collect()
    assert set(multiprocessing.active_children()) == before


def test_a_worker_can_be_ended_and_waited_for_through_multiprocessing() -> None:
    before = set(multiprocessing.active_children())
    iterator = iter(_loader(Plain(40)))
    assert all(worker.pid for worker in iterator._workers)  # all are forked
    for child in set(multiprocessing.active_children()) - before:
        child.kill()
        assert multiprocessing.connection.wait([child.sentinel], 30)
        child.join(30)
        assert child.exitcode == -signal.SIGKILL
    with pytest.raises(RuntimeError, match=r"SIGKILL \(signal 9\)"):
        list(iterator)


def test_workers_ended_before_they_are_forked_end_all_the_same() -> None:
    before = procs.children()
    iterator = iter(_loader(Plain(40), workers=5))
    children = [worker._process for worker in iterator._workers]
    for child in children:
        child.terminate()
    for child in children:
        child.join(30)
        assert child.exitcode is not None
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        list(iterator)
    assert procs.children() == before


@pytest.mark.parametrize("persistent", [False, True])
def test_every_worker_sees_the_trainer_as_it_was_at_iter(persistent: bool) -> None:
    loader = _loader(tc.Added(60, 0), workers=6, batch_size=2, persistent_workers=persistent)
    iterator = iter(loader)
    loader.dataset.number = 1000  # while most of the workers are not forked yet
    numbers = [int(number) for batch in iterator for number in batch]
    assert numbers == list(range(60))


def test_handlers_at_forks_run_once_in_every_worker_and_once_in_the_trainer(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            """
            import os
            from millhead.torch import DataLoader

            calls = {"before": 0, "parent": 0, "child": 0}

            class Calls:
                def __len__(self):
                    return 4

                def __getitem__(self, index):
                    return str(calls)

            def count(name):
                calls[name] += 1

            os.register_at_fork(
                before=lambda: count("before"),
                after_in_parent=lambda: count("parent"),
                after_in_child=lambda: count("child"),
            )
            loader = DataLoader(Calls(), num_workers=4, multiprocessing_context="fork")
            print(*sorted({text for batch in loader for text in batch}))
            print(calls)
            """
        )
    )
    result = procs.run([sys.executable, str(script)])
    assert result.stdout.splitlines() == [
        "{'before': 1, 'parent': 0, 'child': 1}",
        "{'before': 1, 'parent': 1, 'child': 0}",
    ], result.stderr


# ---- workers that are not wanted -----------------------------------------------------------------


def test_workers_that_are_not_wanted_any_more_are_not_forked() -> None:
    loader = _loader(Plain(2 * MANY), workers=MANY)
    next(iter(loader))  # what a loader keeps
    before = procs.children(), set(procs.descriptors())
    iterator = iter(loader)
    workers = iterator._workers
    assert next(iterator).tolist() == [0]
    iterator._shutdown_workers()
    assert (procs.children(), set(procs.descriptors())) == before
    forked = [worker.pid is not None for worker in workers]
    assert forked == sorted(forked, reverse=True)  # from the first one on
    assert forked[0]
    assert not forked[-1]
    assert {worker.exitcode for worker in workers} == {0}
    assert not any(worker.is_alive() for worker in workers)


def test_loops_that_end_at_any_moment_leave_nothing() -> None:
    loader = _loader(Plain(400), workers=5)
    list(loader)
    gc.collect()
    before = procs.children(), set(procs.descriptors()), procs.map_count()
    rng = random.Random(5)
    for _ in range(30):
        iterator = iter(loader)
        time.sleep(rng.choice([0, 0.001, 0.01]) * rng.random())
        for number in range(rng.randrange(4)):
            assert next(iterator).tolist() == [number]
        del iterator
        gc.collect()
        assert (procs.children(), set(procs.descriptors())) == before[:2]
    assert procs.map_count() < before[2] + 15


# ---- ends at any moment --------------------------------------------------------------------------


def test_a_worker_killed_at_any_moment_is_reported_and_nothing_is_left() -> None:
    loader = _loader(Plain(10**6), workers=4)
    next(iter(loader))  # what a loader keeps
    before = procs.children(), set(procs.descriptors())
    rng = random.Random(6)
    for _ in range(12):
        iterator = iter(loader)
        victim = iterator._workers[rng.randrange(3)].pid  # waits until it is forked, no longer
        time.sleep(0.01 * rng.random() * rng.randrange(2))
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(RuntimeError) as caught:
            for _ in iterator:
                pass
        assert f"pid(s) {victim}" in str(caught.value)
        assert "SIGKILL (signal 9)" in str(caught.value)
        del iterator, caught
        gc.collect()
        assert (procs.children(), set(procs.descriptors())) == before


def test_nothing_outlives_a_trainer_killed_while_workers_are_forked() -> None:
    script = f"""
        import sys
        from millhead.torch import DataLoader
        from helpers.template_cases import Plain
        loader = DataLoader(Plain(10**6), num_workers={MANY}, multiprocessing_context="fork")
        print("now", flush=True)
        for _ in loader:
            pass
    """
    rng = random.Random(7)
    for _ in range(2):
        mark, environment = procs.new_mark()
        command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as trainer:
            try:
                assert trainer.stdout is not None
                assert trainer.stdout.readline() == b"now\n"
                time.sleep(0.1 * rng.random())
                trainer.kill()
                trainer.wait(10)
                assert procs.wait_until(lambda mark=mark: not procs.marked(mark))
            finally:
                trainer.kill()
                procs.end_marked(mark)


def test_a_fork_of_the_users_right_after_iter_disturbs_nobody() -> None:
    for _ in range(5):
        iterator = iter(_loader(Plain(40), workers=5))
        pid = os.fork()
        if pid == 0:
            del iterator
            gc.collect()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert [int(batch) for batch in iterator] == list(range(40))


# ---- where it cannot be done ---------------------------------------------------------------------

#: A filter that makes one kind of system call fail: seccomp, by hand.
REFUSING = """
import ctypes
import json
import os
import struct
import sys
import warnings

import numpy.random  # its threads are not to be counted
import torch
from millhead.torch import DataLoader
from helpers.template_cases import Plain

def refuse(number, argument_bits, error):
    "Let the system call `number` fail with `error` where its first argument has these bits."
    load, jump_equal, jump_set, answer = 0x20, 0x15, 0x45, 0x06
    allow, fail = 0x7FFF0000, 0x00050000 | error
    code = [
        (load, 0, 0, 0),
        (jump_equal, 0, 3, number),
        (load, 0, 0, 16),
        (jump_set, 0, 1, argument_bits),
        (answer, 0, 0, fail),
        (answer, 0, 0, allow),
    ]
    packed = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in code))
    program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(packed))
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_seccomp, by_filter = 38, 22, 2
    assert libc.prctl(no_new_privileges, 1, 0, 0, 0) == 0
    assert libc.prctl(set_seccomp, by_filter, program, 0, 0) == 0

number, bits, error, workers = json.loads(sys.argv[1])
refuse(number, bits, error)
loader = DataLoader(Plain(24), num_workers=workers, multiprocessing_context="fork")
found = []
for _ in range(2):
    try:
        found.append([int(batch) for batch in loader])
    except (OSError, RuntimeError) as error:
        found.append(f"{type(error).__name__}: {error}")
print(json.dumps([found, loader.stats()["start"]]))
"""
PRCTL, CLONE = (157, 56) if os.uname().machine == "x86_64" else (167, 220)
CLONE_PARENT, GET_TID_ADDRESS, CHILD_SETTID = 0x8000, 40, 0x01000000


def _run_refusing(tmp_path: Path, *what: int) -> Any:
    script = tmp_path / "train.py"
    script.write_text(REFUSING)
    result = procs.run([sys.executable, "-W", "ignore", str(script), json.dumps(what)])
    assert result.returncode == 0, result.stderr
    assert result.left == set()  # type: ignore[attr-defined]
    return json.loads(result.stdout)


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize(
    "refused",
    [(PRCTL, GET_TID_ADDRESS, errno.EINVAL), (CLONE, CLONE_PARENT, errno.EINVAL)],
    ids=["PR_GET_TID_ADDRESS", "CLONE_PARENT"],
)
def test_where_a_sandbox_refuses_workers_are_forked_one_by_one(
    tmp_path: Path, refused: tuple[int, int, int], workers: int
) -> None:
    epochs, start = _run_refusing(tmp_path, *refused, workers)
    assert epochs == [list(range(24))] * 2
    assert start == "fork"


def test_a_worker_that_cannot_be_forked_is_reported(tmp_path: Path) -> None:
    epochs, _ = _run_refusing(tmp_path, CLONE, CLONE_PARENT, errno.EAGAIN, 4)
    for text in epochs:
        assert text.startswith("RuntimeError: DataLoader worker 2 could not be forked (Resource")
        assert "use fewer workers" in text


def test_a_first_worker_that_cannot_be_forked_raises_what_fork_raises(tmp_path: Path) -> None:
    epochs, _ = _run_refusing(tmp_path, CLONE, CHILD_SETTID, errno.EAGAIN, 3)
    for text in epochs:
        assert text.startswith("BlockingIOError: [Errno 11]")


def test_what_replaces_os_fork_sees_every_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    forks = []
    fork = os.fork

    def counting() -> int:
        forks.append(1)
        return fork()

    monkeypatch.setattr(os, "fork", counting)
    assert not chain.can_chain()
    assert [int(batch) for batch in _loader(Plain(9))] == list(range(9))
    assert len(forks) == 3


# ---- where somebody else waits for them ----------------------------------------------------------

REAPED = """
import os, signal, sys
from millhead.torch import DataLoader

def reap(*_):
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass

signal.signal(signal.SIGCHLD, signal.SIG_IGN if sys.argv[1] == "ignored" else reap)
counts = []
for _ in range(4):
    assert len(list(DataLoader(range(12), num_workers=3, multiprocessing_context="fork"))) == 12
    counts.append(len(os.listdir("/proc/self/fd")))
assert counts[1] == counts[3], counts
iterator = iter(DataLoader(range(10**9), num_workers=2, multiprocessing_context="fork"))
os.kill(iterator._workers[1].pid, signal.SIGKILL)
try:
    for _ in iterator:
        pass
except RuntimeError as error:
    print(error)
assert not any(worker.is_alive() for worker in iterator._workers)
"""


@pytest.mark.parametrize("how", ["ignored", "handled"])
def test_workers_that_somebody_else_waits_for_are_missed_and_the_program_ends(how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", REAPED, how],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    assert "exited unexpectedly: ended, nobody knows how" in done.stdout
    assert "SIGCHLD" in done.stdout
    assert "(pid 0)" not in done.stdout
