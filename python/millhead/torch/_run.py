"""A worker of ``dispatch="sample"``: takes a run of samples of whichever batch has some left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch._utils import ExceptionWrapper

from millhead.torch import _general
from millhead.torch._faults import Faults
from millhead.torch._rng import Generators, sample_key
from millhead.torch.worker import BatchWorker, Job, WorkerPlan


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


class SamplePickler(_general.Pickler):
    """For samples that are collated elsewhere: they must give there what they give here."""

    def _reduce_tensor(self, tensor: torch.Tensor) -> Any:
        if tensor.layout is torch.strided and (tensor.is_conj() or tensor.is_neg()):
            tensor = tensor.resolve_conj().resolve_neg()  # pickling would forget that they are
        return super()._reduce_tensor(tensor)

    def _reduce_array(self, array: Any) -> Any:
        if not array.dtype.isnative or any(s < 0 or s % array.itemsize for s in array.strides):
            torch.as_tensor(array)  # raises: pickling would mend what torch refuses
        return super()._reduce_array(array)


class SampleWorker(BatchWorker):
    """Fetches runs, and writes them into their rows of a slot that it shares with others."""

    def __init__(self, plan: WorkerPlan, job: Job) -> None:
        super().__init__(plan, job)
        self.generators = Generators(plan.rng)
        self.first = self.total = self.position = self.key = 0

    def run(self) -> None:
        """Take runs until there are no more."""
        failed_start = self.start()
        if failed_start is not None:  # others may have taken all there is: the consumer must know
            self.station.part(_general.dumps(self.fatal(failed_start, first=-1)))
        ceiling = self.ceiling(failed_start)
        while (run := self.station.claim()) is not None:
            self.numbers, self.first, self.total, self.position, self.key = run
            try:
                if failed_start is None:
                    self.work_run()
                else:
                    self.send_error(failed_start)
            except Exception:  # noqa: BLE001 - the user's, and the consumer's to see
                self.report()
            if ceiling is not None and ceiling.leaves():
                break

    def work_run(self) -> None:
        """Fetch the run, and send its samples."""
        self.stage = "sample"
        count = len(self.numbers)
        samples: list[Any] = []
        if self.tolerance is None:
            self.fetch_some(self.numbers, self.first, samples)
        else:
            self.tolerance.seed, self.tolerance.stride = self.key, self.plan.stride
            samples, faults = self.tolerance.fetch(
                self.numbers, self.position, self.fetch_some, self.first
            )
            if faults.error is not None:
                self.send_faults(faults, len(samples))
        self.stage = "collating"
        if not samples:
            self.station.finish(False)
        elif not self.station.rows(samples):
            part = Part(self.first, count, len(samples), samples)
            self.station.part(_general.dumps(part, SamplePickler))
            self.station.finish(True)

    def fetch_some(self, numbers: list[Any], first: int, samples: list[Any]) -> None:
        """Append samples to a list, each drawing from generators of its own."""
        stride, dataset = self.plan.stride, self.source(self.dataset)
        for offset, number in enumerate(numbers, first):
            self.generators.seed(sample_key(self.key, self.position + stride * offset))
            self.station.fetch_more(dataset, [number], offset, samples)

    def send_faults(self, faults: Faults, kept: int) -> None:
        error = faults.error
        assert error is not None
        faults.error = None  # it may not survive pickling; this does:
        wrapper = self.survivor(self.wrap((type(error), error, error.__traceback__)))
        wrapper.exc_msg += f"millhead: {self.place_of(faults.at)}\n"
        part = Part(self.first, len(self.numbers), kept, error=wrapper, faults=faults)
        self.station.part(_general.dumps(part))

    def send_error(self, wrapper: ExceptionWrapper) -> None:
        """The batch ends with this exception, unless one comes before it."""
        offset = self.station.offset() if self.stage == "sample" else self.first
        self.station.part(_general.dumps(self.fatal(wrapper, offset)))
        self.station.finish(True)

    def fatal(self, wrapper: ExceptionWrapper, first: int) -> Part:
        return Part(first, 0, 0, error=self.survivor(wrapper), fatal=True)

    def where(self) -> str:
        """Not which worker, once it takes samples: the message should not depend on who took one."""
        return "in a DataLoader worker process" if self.stage else super().where()

    def place(self) -> str:
        """Where in the batch an exception arose, for its message."""
        if self.stage != "sample":
            return f"{self.stage} samples {self.first} to {self.first + len(self.numbers) - 1}"
        return self.place_of(self.station.offset())

    def place_of(self, offset: int) -> str:
        """A sample, in words, whatever its index makes of itself."""
        try:
            index = repr(self.numbers[offset - self.first])
        except Exception:  # noqa: BLE001 - an index that cannot be shown
            index = "?"
        return f"sample index {index} (number {offset} of {self.total})"
