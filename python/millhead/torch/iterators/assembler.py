"""Batches whose samples several workers fetch: posted on the board, and put together again.

Where a run does not fit into the slot (strings, ragged samples, no schema yet) its samples come
here as they are, and the batch is collated here. Where only some runs of a batch do, or they differ
in type, the batch is fetched once more, for all its samples to come here: they are keyed by their
position, so they are the same again. In every case the batch is default_collate of all its samples
in their order, however it was split.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import default_collate

from millhead import _core
from millhead.torch.device_copy import convert
from millhead.torch.iterators.batch_schema import Learner
from millhead.torch.iterators.pin_thread import Raised, Taken
from millhead.torch.workers import pickled_batch
from millhead.torch.workers.position_rng import Generators, batch_key
from millhead.torch.workers.sample_worker import Part

#: After a batch that had to be fetched twice, at most so many are not tried in slots.
LONGEST_PENALTY = 1024


def collate(samples: list[Any]) -> Any:
    """default_collate, in C where it can be."""
    batch = _core.collate_uniform(samples)
    return batch if batch is not NotImplemented else default_collate(samples)


@dataclass
class Batch:
    """A batch on the board."""

    numbers: list[Any]
    number: int  # in the epoch
    sample: int  # the position of its first sample
    key: int  # of its epoch
    parts: list[Part] = field(default_factory=list)
    marks: int = 0

    def fatal(self) -> Part | None:
        """The part with the exception that ends the batch: the lowest one's."""
        return min((p for p in self.parts if p.fatal), key=lambda p: p.first, default=None)

    def is_torn(self) -> bool:
        """Whether neither the slot nor the parts have all samples in one kind."""
        known = sum(p.count for p in self.parts if p.samples is not None or p.kept == 0)
        return bool(self.marks & _core.UNLIKE) or (
            bool(self.marks & _core.APART) and known < len(self.numbers)
        )

    def samples(self) -> list[Any]:
        """All samples, of a batch that is not in its slot."""
        parts = sorted((p for p in self.parts if p.samples is not None), key=lambda p: p.first)
        return [sample for part in parts for sample in part.samples or ()]

    def void_rows(self) -> set[int]:
        """Rows of the slot that no sample was written to."""
        return {
            row
            for part in self.parts
            if part.faults is not None
            for row in range(part.first + part.kept, part.first + part.count)
        }


class Assembler:
    """Puts batches on the board and together again: a consumer end whose workers are batches.

    ``take`` and ``ready`` are a ConsumerEnd's, with a batch's position where a ConsumerEnd has a worker's
    number. ``learner`` sees every batch that did not come by its slot.
    """

    def __init__(
        self,
        consumer_end: _core.ConsumerEnd,
        meter: _core.Meter,
        generators: Generators,
        learner: Learner,
    ) -> None:
        self._consumer_end = consumer_end
        self._meter = meter
        self._generators = generators
        self._learner = learner
        self._open: dict[int, Batch] = {}
        self._ready: deque[int] = deque()  # positions, as they became whole
        self._failed_starts: list[Part] = []  # every later batch ends with the first
        self._told = False  # whether one did
        self._penalty = self._without_slot = 0
        self.faults = (0, 0, "")  # skipped, replaced, the first in words

    def post(self, position: int, batch: Batch) -> None:
        """Let workers take its samples."""
        slot = self._without_slot == 0
        self._without_slot -= not slot
        self._open[position] = batch
        try:
            self._put(position, batch, slot, again=False)
        except BaseException:
            del self._open[position]
            raise

    def _put(self, position: int, batch: Batch, slot: bool, again: bool) -> None:
        if not batch.numbers:  # nothing for anybody to finish
            batch.marks = _core.APART
            self._ready.append(position)
            return
        count = len(batch.numbers)
        self._consumer_end.publish(
            position, batch.numbers, count, batch.sample, batch.key, slot, again
        )

    # --- as a consumer end ---

    def ready(self, timeout_ns: int) -> int | None:
        """The position of a batch that is whole, or None."""
        self._drain()
        while not self._ready:
            if not self._receive(timeout_ns):
                return None
        return self._ready[0]

    def take(self, position: int, timeout_ns: int) -> Taken | None:
        """A ConsumerEnd's answer, or None where it is not whole in time."""
        self._drain()
        while position not in self._ready:
            if not self._receive(timeout_ns):
                return None
        self._ready.remove(position)
        self._meter.end_wait()
        batch = self._open.pop(position)
        batch.parts += self._failed_starts
        self._told = self._told or bool(self._failed_starts)
        try:
            return self._finish(position, batch)
        except Exception as error:  # noqa: BLE001 - of collate: the consumer's, in its place
            return _core.ERROR, Raised(error), 0, None

    def untold(self) -> Any:
        """The exception of a worker that did not start, where no batch came after it; else None."""
        self._drain()
        if self._told or not self._failed_starts:
            return None
        self._told = True
        return self._failed_starts[0].error

    def _drain(self) -> None:
        while self._receive(0):
            pass

    def _receive(self, timeout_ns: int) -> bool:
        """One more word from a worker; False when none came in time."""
        worker = self._consumer_end.ready(timeout_ns)
        received = None if worker is None else self._consumer_end.receive(worker)
        if received is None:
            return False
        position, kind, said = received
        if kind == _core.PART:
            parts = self._failed_starts if position is None else self._open[position].parts
            parts.append(pickled_batch.loads(said))
            return True
        assert position is not None
        batch = self._open[position]
        batch.marks = said
        if batch.fatal() is None and batch.is_torn():
            self._fetch_again(position, batch)
        else:
            self._ready.append(position)
        return True

    def _fetch_again(self, position: int, batch: Batch) -> None:
        self._penalty = min(2 * self._penalty + 1, LONGEST_PENALTY)
        self._without_slot = self._penalty
        self._consumer_end.drop(position)
        batch.parts.clear()
        batch.marks = 0
        self._put(position, batch, slot=False, again=True)

    # --- putting together ---

    def _finish(self, position: int, batch: Batch) -> Taken:
        in_slot = not batch.marks
        void = batch.void_rows()
        left = len(batch.numbers) - len(void)
        fatal = batch.fatal()
        if fatal is None and batch.numbers and left == 0:
            fatal = min(batch.parts, key=lambda part: part.first)
        if fatal is not None:
            if batch.numbers:
                self._consumer_end.drop(position)
            return _core.ERROR, fatal.error, 0, None
        self._count_faults(batch)
        if in_slot:
            self._penalty //= 2
            whole = self._consumer_end.build(position)
            if void:
                rows = [row for row in range(len(batch.numbers)) if row not in void]
                whole = convert(whole, lambda tensor: tensor[rows])
            return _core.SLOT, whole, left, None
        if batch.numbers:
            self._consumer_end.drop(position)
        return _core.GENERAL, self._collate(batch), left, None

    def _collate(self, batch: Batch) -> Any:
        samples = batch.samples()
        if _core.collate_untouched():
            whole = collate(samples)  # draws no random numbers
        else:
            with self._generators.borrowed():
                self._generators.seed(batch_key(batch.key, batch.number))
                whole = collate(samples)
        self._learner.learn(whole)
        return whole

    def _count_faults(self, batch: Batch) -> None:
        skipped, replaced, first = self.faults
        for part in sorted(batch.parts, key=lambda part: part.first):
            if part.faults is not None:
                skipped += part.faults.skipped
                replaced += part.faults.replaced
                first = first or part.faults.first
        self.faults = (skipped, replaced, first)
