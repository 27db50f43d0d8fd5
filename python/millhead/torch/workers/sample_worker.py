"""A worker of ``dispatch="sample"``: takes a run of samples of whichever batch has some left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._utils import ExceptionWrapper

from millhead.torch.iterators.failed_samples import Faults
from millhead.torch.iterators.fetch import KeyedFetcher
from millhead.torch.workers import pickled_batch
from millhead.torch.workers.batch_worker import BatchWorker, Job, WorkerPlan
from millhead.torch.workers.position_rng import Generators


@dataclass
class Part:
    """What a worker says about a run, where writing its rows into the batch's slot is not all."""

    first: int
    #: Samples asked for, and how many of them could be had. The latter come first: where they are
    #: in the slot, the rows behind them are void.
    count: int
    kept: int
    #: The samples, where they are not in the slot.
    samples: list[Any] | None = None
    #: The exception that ends the batch, or the first one of samples that were skipped.
    error: ExceptionWrapper | None = None
    fatal: bool = False
    faults: Faults | None = None


class SamplePickler(pickled_batch.Pickler):
    """For samples that are collated elsewhere: they must give there what they give here."""

    def _reduce_tensor(self, tensor: torch.Tensor) -> Any:
        if tensor.layout is torch.strided and (tensor.is_conj() or tensor.is_neg()):
            tensor = tensor.resolve_conj().resolve_neg()  # pickling would forget that they are
        return super()._reduce_tensor(tensor)

    def _reduce_array(self, array: Any) -> Any:
        if not array.dtype.isnative or any(s < 0 or s % array.itemsize for s in array.strides):
            torch.as_tensor(array)  # raises: pickling would accept what torch refuses
        return super()._reduce_array(array)


class SampleWorker(BatchWorker):
    """Fetches runs, and writes them into their rows of a slot that it shares with others."""

    fetcher_class = KeyedFetcher
    fetcher: KeyedFetcher

    def __init__(self, plan: WorkerPlan, job: Job) -> None:
        super().__init__(plan, job)
        self.fetcher.generators = Generators(plan.rng)
        self.fetcher.stride = plan.stride
        self.numbers: list[Any] = []
        self.first = self.total = 0

    def run(self) -> None:
        """Take runs until there are no more."""
        failed_start = self.start()
        if failed_start is not None:  # others may have taken all there is: the consumer must know
            self.worker_end.part(pickled_batch.dumps(self.fatal(failed_start, first=-1)))
        memory_limit, work_run = self.memory_limit(failed_start), self.observed(self.work_run)
        fetcher = self.fetcher
        while (run := self.worker_end.claim()) is not None:
            self.numbers, self.first, self.total, fetcher.position, fetcher.key = run
            try:
                if failed_start is None:
                    work_run()
                else:
                    self.send_error(failed_start)
            except Exception:  # noqa: BLE001 - the user's, and the consumer's to see
                self.report()
            if memory_limit is not None and memory_limit.leaves():
                break

    def work_run(self) -> None:
        """Fetch the run, and send its samples."""
        fetcher = self.fetcher
        samples = fetcher.fetch_run(self.numbers, self.first)
        faults = fetcher.faults if fetcher.tolerance is not None else None
        if faults is not None and faults.error is not None:
            self.send_faults(faults, len(samples))
        fetcher.step = "collating"
        if not samples:
            self.worker_end.finish(False)
        elif not self.worker_end.rows(samples):
            part = Part(self.first, len(self.numbers), len(samples), samples)
            self.worker_end.part(pickled_batch.dumps(part, SamplePickler))
            self.worker_end.finish(True)

    def send_faults(self, faults: Faults, kept: int) -> None:
        error = faults.error
        assert error is not None
        faults.error = None  # it may not survive pickling; this does:
        wrapper = self.survivor(self.wrap((type(error), error, error.__traceback__)))
        wrapper.exc_msg += f"millhead: {self.place_of(faults.at)}\n"
        part = Part(self.first, len(self.numbers), kept, error=wrapper, faults=faults)
        self.worker_end.part(pickled_batch.dumps(part))

    def send_error(self, wrapper: ExceptionWrapper) -> None:
        """The batch ends with this exception, unless one comes before it."""
        offset = self.fetcher.failed if self.fetcher.step == "sample" else self.first
        self.worker_end.part(pickled_batch.dumps(self.fatal(wrapper, offset)))
        self.worker_end.finish(True)

    def fatal(self, wrapper: ExceptionWrapper, first: int) -> Part:
        return Part(first, 0, 0, error=self.survivor(wrapper), fatal=True)

    def where(self) -> str:
        """Not which worker, once it takes samples: the message should not depend on who took one."""
        return "in a DataLoader worker process" if self.fetcher.step else super().where()

    def place(self) -> str:
        """Where in the batch an exception arose, for its message."""
        step = self.fetcher.step
        if step != "sample":
            return f"{step} samples {self.first} to {self.first + len(self.numbers) - 1}"
        return self.place_of(self.fetcher.failed)

    def place_of(self, offset: int) -> str:
        """A sample, in words, whatever its index makes of itself."""
        try:
            index = repr(self.numbers[offset - self.first])
        except Exception:  # noqa: BLE001 - an index that cannot be shown
            index = "?"
        return f"sample index {index} (number {offset} of {self.total})"
