"""Compares millhead's DataLoader with torch's on random cases.

    python parity.py --cases 500 --seed 7 [--json] [--case K]

Every case runs the same arguments and seeds through both classes and compares each batch (types,
dtypes, shapes, strides, bytes), each exception (class, first line, position), ``len``, what a lying
``len`` is warned of and the generators of the parent after every step. Where ``in_order=False``
leaves the order to the workers, the batches of an epoch are compared as a multiset. ``--case K``
runs one case alone, here, and prints it. The exit status is 1 when a case failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from helpers import parity_cases as pc
from helpers import parity_data as pd
from helpers import procs
from helpers.compare import describe, describe_error, difference, rng_states, seed_everything
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    random_split,
)
from torch.utils.data.distributed import DistributedSampler

CASE_SECONDS = 90.0
SPAWN_SHARE = 0.025
STREAM_SHARE = 0.22
STRIDES = True


@dataclass(frozen=True)
class Case:
    """Everything that makes up one comparison; made from (seed, number) alone."""

    number: int
    seed: int
    length: int
    dataset: str
    kind: str
    draws: bool
    errors: tuple[tuple[int, str], ...]
    sampler: str
    batch_size: int | None
    drop_last: bool
    collate: str | None
    generator: bool
    workers: int
    start: Any
    prefetch: int | None
    persistent: bool
    init: str | None
    extra: dict[str, Any]
    takes: tuple[int | None, ...]
    consumer: str
    share: str = ""  # what each worker yields of a stream
    subset: str = ""  # the type of a Subset's indices

    @property
    def is_stream(self) -> bool:
        """Whether the dataset is an iterable one."""
        return self.dataset in STREAMS

    @property
    def is_unordered(self) -> bool:
        """Whether the workers' speed decides the order."""
        return self.workers > 1 and not self.extra.get("in_order", True)


@dataclass
class Trace:
    """What a user saw: one event and one set of generator states per step."""

    events: list[Any] = field(default_factory=list)
    states: list[dict[str, str]] = field(default_factory=list)
    paths: dict[str, int] = field(default_factory=dict)


SAMPLERS = {
    "sequential": 4,
    "shuffle": 5,
    "random": 2,
    "replacement": 2,
    "num_samples": 1,
    "subset": 2,
    "weighted": 2,
    "endless": 2,
    "eager": 3,
    "distributed": 2,
    "numpy indices": 1,
    "tensor indices": 1,
    "batches": 2,
    "batches of any type": 2,
    "batches and empty ones": 1,
    "batches eager": 1,
    "batches as indices": 1,
    "range": 1,
    "failing": 1,
}
#: Samplers for rows in memory alone: other datasets here do not mind such indices.
ROW_SAMPLERS = {**SAMPLERS, "from the end": 2, "too far": 2}
BATCHES = ("batches", "batches of any type", "batches and empty ones", "batches eager")
ROWS = ("tensor", "tensor subset", "tensor split", "rows", "subset of rows", "array rows")
STREAMS = (*pd.STREAMS, "chain")
CHANGING = ("sometimes", "stops")  # collate functions that count their calls
DRAWING = ("drawing", "mixing", "growing")  # and those that draw
DATASETS = {
    "items": 9,
    "many": 1,
    "many as tuple": 1,
    "subset": 1,
    "concat": 1,
    "split": 1,
    "list": 1,
    "subset of many": 1,
    "subset of subset": 1,
    **dict.fromkeys(pd.MANY, 0.4),
    **dict.fromkeys(ROWS, 1),
}


