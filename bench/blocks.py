"""What an arm does in one block, one function for each kind, and the fingerprint of batches.

A block answers with ``samples`` and ``amount`` (the rate is one over the other), figures to show,
and, where every block has a process of its own, the fingerprints of the batches it timed.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterable
from multiprocessing import resource_tracker
from typing import Any, Protocol, cast

import machine
import numpy as np
import workloads
from workloads import Cell

BIG_PARITY_BATCHES = 8  # of large batches only so many are fingerprinted
MEMORY_EPOCHS = 5
LEAST_GB = 1e-4  # memory of a worker that takes none: a rate has to be finite
END_LIMIT_S = 10.0
STATE_CALLS = 100

Answer = dict[str, Any]


class Arm(Protocol):
    """What blocks need of an arm."""

    def epoch(self) -> Iterable[Any]:
        """The batches of one epoch; a loader itself, where it has torch's interface."""

    def stats(self, reset: bool) -> dict[str, Any]:
        """What the loader says about itself."""


class LoaderArm(Arm, Protocol):
    """An arm with torch's interface."""

    def loader(self, workers: int) -> Iterable[Any]:
        """Another loader over the same dataset."""


def digest(batch: Any) -> str:
    """A fingerprint of types, dtypes, shapes and values."""
    if isinstance(batch, (list, tuple)):
        return f"{type(batch).__name__}[{','.join(digest(item) for item in batch)}]"
    if isinstance(batch, dict):
        return f"dict[{','.join(f'{key}={digest(item)}' for key, item in batch.items())}]"
    if hasattr(batch, "dtype"):
        values = hashlib.sha256(np.ascontiguousarray(batch).tobytes()).hexdigest()[:32]
        return f"{type(batch).__name__}:{batch.dtype}:{tuple(batch.shape)}:{values}"
    return repr(batch)


def parity(arm: Arm, cell: Cell) -> Answer:
    """Fingerprint the batches of an epoch."""
    most = BIG_PARITY_BATCHES if cell.kind == "big" else cell.batches
    return {"digests": [digest(b) if i < most else "" for i, b in enumerate(arm.epoch())]}


def run(arm: Arm, cell: Cell, seconds: float) -> Answer:
    """Run one block of the cell's kind."""
    if cell.block == "epochs":
        return epochs(arm, cell, seconds)
    if cell.block == "calls":
        return calls(arm, seconds)
    if cell.block == "first":
        return first_batch(arm)
    if cell.block == "memory":
        return memory(cast(LoaderArm, arm), cell)
    if cell.block == "resume":
        return resume(cast(LoaderArm, arm), cell)
    return tail(arm, cell)


def epochs(arm: Arm, cell: Cell, seconds: float) -> Answer:
    """Iterate whole epochs until the block is long enough."""
    count, batches, elapsed = 0, 0, 0.0
    start = time.perf_counter()
    while elapsed < seconds:
        for _ in arm.epoch():
            batches += 1
        count += 1
        elapsed = time.perf_counter() - start
    _check_count(batches, count * cell.batches)
    return {"amount": elapsed, "samples": count * cell.epoch_samples}


def _check_count(found: int, expected: int) -> None:
    if found != expected:
        raise RuntimeError(f"{found} batches, not {expected}")


def calls(arm: Arm, seconds: float) -> Answer:
    """``next(iter(loader))`` again and again, at least once; ending the workers is part of it."""
    loader = arm.epoch()
    count, waited, elapsed = 0, 0.0, 0.0
    start = time.perf_counter()
    while not count or elapsed < seconds:
        began = time.perf_counter()
        iterator = iter(loader)
        batch = next(iterator)
        waited += time.perf_counter() - began
        del iterator
        count += 1
        elapsed = time.perf_counter() - start
    figures = {"call_s": elapsed / count, "first_batch_s": waited / count}
    return {"amount": elapsed, "samples": count, "figures": figures, "digests": [digest(batch)]}


def first_batch(arm: Arm) -> Answer:
    """From ``iter(loader)`` to the first batch, once. The workers live on until the arm ends."""
    start = time.perf_counter()
    iterator = iter(arm.epoch())
    batch = next(iterator)
    elapsed = time.perf_counter() - start
    _kept.append(iterator)
    figures = {"first_batch_s": elapsed}
    return {"amount": elapsed, "samples": 1, "figures": figures, "digests": [digest(batch)]}


