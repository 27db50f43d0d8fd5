"""Planted causes: training loops that wait for one known reason, of random strength.

Every plant is built from the train step's length: its strength says how much of its cost there is in
a step's time. Nothing here depends on how a verdict is found.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import disk
from millhead import _core

BATCH = 8
#: About what a run takes, without start-up; long enough for a few samples of the system.
RUN_S = 3.0


@dataclasses.dataclass(frozen=True)
class Loop:
    """A training loop: its loader, its dataset's costs and its step."""

    loader: str
    workers: int
    step_s: float
    batches: int
    epochs: int = 1
    prefetch: int | None = None
    in_order: bool = True
    persistent: bool = False
    #: CPU seconds of the loop's own work in every step.
    main_s: float = 0.0
    #: Seconds each worker sleeps when it starts.
    init_s: float = 0.0
    #: Pieces of a file that each sample reads past the page cache; see disk.py.
    pieces: int = 0
    #: Seconds each sample holds a lock that all workers share.
    locked_s: float = 0.0
    #: Arguments of millhead.data.Dummy.
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    #: Training processes, and by how much rank ``slow_rank`` is late with every batch.
    world: int = 1
    slow_rank: int = 0
    slow_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class Plant:
    """A loop, the cause that was planted into it, and how to scale its cost."""

    cause: str
    strength: float
    loop: Loop
    #: The loop with the planted cost multiplied.
    scaled: Callable[[float], Loop]
    #: A second, smaller cause, to be listed.
    also: str | None = None
    control: bool = False


Maker = Callable[[str, random.Random], Plant]


def _plant(cause: str, strength: float, make: Callable[[float], Loop], **more: Any) -> Plant:
    return Plant(cause, round(strength, 3), make(1.0), make, **more)


def _batches(step_s: float, each_s: float) -> int:
    """As many as fill a run of batches that take so long each."""
    return max(30, round(RUN_S / max(step_s, each_s)))


def _step(rng: random.Random) -> float:
    """Long enough for what any loader needs to hand over a batch, some ms, not to be a cause."""
    return rng.uniform(0.015, 0.03)


def slow_decode(loader: str, rng: random.Random) -> Plant:
    """Native code that decodes samples in as many workers as there are CPUs, or fewer."""
    step, strength = _step(rng), rng.uniform(1.5, 4)
    workers = rng.randint(1, _core.cpus())
    cost = strength * step * workers / BATCH
    batches = _batches(step, strength * step)

    def make(scale: float) -> Loop:
        return Loop(loader, workers, step, batches, data={"native_cpu": cost * scale})

    return _plant("cpu-bound", strength, make)


def slow_disk(loader: str, rng: random.Random) -> Plant:
    """Reads that no page cache answers, as many as take the strength's share of a step."""
    step, strength = _step(rng), rng.uniform(2, 4)
    pieces = round(strength * step / BATCH / disk.seconds_to_read())
    batches = _batches(step, strength * step)

    def make(scale: float) -> Loop:
        return Loop(loader, 1, step, batches, pieces=max(1, round(pieces * scale)))

    return _plant("disk-bound", strength, make)


def high_latency(loader: str, rng: random.Random) -> Plant:
    """A remote store."""
    step, strength, workers = _step(rng), rng.uniform(1.5, 5), rng.randint(1, 4)
    wait = strength * step * workers / BATCH
    batches = _batches(step, strength * step)

    def make(scale: float) -> Loop:
        spread = ("uniform", 0.5 * wait * scale, 1.5 * wait * scale)
        return Loop(loader, workers, step, batches, data={"latency": spread})

    return _plant("latency-bound", strength, make)


def shared_lock(loader: str, rng: random.Random) -> Plant:
    """Workers that wait for each other: more of them win nothing."""
    step, strength, workers = _step(rng), rng.uniform(1.5, 4), rng.randint(2, 6)
    held = strength * step / BATCH
    batches = max(100, _batches(step, strength * step))  # some looks at what they wait for

    def make(scale: float) -> Loop:
        return Loop(loader, workers, step, batches, locked_s=held * scale)

    return _plant("latency-bound", strength, make)


def python_transform(loader: str, rng: random.Random) -> Plant:
    """Interpreted code in the training process itself."""
    step, strength = _step(rng), rng.uniform(0.4, 3)
    cost = strength * step / BATCH
    batches = _batches(step, (1 + strength) * step)

    def make(scale: float) -> Loop:
        return Loop(loader, 0, step, batches, data={"python_cpu": cost * scale})

    return _plant("python-bound", strength, make)


def slow_collate(loader: str, rng: random.Random) -> Plant:
    """A collate_fn that takes longer than the samples."""
    step, strength, workers = _step(rng), rng.uniform(1.5, 3), rng.randint(0, 1)
    cost = strength * step
    batches = _batches(step, (1 + strength) * step)

    def make(scale: float) -> Loop:
        return Loop(loader, workers, step, batches, data={"collate_cpu": cost * scale})

    return _plant("collate-bound", strength, make)