def make_case(seed: int, number: int) -> Case:
    """Draws a case; the same two numbers always give the same one."""
    rng = random.Random(f"parity {seed} {number}")
    if rng.random() < STREAM_SHARE:
        return _make_stream_case(rng, seed, number)
    workers = rng.choice([0, 0, 1, 1, 2, 2, 3])
    long = rng.random() < 0.8  # enough batches to leave the first workers * prefetch behind
    prefetch = rng.choice([1, 1, 2] if long else [1, 2, 3, 4, None]) if workers else None
    length = rng.randint(24, 60) if long else rng.randint(0, 24)
    batch_size = _draw_batch_size(rng, long)
    dataset = rng.choices(list(DATASETS), list(DATASETS.values()))[0]
    samplers = ROW_SAMPLERS if dataset in ROWS else SAMPLERS
    sampler = rng.choices(list(samplers), list(samplers.values()))[0]
    if sampler in BATCHES:
        batch_size = 1
    if sampler == "batches as indices":
        batch_size = None
    if rng.random() < 0.04:
        dataset = rng.choice(["reused", "reused array"])
    if rng.random() < 0.03:
        dataset, sampler = "keyed", "string indices"
    kind = _draw_kind(rng, dataset, workers)
    collate = _draw_collate(rng, batch_size)
    errors: tuple[tuple[int, str], ...] = ()
    if dataset not in ("list", *ROWS):
        errors = _draw_errors(rng, length)
    if dataset.startswith("reused"):  # only a collate that copies makes these deterministic
        kind, collate, batch_size = "int", None, batch_size or 3
    if kind in pc.FRAGILE:
        collate, batch_size = None, batch_size or 2
    if dataset == "many as iterator" and collate == "list of samples":
        collate = None  # an iterator has nothing to compare
    if sampler == "batches as indices" and (
        batch_size is not None or dataset not in ("items", *ROWS)
    ):
        sampler = "sequential"
    start = _draw_start(rng) if workers else None
    persistent = bool(workers) and rng.random() < 0.45
    can_draw = dataset not in ("list", *ROWS) and kind not in pc.FRAGILE
    case = Case(
        number=number,
        seed=seed,
        length=length,
        dataset=dataset,
        kind=kind,
        draws=can_draw and rng.random() < 0.35,
        errors=errors,
        sampler=sampler,
        batch_size=batch_size,
        drop_last=batch_size is not None and sampler not in BATCHES and rng.random() < 0.3,
        collate=collate,
        generator=rng.random() < 0.4,
        workers=workers,
        start=start,
        prefetch=prefetch,
        persistent=persistent,
        init=_draw_init(rng) if workers else None,
        extra=_draw_extra(rng, workers),
        takes=_draw_takes(rng, start, persistent),
        consumer=_draw_consumer(rng, workers, batch_size, collate),
        subset=rng.choice(pd.SUBSETS),
    )
    return _without_chance(case) if case.is_unordered else case


def _without_chance(case: Case) -> Case:
    """The case without what would depend on which worker loads a batch, or when."""
    return dataclasses.replace(
        case,
        draws=False,
        errors=tuple(error for error in case.errors if error[1] != "StopIteration"),
        sampler="sequential" if case.sampler == "failing" else case.sampler,
        collate=None if case.collate in (*CHANGING, *DRAWING) else case.collate,
        init=None if case.init in ("configures", "fails") else case.init,
        takes=(None,) * len(case.takes),
        consumer="reads" if case.consumer == "draws" else case.consumer,
    )


