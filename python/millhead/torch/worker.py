"""What a worker process does: seed, fetch, collate, send.

The order of steps is torch's (DESIGN's "same stream"): seed ``random``, torch and numpy from the
base seed and the worker's number, run ``worker_init_fn``, then whole batches, samples in order,
collate after the last sample.
"""

from __future__ import annotations

import contextlib
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
from torch.utils.data import Subset, default_collate
from torch.utils.data._utils import signal_handling
from torch.utils.data._utils import worker as torch_worker

from millhead import _core
from millhead.torch import _general
from millhead.torch._workers import Descriptor


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


def as_list(index: Any) -> list[Any]:
    """The indices of a batch: a batch sampler may yield any iterable of them."""
    return index if type(index) is list else list(index)


def fetches_together(dataset: Any) -> bool:
    """Whether a batch is fetched by one ``__getitems__``.

    A plain Subset has it only for the sake of the dataset it wraps: where that one has none,
    fetching one by one is the same, and can say which sample failed.
    """
    if not getattr(dataset, "__getitems__", None):
        return False
    if type(dataset) is Subset:
        return callable(getattr(dataset.dataset, "__getitems__", None))
    return True


def within(dataset: Any, numbers: list[Any]) -> tuple[Any, list[Any]]:
    """A Subset's own dataset and indices in it; any other dataset as it is."""
    if type(dataset) is Subset:
        return dataset.dataset, [dataset.indices[number] for number in numbers]
    return dataset, numbers


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
        self.numbers: list[Any] = []  # indices of the batch in hand
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

    def fetch(self, index: Any) -> Any:
        if not self.plan.auto_collation:
            self.numbers = [index]
            self.stage = "sample"
            return self.dataset[index]
        self.stage = "fetching"
        if fetches_together(self.dataset):
            self.numbers = index if hasattr(index, "__len__") else []
            return self.dataset.__getitems__(index)
        self.numbers = as_list(index)
        dataset, numbers = within(self.dataset, self.numbers)
        self.stage = "sample"
        return self.station.fetch(dataset, numbers)

    def work(self, index: Any) -> None:
        """Fetch, collate and send one batch."""
        self.stage, self.numbers = "not fetching", []
        if not self.initialised:
            # Torch's class for this: its worker has no fetcher then.
            raise UnboundLocalError("worker_init_fn failed, so this worker cannot fetch samples")
        samples = self.fetch(index)
        self.stage = "collating"
        if self.plan.collate_fn is default_collate and self.station.collate(samples):
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

    def place(self) -> str:
        """Where in the batch an exception arose, for its message."""
        numbers = list(self.numbers)
        if not numbers:
            return f"{self.stage} a batch"
        offset = self.station.offset() if self.plan.auto_collation else 0
        if self.stage == "sample" and offset < len(numbers):
            return f"sample index {numbers[offset]!r} (number {offset} of {len(numbers)})"
        some = ", ".join(repr(number) for number in numbers[:8])
        more = ", ..." if len(numbers) > 8 else ""
        return f"{self.stage} the samples with indices [{some}{more}]"

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
                with contextlib.suppress(Exception):  # an index that cannot be shown
                    wrapper.exc_msg += f"millhead: {self.place()}\n"
                self.send_error(wrapper)
            del task, index


def _dump_stack_on_request() -> None:
    try:
        number = signal.SIGRTMIN + 9
        # Chained to a handler of the user's; the default action would end the process.
        chain = signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN, None)
        faulthandler.register(number, chain=chain)
    except (AttributeError, io.UnsupportedOperation, OSError, RuntimeError, ValueError):
        pass  # stderr is no file here: there is nowhere to dump to


def run(plan: WorkerPlan) -> None:
    """A worker process's whole life."""
    try:
        if plan.crash_point is not None:
            _core.arm_point(plan.crash_point)
        _core.exit_with(plan.trainer.fd)
        os.close(plan.trainer.fd)
        # Torch's, so that a SIGTERM handler of the trainer's does not run in its workers.
        signal_handling._set_worker_signal_handlers()  # type: ignore[attr-defined]
        _dump_stack_on_request()
        _Worker(plan).run()
    except KeyboardInterrupt:
        pass  # the trainer gets it too, and says so