_kept: list[Any] = []


def memory(arm: LoaderArm, cell: Cell) -> Answer:
    """What one more worker takes, when every worker has read the whole list.

    Both figures are the PSS of all processes of the arm (the trainer, its workers, what started
    them), after an epoch, with the workers alive: with the cell's workers, less with one, divided
    by the difference in workers.
    """
    before = set(machine.session_pids(os.getsid(0)))
    loader = arm.loader(1)
    _check_count(sum(1 for _ in loader), cell.batches)
    one = machine.Memory.of_session(os.getsid(0))
    del loader
    _await_end(before)
    digests = [digest(batch) for batch in arm.epoch()]
    all_ = [machine.Memory.of_session(os.getsid(0))]
    for _ in range(MEMORY_EPOCHS - 1):
        _check_count(sum(1 for _ in arm.epoch()), cell.batches)
        all_.append(machine.Memory.of_session(os.getsid(0)))
    gb = (all_[0].pss - one.pss) / 1e9 / (cell.workers - 1)
    slope = np.polyfit(range(MEMORY_EPOCHS), [snapshot.pss / 1e6 for snapshot in all_], 1)[0]
    figures = {
        "mb_per_worker": 1e3 * gb,
        "mb": all_[0].pss / 1e6,
        "mb_per_epoch": float(slope),
        "fds": all_[-1].fds,
        "threads": all_[-1].threads,
    }
    return {"amount": max(gb, LEAST_GB), "samples": 1, "figures": figures, "digests": digests}


def _await_end(before: set[int]) -> None:
    """Wait until a loader that was let go has ended the processes it started."""
    gc.collect()
    deadline = time.monotonic() + END_LIMIT_S
    tracker = getattr(resource_tracker._resource_tracker, "_pid", None)  # it stays, once started
    while set(machine.session_pids(os.getsid(0))) - before - {tracker}:
        if time.monotonic() > deadline:
            raise RuntimeError("a loader that was let go still has processes")
        multiprocessing.active_children()  # waits for those that have ended
        time.sleep(0.05)


def tail(arm: Arm, cell: Cell) -> Answer:
    """One epoch in which one sample is slow: how many batches come before it, and after it."""
    batches: list[Any] = []
    at, place = 0.0, -1
    start = time.perf_counter()
    for batch in arm.epoch():
        if bool((batch == workloads.SLOW_INDEX).any()):
            at, place = time.perf_counter() - start, len(batches)
        batches.append(batch)
    _check_count(len(batches), cell.batches)
    if place < 0:
        raise RuntimeError("the slow sample did not come")
    figures = {"before": place, "after": len(batches) - 1 - place, "slow_s": at}
    digests = sorted(digest(batch) for batch in batches)
    return {"amount": at, "samples": place + 1, "figures": figures, "digests": digests}


def resume(arm: LoaderArm, cell: Cell) -> Answer:
    """A new loader goes on at nine tenths of an epoch: how long until its first batch.

    A loader that cannot be told where to begin draws everything before, as its users have to.
    """
    at = cell.batches * 9 // 10
    loader: Any = arm.loader(cell.workers)
    figures = {}
    state = None
    if hasattr(loader, "state_dict"):
        iterator = iter(loader)
        for _ in itertools.islice(iterator, at):
            pass
        state = loader.state_dict()
        took = []
        for _ in itertools.islice(iterator, STATE_CALLS):
            began = time.perf_counter()
            loader.state_dict()
            took.append(time.perf_counter() - began)
        figures["state_us"] = 1e6 * statistics.median(took)
        del iterator
    loader = arm.loader(cell.workers)
    start = time.perf_counter()
    if state is not None:
        loader.load_state_dict(state)
    iterator = iter(loader)
    batch = next(iterator) if state is not None else next(itertools.islice(iterator, at, None))
    elapsed = time.perf_counter() - start
    figures["resume_s"] = elapsed
    return {"amount": elapsed, "samples": 1, "figures": figures, "digests": [digest(batch)]}