def _make_stream_case(rng: random.Random, seed: int, number: int) -> Case:
    workers = rng.choice([0, 0, 1, 2, 2, 3])
    long = rng.random() < 0.8
    length = rng.randint(24, 60) if long else rng.randint(0, 20)
    dataset = rng.choice(["stream", "stream", "chain", *pd.STREAMS])
    batch_size = rng.choice([None, 1, 2, 3, 4]) if long else rng.choice([None, 1, 2, 5, 70])
    prefetch = rng.choice([1, 1, 2] if long else [1, 2, 4, None]) if workers else None
    collate = _draw_collate(rng, batch_size)
    start = _draw_start(rng) if workers else None
    init = _draw_init(rng) if workers else None
    endless = workers > 0 and (init == "fails" or dataset == "stream that cannot be opened")
    persistent = bool(workers) and not endless and rng.random() < 0.45
    takes = _draw_takes(rng, start, persistent)
    extra = _draw_extra(rng, workers)
    consumer = _draw_consumer(rng, workers, batch_size, collate)
    if workers > 1 and not extra.get("in_order", True):
        takes = (None,) * len(takes)
        consumer = "reads" if consumer == "draws" else consumer
    if endless:  # torch's worker without a fetcher raises at every batch, for ever
        extra.pop("in_order", None)
        takes = (rng.randint(1, 9),)
    return Case(
        number=number,
        seed=seed,
        length=length,
        dataset=dataset,
        kind=rng.choice(list(rng.choices([pc.PLAIN, pc.ODD], [80, 20])[0])),
        # How much of an abandoned epoch a worker has drawn is for torch a matter of chance.
        draws=rng.random() < 0.5 and not (persistent and any(take for take in takes[:-1])),
        errors=() if dataset == "stream that draws when opened" else _draw_errors(rng, length),
        sampler="sequential",
        batch_size=batch_size,
        drop_last=batch_size is not None and rng.random() < 0.4,
        collate=collate,
        generator=rng.random() < 0.4,
        workers=workers,
        start=start,
        prefetch=prefetch,
        persistent=persistent,
        init=init,
        extra=extra,
        takes=takes,
        consumer=consumer,
        share=rng.choice(list(pd.SHARES)),
    )


def _draw_kind(rng: random.Random, dataset: str, workers: int) -> str:
    if dataset == "array rows":
        return rng.choice(list(pd.ARRAY_ROWS))
    if dataset in ROWS:
        return rng.choice(list(pd.TENSOR_ROWS if workers else pd.TENSOR_ROWS | pd.LOCAL_ROWS))
    tables = [pc.PLAIN, pc.ODD, pc.FRAGILE if workers else pc.FRAGILE | pc.UNSENDABLE]
    return rng.choice(list(rng.choices(tables, [76, 21, 3])[0]))


def _draw_errors(rng: random.Random, length: int) -> tuple[tuple[int, str], ...]:
    if rng.random() >= 0.15 or not length:
        return ()
    names = rng.choices(list(pc.RAISERS), k=rng.randint(1, 3))
    return tuple((rng.randrange(length), name) for name in names)


def _draw_init(rng: random.Random) -> str | None:
    return rng.choices([None, *pc.INITS], [12, 2, 2, 2, 1])[0]


def _draw_batch_size(rng: random.Random, long: bool) -> int | None:
    if rng.random() < 0.12:
        return None
    return rng.choice([1, 2, 3, 4]) if long else rng.choice([1, 2, 3, 5, 8, 70])


def _draw_collate(rng: random.Random, batch_size: int | None) -> str | None:
    if rng.random() < 0.65 or (batch_size is None and rng.random() < 0.7):
        return None
    return rng.choice([*pc.COLLATES, *CHANGING, *DRAWING])


def _draw_start(rng: random.Random) -> Any:
    if rng.random() < SPAWN_SHARE / 0.7:  # 0.7 of the cases have workers
        return rng.choice(["spawn", "forkserver"])
    return rng.choice([None, None, "fork", "fork context"])


def _draw_extra(rng: random.Random, workers: int) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    if workers and rng.random() < 0.1:
        extra["timeout"] = 60
    if rng.random() < 0.05:
        extra["pin_memory"] = True
    if rng.random() < 0.2:
        extra["in_order"] = False
    return extra


def _draw_takes(rng: random.Random, start: Any, persistent: bool) -> tuple[int | None, ...]:
    """How many batches are taken from each epoch; None takes all."""
    if start in ("spawn", "forkserver") and not persistent:
        return (None,)
    epochs = rng.choice([1, 2, 3]) if persistent else rng.choice([1, 1, 2])
    return tuple(rng.choice([None, None, None, rng.randint(0, 5)]) for _ in range(epochs))


def _draw_consumer(
    rng: random.Random, workers: int, batch_size: int | None, collate: str | None
) -> str:
    kinds = ["reads", "reads", "keeps", "draws"]
    if not workers or (batch_size is not None and collate is None):
        kinds.append("overwrites")  # elsewhere torch hands out the worker's own memory
    return rng.choice(kinds)