def main_work(loader: str, rng: random.Random) -> Plant:
    """The loop does something of its own in every step."""
    step, strength = _step(rng), rng.uniform(0.4, 2)
    batches = _batches(step, (1 + strength) * step)

    def make(scale: float) -> Loop:
        return Loop(loader, 1, step, batches, main_s=strength * step * scale)

    return _plant("main-bound", strength, make)


def slow_sample(loader: str, rng: random.Random) -> Plant:
    """One sample in 100 takes longer than the batches in reserve last."""
    step, strength = _step(rng), rng.uniform(0.3, 0.9)
    reserve, between = 4 * step, 100 / BATCH * step
    late = reserve + strength * between

    def make(scale: float) -> Loop:
        data = {"latency": step / BATCH / 4, "tail": (0.01, late * scale), "seed": rng_seed}
        return Loop(loader, 2, step, _batches(step, 1.3 * step), data=data)

    rng_seed = rng.randrange(2**16)
    return _plant("tail-bound", strength, make)


def too_many_workers(loader: str, rng: random.Random) -> Plant:
    """Many more workers than CPUs, all of which want one."""
    times = rng.randint(4, 8)
    workers, step = times * _core.cpus(), 0.01
    cost = 2.0 * step * _core.cpus() / BATCH

    def make(scale: float) -> Loop:
        data = {"native_cpu": cost}
        return Loop(loader, max(1, round(workers * scale)), step, 2 * workers, epochs=4, data=data)

    return _plant("oversubscribed", times, make)


def memory_growth(loader: str, rng: random.Random) -> Plant:
    """Every sample leaves something behind."""
    step, workers = 0.03, rng.randint(0, 2)
    per_s = rng.uniform(10e6, 30e6)

    def make(scale: float) -> Loop:
        growth = int(per_s * scale * step / BATCH)
        persistent = workers > 0  # one set of processes, over epochs enough to tell it from a cache
        data = {"growth": growth}
        return Loop(loader, workers, step, 80, epochs=6, persistent=persistent, data=data)

    return _plant("memory-growth", per_s, make)


def slow_start(loader: str, rng: random.Random) -> Plant:
    """Workers that take long to be ready, started in every epoch."""
    step, strength, batches = _step(rng), rng.uniform(0.5, 2), 30
    init = strength * step * batches

    def make(scale: float) -> Loop:
        return Loop(loader, 2, step, batches, epochs=6, init_s=init * scale)

    return _plant("startup-bound", strength, make)


def slow_device(loader: str, rng: random.Random) -> Plant:
    """The step takes most of the time; the loader keeps up."""
    step, strength = rng.uniform(0.03, 0.08), rng.uniform(2, 6)
    wait = step / strength / BATCH

    def make(_scale: float) -> Loop:
        return Loop(loader, 1, step, _batches(step, step), data={"latency": wait})

    return _plant("device-bound", strength, make)


def slow_rank(loader: str, rng: random.Random) -> Plant:
    """One of four ranks is late with every batch, and the others wait for it."""
    step, strength, rank = 0.02, rng.uniform(0.5, 2), rng.randrange(4)

    def make(scale: float) -> Loop:
        return Loop(loader, 0, step, 80, world=4, slow_rank=rank, slow_s=strength * step * scale)

    return _plant("straggler", strength, make)


def two_causes(loader: str, rng: random.Random) -> Plant:
    """Latency and a slow collate at once, one after the other: the larger is named."""
    step, strength = _step(rng), rng.uniform(1, 2)
    wait, collate = strength * step / BATCH, strength * step / 3

    def make(scale: float) -> Loop:
        data = {"latency": wait * scale, "collate_cpu": collate}
        return Loop(loader, 0, step, _batches(step, (1 + 1.5 * strength) * step), data=data)

    return _plant("latency-bound", strength, make, also="collate-bound")


def clean(loader: str, rng: random.Random) -> Plant:
    """Nothing is wrong: a bit of everything, and workers that keep up."""
    step = rng.uniform(0.03, 0.06)
    part = step / BATCH / 20

    def make(_scale: float) -> Loop:
        data = {"native_cpu": part, "python_cpu": part, "latency": ("exponential", part)}
        return Loop(loader, 2, step, _batches(step, step), persistent=True, data=data)

    return _plant("device-bound", 0.0, make, control=True)


MAKERS: tuple[Maker, ...] = (
    slow_decode,
    slow_disk,
    high_latency,
    shared_lock,
    python_transform,
    slow_collate,
    main_work,
    slow_sample,
    too_many_workers,
    memory_growth,
    slow_start,
    slow_device,
    slow_rank,
    two_causes,
    clean,
)
