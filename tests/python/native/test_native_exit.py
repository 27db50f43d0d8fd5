"""However and whenever a program with a native loader ends, it ends at once and leaves nothing.

One process imports millhead and forks a program for each round, which opens a loader of its own; what
ends the round comes at a random moment of opening, reading, waiting or closing.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest
from helpers import procs

ROUNDS = 25
#: Of a round's end: what a busy machine may make of it. A thread that is waited for hangs longer.
SECONDS = 20.0

#: Rounds of (data, options, moment in seconds, signal or 0 for sys.exit) come as JSON; how each program
#: ended goes out. Whoever is forked leaves the loop and is a whole program: it ends as Python ends.
PROGRAM = """
import json, os, signal, sys, threading, time
import numpy, millhead
from millhead import loader as _  # nothing is imported after the fork

def ended(pid, number, after):
    os.read(begun, 1)  # Python drops signals that come while it forks
    began = time.monotonic()
    if number:
        time.sleep(after)
        os.kill(pid, number)
    while time.monotonic() - began < SECONDS + after:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hangs"

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs have it ignored
rounds, codes = json.load(sys.stdin), []
begun, begin = os.pipe()
for data, options, after, number in rounds:
    child = os.fork()
    if child == 0:
        break
    codes.append(ended(child, number, after))
else:
    print(json.dumps(codes))
    sys.exit(0)

os.write(begin, b"!")
loader = millhead.Loader(data, output="numpy", shuffle=True, **options)
until = time.monotonic() + (3 * SECONDS if number else after)
def read():
    kept = []
    while time.monotonic() < until:
        for batch in loader:
            kept = [*kept[-3:], batch]
            if time.monotonic() >= until:
                break
if options["seed"] % 2 and not number:  # Python ends while another thread waits for a batch
    until += 3 * SECONDS
    threading.Thread(target=read, daemon=True).start()
    time.sleep(after)
else:
    read()
sys.exit(7)
""".replace("SECONDS", str(SECONDS))


def rounds_of(path: str, number: int, seed: int) -> list[Any]:
    """Files and chunks, with and without a slow link, threads, and many batches ahead."""
    draw = random.Random(seed)
    made = []
    for at in range(ROUNDS):
        data = draw.choice([path, "synthetic:count=2000,shape=64,chunk=8,burn=100us"])
        options = {
            "batch_size": draw.choice([1, 16]),
            "threads": draw.choice([0, 1, 3]),
            "prefetch": draw.choice([1, 8]),
            "in_flight": draw.choice([1, 32]),
            "simulate": draw.choice([None, "latency=20ms"]),
            "seed": at,
        }
        made.append([data, options, draw.uniform(0, 0.06), number])
    return made


def left_files() -> set[str]:
    """Files of ours where temporary ones lie; other programs have theirs there."""
    names = procs.shared_files() | set(os.listdir(tempfile.gettempdir()))
    return {name for name in names if "millhead" in name}


@pytest.fixture
def path(tmp_path: Path) -> str:
    np.save(tmp_path / "x.npy", np.arange(800 * 8).reshape(800, 8))
    return str(tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("number", "codes"),
    [
        (signal.SIGINT, {-signal.SIGINT}),
        (signal.SIGTERM, {-signal.SIGTERM}),
        (signal.SIGKILL, {-signal.SIGKILL}),
        (0, {7}),
    ],
    ids=["ctrl-c", "term", "kill", "exit"],
)
def test_a_program_ends_at_any_moment(path: str, number: int, codes: set[int]) -> None:
    seed = int(time.time())
    before = left_files()
    rounds = rounds_of(path, number, seed)
    done = procs.run([sys.executable, "-c", PROGRAM], seconds=95, input=json.dumps(rounds))
    assert done.returncode == 0, done.stderr
    ends = json.loads(done.stdout)
    wrong = [(code, one) for code, one in zip(ends, rounds, strict=True) if code not in codes]
    assert not wrong, f"seed {seed}: {wrong[:3]}"
    for words in ("Fatal", "Exception ignored", "Assertion"):
        assert words not in done.stderr, f"seed {seed}: {done.stderr}"
    assert not done.left  # type: ignore[attr-defined]
    assert left_files() <= before


def test_a_loader_serves_on_after_any_number_of_interrupts(path: str) -> None:
    """As in a notebook: Ctrl-C at a random moment, then the cell is run again."""
    seed = int(time.time())
    draw = random.Random(seed)
    whole = np.load(path)
    tasks = len(os.listdir("/proc/self/task"))
    loader = millhead.Loader(
        path, 50, shuffle=True, simulate="latency=2ms", threads=2, output="numpy"
    )
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    interrupted = 0
    try:
        for _ in range(ROUNDS):
            moment = draw.uniform(0, 0.03)
            timer = threading.Timer(moment, os.kill, (os.getpid(), signal.SIGUSR1))
            try:
                timer.start()
                while timer.is_alive():
                    for _batch in loader:
                        pass
                time.sleep(1)  # the signal is on its way
            except KeyboardInterrupt:
                interrupted += 1
            timer.join()
            rows = np.concatenate([batch["x"] for batch in loader])
            assert np.array_equal(np.sort(rows, axis=0), whole), f"seed {seed}"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert interrupted == ROUNDS, f"seed {seed}"
    loader.close()
    gc.collect()
    assert procs.wait_until(lambda: len(os.listdir("/proc/self/task")) <= tasks)