# ---- building --------------------------------------------------------------------------------


def _build_dataset(case: Case) -> Any:
    items = pc.Items(case.kind, case.length, case.draws, case.errors)
    if case.dataset in pd.MANY:
        return pd.MANY[case.dataset](case.kind, case.length, case.draws, case.errors)
    if case.is_stream:
        stream = pd.STREAMS.get(case.dataset, pd.Stream)
        made = stream(case.kind, case.length, case.share, case.draws, case.errors)
        return pd.chained(made) if case.dataset == "chain" else made
    if case.dataset in ROWS:
        return _build_rows(case)
    match case.dataset:
        case "many":
            return pc.ManyItems(case.kind, case.length, case.draws, case.errors)
        case "many as tuple":
            return pc.ManyAsTuple(case.kind, case.length, case.draws, case.errors)
        case "subset":
            return pc.subset(items)
        case "subset of many":
            many = pc.ManyItems(case.kind, case.length, case.draws, case.errors)
            return pd.shuffled_subset(many, case.subset)
        case "subset of subset":
            return pd.shuffled_subset(pc.subset(items), case.subset)
        case "concat":
            return pc.concatenated(items)
        case "split":
            third = case.length // 3
            return random_split(items, [third, case.length - third])[1]
        case "list":
            return [pc.SAMPLES[case.kind](index) for index in range(case.length)]
        case "reused":
            return pc.ReusedBuffer(case.kind, case.length)
        case "reused array":
            return pc.ReusedArray(case.kind, case.length)
        case "keyed":
            return pc.Keyed(case.kind, case.length, case.draws, case.errors)
    assert case.dataset == "items"
    return items


