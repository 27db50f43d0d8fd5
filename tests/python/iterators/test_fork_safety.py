"""Loaders among forks, threads and other processes: inside workers, in children, after pools ran."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from helpers import procs
from helpers import template_cases as tc
from helpers.template_cases import Plain
from millhead.torch import DataLoader

# ---- loaders inside workers ----------------------------------------------------------------------


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_loader_without_workers_may_be_used_in_a_workers_sample(start: str) -> None:
    loader = DataLoader(tc.Nested(6, 0, None), num_workers=2, multiprocessing_context=start)
    assert [int(batch) for batch in loader] == [sum(range(index + 3)) for index in range(6)]


@pytest.mark.filterwarnings("ignore::millhead.Advice")
@pytest.mark.parametrize("inner", ["fork", "spawn"])
def test_a_loader_with_workers_in_a_worker_is_refused_as_with_torch(inner: str) -> None:
    def refusal(dataset: Any) -> tuple[type, str]:
        loader = DataLoader(dataset(2, 1, inner), num_workers=1, multiprocessing_context="fork")
        with pytest.raises(AssertionError) as caught:
            next(iter(loader))
        lines = str(caught.value).strip().splitlines()
        return caught.type, next(line for line in reversed(lines) if "millhead" not in line)

    ours = refusal(tc.Nested)
    assert ours == refusal(tc.NestedTorch)
    assert "daemonic processes are not allowed to have children" in ours[1]


# ---- loaders inside other processes --------------------------------------------------------------

KEPT: list[Any] = []


def _load(context: str, pipe: Any, keep: bool) -> None:
    """A child's work: an epoch, whose loader stays when the work is done."""
    loader = DataLoader(Plain(), num_workers=2, multiprocessing_context=context)
    if keep:
        KEPT.append(loader)
    pipe.send(([int(batch) for batch in loader], loader.stats()["start"]))


def _load_and_fail(context: str, pipe: Any, keep: bool) -> None:
    loader = DataLoader(Plain(), num_workers=2, multiprocessing_context=context)
    pipe.send(([int(batch) for batch in loader], loader.stats()["start"]))
    raise LookupError(f"after an epoch of {len(loader)}")


def _in_process(
    target: Any, method: str, context: str, keep: bool = True
) -> tuple[Any, int | None]:
    """What a child process sends, and how it ends; None: not within 10 s."""
    start = multiprocessing.get_context(method)
    ours, theirs = start.Pipe(duplex=False)
    process = start.Process(target=target, args=(context, theirs, keep))
    process.start()
    try:
        theirs.close()
        assert ours.poll(60)
        told = ours.recv()
        process.join(10)
        return told, process.exitcode
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()


@pytest.mark.parametrize(
    ("method", "context"),
    [("fork", "fork"), ("fork", "spawn"), ("spawn", "fork"), ("spawn", "spawn")],
)
def test_a_child_process_may_use_a_loader_and_ends_with_it_alive(method: str, context: str) -> None:
    told, status = _in_process(_load, method, context)
    assert told == (list(range(8)), "template" if context == "spawn" else "fork")
    assert status == 0


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_child_process_that_fails_after_an_epoch_ends_and_says_why(
    context: str, capfd: pytest.CaptureFixture[str]
) -> None:
    told, status = _in_process(_load_and_fail, "fork", context)
    assert told[0] == list(range(8))
    assert status == 1
    errors = capfd.readouterr().err
    assert errors.strip().endswith("LookupError: after an epoch of 8"), errors
    assert errors.count("Traceback") == 1, errors


def test_a_loader_made_before_a_fork_works_in_parent_and_child_at_once() -> None:
    loader = DataLoader(Plain(200), num_workers=2)
    iterator = iter(loader)
    assert [int(next(iterator)) for _ in range(20)] == list(range(20))
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            status = int([int(batch) for batch in loader] != list(range(200)))
        finally:
            os._exit(status)
    assert [int(batch) for batch in iterator] == list(range(20, 200))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("persistent", [False, True])
def test_an_inherited_iterator_says_whose_it_is_and_the_parents_goes_on(persistent: bool) -> None:
    iterator = iter(DataLoader(Plain(200), num_workers=2, persistent_workers=persistent))
    assert [int(next(iterator)) for _ in range(5)] == list(range(5))
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        text = "no error"
        try:
            next(iterator)
        except Exception as error:  # noqa: BLE001 - to look at
            text = f"{getattr(error, 'code', None)}: {error}"
        finally:
            os.write(write, text.encode())
            os._exit(0)
    os.close(write)
    text = os.read(read, 10_000).decode()
    os.close(read)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert text.startswith("used after a fork: ")
    assert "belongs to the process that made it" in text
    assert "iter()" in text
    assert [int(batch) for batch in iterator] == list(range(5, 200))


# ---- threads that were there before --------------------------------------------------------------

AFTER_THREADS = """
import json
import sys
import threading
import time
import numpy as np
import torch
from millhead.torch import DataLoader

class Products:
    def __len__(self):
        return 24

    def __getitem__(self, index):
        values = torch.full((64, 64), float(index + 1)) @ torch.eye(64)
        return values + torch.from_numpy(np.full((64, 64), 2.0) @ np.eye(64))

def spin(stop):  # nothing of torch's: a lock it holds at the fork would be copied locked
    while not stop.is_set():
        blocks = [bytearray(2000) for _ in range(50)]
        time.sleep(0.002)

torch.set_num_threads(4)
torch.rand(1500, 1500) @ torch.rand(1500, 1500)
np.random.rand(1200, 1200) @ np.random.rand(1200, 1200)
stop = threading.Event()
threads = [threading.Thread(target=spin, args=(stop,)) for _ in range(3)]
for thread in threads:
    thread.start()
wanted = list(DataLoader(Products(), batch_size=4))
loader = DataLoader(Products(), batch_size=4, num_workers=2, multiprocessing_context="fork")
wrong = 0
for _ in range(8):
    for batch, other in zip(loader, wanted, strict=True):
        wrong += not torch.equal(batch, other)
stop.set()
for thread in threads:
    thread.join()
print(json.dumps([wrong, loader.stats()["batches"], loader.stats()["start"]]))
"""


def test_forked_workers_do_not_hang_where_threads_and_pools_ran_before(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(AFTER_THREADS))
    result = procs.run([sys.executable, "-W", "ignore::DeprecationWarning", str(script)])
    assert result.stdout == '[0, 48, "fork"]\n', result.stderr
    assert result.returncode == 0
    assert result.stderr == ""
    assert result.left == set()  # type: ignore[attr-defined]
