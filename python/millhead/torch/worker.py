"""What a worker process does: seed, fetch, collate, send.

The order of steps is torch's (DESIGN's "same stream"): seed ``random``, torch and numpy from the
base seed and the worker's number, run ``worker_init_fn``, then whole batches, samples in order,
collate after the last sample.
"""

from __future__ import annotations

import faulthandler
import io
import os
import pickle
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._utils import ExceptionWrapper  # what torch's own workers send; tested in test_errors
from torch.utils.data import Subset
from torch.utils.data._utils import collate as torch_collate
from torch.utils.data._utils import worker as torch_worker

from millhead import _core
from millhead.torch import _general
from millhead.torch._workers import Descriptor

#: As torch came, to see whether the user extended it.
_TORCH_COLLATE_MAP = dict(torch_collate.default_collate_fn_map)


def collates_as_torch(collate_fn: Callable[[Any], Any]) -> bool:
    """Whether ``collate_fn`` is torch's default with nothing added to its type map."""
    return (
        collate_fn is torch_collate.default_collate
        and torch_collate.default_collate_fn_map == _TORCH_COLLATE_MAP
    )


@dataclass
class WorkerPlan:
    """All that a worker is given when it starts."""

    number: int
    workers: int
    depth: int
    dataset: Any
    auto_collation: bool
    collate_fn: Callable[[Any], Any]
    worker_init_fn: Callable[[int], None] | None
    base_seed: int
    descriptors: tuple[Descriptor, ...]
    maps: tuple[int, int]
    trainer: Descriptor
    crash_point: str | None


def each_sample(dataset: Any, index: Any) -> tuple[Any, list[Any]] | None:
    """(dataset, indices) to fetch one by one, or None where ``__getitems__`` fetches them all.

    A plain Subset has ``__getitems__`` only for the sake of the dataset it wraps: where that one
    has none, it is the same as fetching one by one, which can say which sample failed.
    """
    batched = getattr(dataset, "__getitems__", None)
    if not batched:
        return dataset, index if type(index) is list else list(index)
    if type(dataset) is Subset and not callable(getattr(dataset.dataset, "__getitems__", None)):
        return dataset.dataset, [dataset.indices[i] for i in index]
    return None


def _seed(plan: WorkerPlan) -> int:
    seed = plan.base_seed + plan.number
    random.seed(seed)
    torch.manual_seed(seed)
    try:
        import numpy
    except ImportError:
        return seed
    # Private, but it *is* the contract: numpy's seed in a worker is this hash of the base seed.
    state = torch_worker._generate_state(plan.base_seed, plan.number)  # type: ignore[no-untyped-call]
    numpy.random.seed(state)
    return seed


class _Worker:
    def __init__(self, plan: WorkerPlan) -> None:
        self.plan = plan
        self.dataset = plan.dataset
        self.station = _core.Station(
            tuple(descriptor.fd for descriptor in plan.descriptors),
            plan.maps,
            plan.number,
            plan.depth,
            pickle.loads,
        )
        self.stage = ""  # what an exception's message says it arose in
        self.initialised = False

    def start(self) -> ExceptionWrapper | None:
        """Seeding and the user's worker_init_fn; an exception there is the first batch's."""
        plan = self.plan
        torch.set_num_threads(1)
        seed = _seed(plan)
        # get_worker_info() reads this; there is no public way to set it.
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=plan.number, num_workers=plan.workers, seed=seed, dataset=self.dataset
        )
        try:
            if plan.worker_init_fn is not None:
                plan.worker_init_fn(plan.number)
        except Exception:  # noqa: BLE001 - the user's, and the consumer's to see
            return self.wrap()
        self.initialised = True
        return None

    def native_collate(self) -> bool:
        return self.plan.auto_collation and collates_as_torch(self.plan.collate_fn)

    def fetch(self, index: Any) -> Any:
        if not self.plan.auto_collation:
            return self.dataset[index]
        self.stage = "fetching"
        singly = each_sample(self.dataset, index)
        if singly is None:
            return self.dataset.__getitems__(index)
        self.stage = "sample"
        return self.station.fetch(*singly)

    def work(self, index: Any) -> None:
        """Fetch, collate and send one batch."""
        if not self.initialised:
            # Torch's class for this: its worker has no fetcher then.
            raise UnboundLocalError("worker_init_fn failed, so this worker cannot fetch samples")
        samples = self.fetch(index)
        self.stage = "collating"
        if self.native_collate() and self.station.collate(samples):
            return
        batch = self.plan.collate_fn(samples)
        del samples
        if not self.station.send_batch(batch):
            self.station.send(False, _general.dumps(batch))

    def wrap(self) -> ExceptionWrapper:
        """The exception being handled, with its traceback as text, in torch's words."""
        where = f"in DataLoader worker process {self.plan.number}"
        return ExceptionWrapper(where=where)  # type: ignore[no-untyped-call]

    def send_error(self, wrapper: ExceptionWrapper) -> None:
        try:
            stream = pickle.dumps(wrapper, 5)
            pickle.loads(stream)
        except Exception:  # noqa: BLE001 - a class that does not survive pickling
            wrapper.exc_msg = (
                f"{wrapper.exc_type.__name__}, sent as RuntimeError: {wrapper.exc_msg}"
            )
            wrapper.exc_type = RuntimeError
            stream = pickle.dumps(wrapper, 5)
        self.station.send(True, [stream])

    def place(self, index: Any) -> str:
        """Where in the batch an exception arose, for its message."""
        if not self.plan.auto_collation:
            return f"sample index {index!r}"
        offset = self.station.offset()
        if self.stage == "sample" and offset < len(index):
            return f"sample index {index[offset]!r} (number {offset} of a batch of {len(index)})"
        return f"{self.stage} the samples with indices {_abridged(index)}"

    def run(self) -> None:
        failed_start = self.start()
        while (task := self.station.next()) is not None:
            index, new_epoch = task
            if new_epoch:
                self.initialised = True  # torch makes a new fetcher then, whatever came before
            if failed_start is not None:
                self.send_error(failed_start)
                failed_start = None
                continue
            try:
                self.work(index)
            except Exception:  # noqa: BLE001 - the user's, and the consumer's to see
                wrapper = self.wrap()
                wrapper.exc_msg += f"millhead: {self.place(index)}\n"
                self.send_error(wrapper)
            del task, index


def _abridged(index: Any) -> str:
    numbers = list(index)
    text = ", ".join(repr(number) for number in numbers[:8])
    return f"[{text}, ...]" if len(numbers) > 8 else f"[{text}]"


def _dump_stack_on_request() -> None:
    try:
        faulthandler.register(signal.SIGRTMIN + 9, chain=True)
    except (AttributeError, io.UnsupportedOperation, OSError, RuntimeError, ValueError):
        pass  # stderr is no file here: there is nowhere to dump to


def run(plan: WorkerPlan) -> None:
    """A worker process's whole life."""
    try:
        if plan.crash_point is not None:
            _core.arm_point(plan.crash_point)
        _core.exit_with(plan.trainer.fd)
        os.close(plan.trainer.fd)
        _dump_stack_on_request()
        _Worker(plan).run()
    except KeyboardInterrupt:
        pass  # the trainer gets it too, and says so