def _build_rows(case: Case) -> Any:
    if case.dataset == "array rows":
        return pd.ARRAY_ROWS[case.kind](case.length)
    if case.dataset in ("rows", "subset of rows"):
        rows = (pd.TENSOR_ROWS | pd.LOCAL_ROWS)[case.kind](case.length)
        return rows if case.dataset == "rows" else pd.shuffled_subset(rows, case.subset)
    dataset = pd.tensor_dataset(case.kind, case.length)
    if case.dataset == "tensor subset":
        return pd.shuffled_subset(dataset, case.subset)
    if case.dataset == "tensor split":
        return random_split(dataset, [case.length // 3, case.length - case.length // 3])[1]
    return dataset


def _build_sampling(case: Case, size: int, generator: torch.Generator | None) -> dict[str, Any]:
    def plain(sampler: Any) -> dict[str, Any]:
        return {"sampler": sampler, "batch_size": case.batch_size, "drop_last": case.drop_last}

    sizes = pc.Sizes(size)
    match case.sampler:
        case "shuffle":
            return {**plain(None), "shuffle": True}
        case "random":
            return plain(RandomSampler(sizes, generator=generator))
        case "replacement":
            return plain(RandomSampler(sizes, True, 40, generator))
        case "num_samples":
            return plain(RandomSampler(sizes, num_samples=size * 2 + 3, generator=generator))
        case "subset":
            return plain(SubsetRandomSampler(range(0, size, 2), generator))
        case "weighted":
            weights = [1.0 + index % 5 for index in range(size)]
            return plain(WeightedRandomSampler(weights, max(size, 1) * 2, generator=generator))
        case "endless":
            return plain(pc.Endless(max(size, 1), size))
        case "eager":
            return plain(pc.Eager(size))
        case "distributed":
            return plain(DistributedSampler(sizes, 2, 1, shuffle=True, seed=case.seed % 1000))
        case "numpy indices":
            return plain(pc.Converted(size, "numpy"))
        case "tensor indices":
            return plain(pc.Converted(size, "tensor"))
        case "string indices":
            return plain(pc.Converted(size, "string"))
        case "range":
            return plain(range(size - 1, -1, -1))
        case "from the end":
            return plain(range(-1, -size - 1, -1))
        case "too far":
            return plain([*range(size * 2 // 3), size, -size - 1, 2**70, *range(size // 2)])
        case "failing":
            return plain(pc.Failing(size, size * 2 // 3))
        case "batches":
            return {"batch_sampler": pc.Buckets(size)}
        case "batches of any type":
            kinds = list(pc.BATCH_TYPES)
            return {"batch_sampler": pc.Buckets(size, kinds[case.number % len(kinds)])}
        case "batches and empty ones":
            return {"batch_sampler": pc.Buckets(size, empty=True)}
        case "batches eager":
            return {"batch_sampler": BatchSampler(pc.Eager(size), 3, drop_last=True)}
        case "batches as indices":
            return plain(BatchSampler(SequentialSampler(sizes), 3, drop_last=False))
    return plain(None)


def _build_loader(cls: type, case: Case, generators: list[torch.Generator | None]) -> Any:
    dataset = _build_dataset(case)
    collate: Any = pc.COLLATES.get(case.collate) if case.collate else None
    if case.collate in CHANGING:
        collate = pc.CollateSometimes() if case.collate == "sometimes" else pc.CollateStops()
    workers: dict[str, Any] = {}
    if case.workers:
        start = case.start
        if start == "fork context":
            start = torch.multiprocessing.get_context("fork")
        workers = {
            "multiprocessing_context": start,
            "prefetch_factor": case.prefetch,
            "persistent_workers": case.persistent,
            "worker_init_fn": pc.INITS[case.init] if case.init else None,
        }
    return cls(
        dataset,
        num_workers=case.workers,
        collate_fn=collate,
        generator=generators[0],
        **_build_sampling(case, 0 if case.is_stream else len(dataset), generators[1]),
        **workers,
        **case.extra,
    )


# ---- running ---------------------------------------------------------------------------------


def _overwrite(value: Any) -> None:
    """Writes over every tensor of a batch, as a training step in place would."""
    if isinstance(value, torch.Tensor):
        try:
            value.zero_()
        except RuntimeError:
            return  # overlapping memory, a leaf that requires grad, or sparse
    elif isinstance(value, dict):
        for item in value.values():
            _overwrite(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _overwrite(item)


def _steps(case: Case, iterator: Iterator[Any], take: int | None) -> Iterator[Any]:
    """Takes batches and goes on after exceptions; ends after StopIteration came twice."""
    ends = 0
    taken = 0
    while ends < 2 and (take is None or taken < take):
        taken += 1
        try:
            batch = next(iterator)
        except StopIteration:
            ends += 1
            yield ("end",)
        except Exception as error:  # noqa: BLE001 - an outcome to compare
            yield ("error", *describe_error(error))
        else:
            yield batch
        if taken > 500:
            raise AssertionError("more than 500 steps in one epoch")


def run(cls: type, case: Case) -> Trace:
    """Runs a case with one class."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace = _run(cls, case)
    said = [str(item.message) for item in caught]
    trace.events.append(("said", *(text for text in said if "Length of IterableDataset" in text)))
    return trace


def _run(cls: type, case: Case) -> Trace:
    trace = Trace()
    seed_everything(case.seed * 1_000_003 + case.number)
    generators = [torch.Generator().manual_seed(5 + n) if case.generator else None for n in (0, 1)]

    def record(event: Any) -> None:
        trace.events.append(event)
        trace.states.append(rng_states(generators))

    try:
        loader = _build_loader(cls, case, generators)
    except Exception as error:  # noqa: BLE001 - an outcome to compare
        record(("not made", *describe_error(error)))
        return trace
    try:
        record(("length", len(loader)))
    except Exception as error:  # noqa: BLE001 - an outcome to compare
        record(("no length", *describe_error(error)))
    kept: list[Any] = []
    iterator = None
    for epoch, take in enumerate(case.takes):
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        try:
            iterator = iter(loader)
        except Exception as error:  # noqa: BLE001 - an outcome to compare
            record(("no iterator", *describe_error(error)))
            continue
        record(("epoch", epoch))
        for step in _steps(case, iterator, take):
            _consume(case, step, kept, record)
        if not case.persistent:
            _finish(iterator, trace)
    record(("kept", *(describe(batch, strides=STRIDES) for batch in kept)))
    if hasattr(loader, "stats"):
        trace.paths = dict(loader.stats()["paths"])
    _finish(iterator, trace)
    loader._iterator = None
    return trace


def _finish(iterator: Any, trace: Trace) -> None:
    """Ends workers at once where an exception's traceback keeps the iterator in a cycle.

    Torch then takes 5 s for each worker, because the garbage collector ends its queues first.
    """
    if any(event[0] in ("error", "no iterator") for event in trace.events):
        getattr(iterator, "_shutdown_workers", lambda: None)()


def _consume(case: Case, step: Any, kept: list[Any], record: Any) -> None:
    if isinstance(step, tuple) and step and step[0] in ("end", "error"):
        record(step)
        return
    record(("batch", describe(step, strides=STRIDES)))
    if case.consumer == "keeps":
        kept.append(step)
    elif case.consumer == "draws":
        pc.draw_all()
    elif case.consumer == "overwrites":
        _overwrite(step)


def compare_case(case: Case) -> dict[str, Any]:
    """Both classes on one case: whether they agree and by which paths the batches came."""
    import millhead.torch

    expected = run(torch.utils.data.DataLoader, case)
    gc.collect()
    actual = run(millhead.torch.DataLoader, case)
    gc.collect()
    if case.is_unordered:
        expected.events, actual.events = _sorted(case, expected), _sorted(case, actual)
    reason = ""
    for number in range(max(len(expected.events), len(actual.events))):
        left = expected.events[number] if number < len(expected.events) else ("nothing",)
        right = actual.events[number] if number < len(actual.events) else ("nothing",)
        reason = difference(left, right)
        if reason:
            reason = f"step {number}: {reason}"
            break
    rng = _rng_difference(expected.states, actual.states)
    return {
        "case": case.number,
        "seed": case.seed,
        "equal": not reason,
        "rng_equal": not rng,
        "paths": actual.paths,
        "reason": "; ".join(text for text in (reason, rng) if text),
    }


def _sorted(case: Case, trace: Trace) -> list[Any]:
    """The events with the batches and errors of each epoch in an order of their own."""
    found: list[Any] = []
    epoch: list[Any] = []
    for event in trace.events:
        if event[0] in ("batch", "error"):
            if event[0] == "error" and not case.is_stream:  # any worker may have loaded it
                event = (*event[:2], re.sub(r"process \d+", "process N", event[2]))
            epoch.append(event)
            continue
        found += sorted(epoch, key=repr)
        epoch = []
        found.append(("kept", *sorted(event[1:], key=repr)) if event[0] == "kept" else event)
    return found + sorted(epoch, key=repr)


def _rng_difference(expected: list[dict[str, str]], actual: list[dict[str, str]]) -> str:
    for number, (left, right) in enumerate(zip(expected, actual, strict=False)):
        wrong = [name for name in left if left[name] != right.get(name)]
        if wrong:
            return f"step {number}: other generator state of {', '.join(wrong)}"
    return ""


# ---- the program -----------------------------------------------------------------------------


def _serve(seed: int, numbers: list[int]) -> None:
    """Runs cases and prints a line of JSON for each, with a line before it that names it."""
    for number in numbers:
        print(json.dumps({"begin": number}), flush=True)
        try:
            result = compare_case(make_case(seed, number))
        except Exception as error:  # noqa: BLE001 - reported as a failure
            result = _failure(seed, number, f"the test itself: {type(error).__name__}: {error}")
        print(json.dumps(result), flush=True)


def _failure(seed: int, number: int, reason: str) -> dict[str, Any]:
    return {
        "case": number,
        "seed": seed,
        "equal": False,
        "rng_equal": False,
        "paths": {},
        "reason": reason,
    }


class Runner:
    """A child process that works through cases; started again when one hangs or crashes it."""

    def __init__(self, seed: int, numbers: list[int]) -> None:
        self.seed = seed
        self.todo = numbers
        self.results: list[dict[str, Any]] = []
        self.process: subprocess.Popen[bytes] | None = None
        self.buffer = b""
        self.current: int | None = None
        self.deadline = 0.0
        self._start()

    def _start(self) -> None:
        if not self.todo:
            return
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", json.dumps([self.seed, self.todo])],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.buffer, self.current = b"", None
        self.deadline = time.monotonic() + CASE_SECONDS

    @property
    def done(self) -> bool:
        return self.process is None

    def poll(self) -> None:
        """Takes what the child has printed; starts another child when this one is lost."""
        assert self.process is not None and self.process.stdout is not None
        if select.select([self.process.stdout], [], [], 0.1)[0]:
            data = os.read(self.process.stdout.fileno(), 65536)
            self.buffer += data
            *lines, self.buffer = self.buffer.split(b"\n")
            for line in lines:
                self._take(json.loads(line))
            if not data:
                self._ended(f"the process ended with status {self._end()}")
        elif time.monotonic() > self.deadline:
            self._end()
            self._ended(f"no result within {CASE_SECONDS:.0f} s")

    def _take(self, message: dict[str, Any]) -> None:
        self.deadline = time.monotonic() + CASE_SECONDS
        if "begin" in message:
            self.current = message["begin"]
            return
        self.results.append(message)
        self.todo.remove(message["case"])
        self.current = None

    def _end(self) -> int:
        """Ends the child and its group; one that ended by itself may clean up first."""
        assert self.process is not None
        finished = not self.todo and self.current is None
        if finished:
            self.process.wait(timeout=30)
            procs.wait_until(lambda: not self._group_lives())
        if self._group_lives():
            os.killpg(self.process.pid, signal.SIGKILL)
        status = self.process.wait(timeout=30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def _group_lives(self) -> bool:
        assert self.process is not None
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _ended(self, how: str) -> None:
        if self.todo:
            number = self.todo[0] if self.current is None else self.current
            self.results.append(_failure(self.seed, number, how))
            self.todo.remove(number)
        self.process = None
        self._start()


def run_cases(seed: int, count: int, jobs: int) -> dict[str, Any]:
    """Runs ``count`` cases in ``jobs`` processes and adds the results up."""
    runners = [Runner(seed, list(range(job, count, jobs))) for job in range(jobs)]
    while not all(runner.done for runner in runners):
        for runner in runners:
            if not runner.done:
                runner.poll()
    results = sorted((r for runner in runners for r in runner.results), key=lambda r: r["case"])
    return {
        "cases": len(results),
        "equal": sum(result["equal"] for result in results),
        "rng_after_equal": sum(result["rng_equal"] for result in results),
        "paths": {
            path: sum(result["paths"].get(path, 0) > 0 for result in results)
            for path in ("slot", "general", "torch")
        },
        "failed": [
            {key: result[key] for key in ("case", "seed", "reason")}
            for result in results
            if not (result["equal"] and result["rng_equal"])
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None, help="default: a random one, printed")
    parser.add_argument("--case", type=int, default=None, help="run this case alone and print it")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        _serve(*json.loads(options.serve))
        return 0
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    if options.case is not None:
        case = make_case(seed, options.case)
        for name, value in dataclasses.asdict(case).items():
            print(f"{name:>12} {value}")
        result = compare_case(case)
        print(json.dumps(result))
        return 0 if result["equal"] and result["rng_equal"] else 1
    report = run_cases(seed, options.cases, options.jobs)
    if options.json:
        print(json.dumps(report))
    else:
        print(f"seed {seed}: {report['equal']} of {report['cases']} equal, {report['paths']}")
        for failure in report["failed"]:
            print(f"  --seed {seed} --case {failure['case']}: {failure['reason']}")
    return 1 if report["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
