"""The trainer's side of ``worker_memory=``: another process in the place of one that has too much.

The rings, the slots and the memory of batches are shared, and outlive a process. Another one with
the same number goes on with the next task in the ring, from the generators and hooks that the last
one left (memory_limit.py).
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from millhead import Advice, _core
from millhead._arguments import WorkerMemory, parse_worker_memory
from millhead.torch.loader_stats import advise
from millhead.torch.resume.saved_position import SPREAD
from millhead.torch.start.machine_limits import in_words
from millhead.torch.start.starting import start_successor
from millhead.torch.workers.batch_worker import WorkerPlan
from millhead.torch.workers.memory_limit import END_AT, LEAVE_AT, read_note, wipe_note
from millhead.torch.workers.oversubscription import local_ranks
from millhead.torch.workers.processes import Worker

if TYPE_CHECKING:
    from millhead.torch.iterators.worker_group import WorkerGroup

#: A process that has handed over may take so many seconds to end.
_PATIENCE_S = 5.0


def limit_of(worker_memory: WorkerMemory, workers: int) -> int | None:
    """Bytes that each worker may have; None: any number."""
    value = parse_worker_memory(worker_memory)
    if value is None or isinstance(value, int):
        return value
    total = _core.memory()[0]
    if value == "auto":
        return max(total // (workers * local_ranks()[0]), 1)
    assert isinstance(value, float)
    return max(int(total * value), 1)


class WorkersLostError(Exception):
    """No batch will come any more; ``text`` says why."""

    def __init__(self, text: str, cause: BaseException | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.cause = cause


class Replacements:
    """Watches the workers of a group, which it is given each time: a cycle would keep it alive."""

    def __init__(self, limit: int, workers: int) -> None:
        self.limit = limit
        #: How the workers were started: another is started alike.
        self.plans: list[WorkerPlan] = []
        #: Descriptors of where each worker leaves what another goes on from.
        self.notes = [os.memfd_create("millhead-note") for _ in range(workers)]
        #: Processes that have handed over and not ended, and until when they may take.
        self._leaving: list[tuple[Worker, float]] = []
        #: For each worker that was ended: the results it had sent until then.
        self._ended: dict[int, int] = {}

    def look(self, group: WorkerGroup) -> bool:
        """Replace workers that have too much memory. Whether there were any.

        Raises WorkersLostError where that cannot be.
        """
        if self._leaving:
            self._reap()
        replaced, first = False, 0
        while (found := group.consumer_end.over_limit(first)) is not None:
            number, excess, used, sent = found
            first = number + 1
            if excess == "stays":
                self._say_that_it_stays(number, used)
                continue
            if excess == "ended" and not self._is_over(group.handles[number]):
                continue  # others may be, and would be taken for crashed
            if excess == "ended" and self._ended.get(number) == sent:
                raise WorkersLostError(self._why_twice(group, number, used))
            if excess == "ended":
                self._ended[number] = sent
            self._replace(group, number, sent)
            self._say_that_it_was_replaced(number, used, excess)
            replaced = True
        return replaced

    def processes(self) -> list[Worker]:
        """Those that have handed over, and may not have ended."""
        return [worker for worker, _ in self._leaving]

    def close(self) -> None:
        """Give up the descriptors."""
        while self.notes:
            os.close(self.notes.pop())

    # --- replacing ---

    def _is_over(self, worker: Worker) -> bool:
        """Whether the process has ended: until then it may write where another will."""
        if not worker.ended():
            worker.join(0.05)
        return worker.ended()

    def _replace(self, group: WorkerGroup, number: int, sent: int) -> None:
        restore, counts = read_note(self.notes[number]) or (None, None)
        plan = replace(self.plans[number], restore=restore, counts=counts)
        if restore is None:  # not again what its first samples were given
            plan.base_seed = (plan.base_seed + (sent + 1) * SPREAD) % 2**63
        wipe_note(self.notes[number])
        group.consumer_end.succeed(number)
        before = group.handles[number]
        trainer = _core.process_open(os.getpid())
        try:
            plan.descriptors = group.descriptors(number, trainer)
            group.handles[number] = start_successor(
                group.engine, group.context, group.job, plan, group.timeout, before
            )
        except BaseException as error:  # noqa: BLE001 - the cause of the other
            # There may be a process that nobody knows of: none may be started beside it.
            raise WorkersLostError(
                f"DataLoader worker {number} had more memory than worker_memory "
                f"({in_words(self.limit)}) and could not be replaced ({type(error).__name__}: "
                f"{error}): raise worker_memory, or use fewer workers",
                error,
            ) from None
        finally:
            os.close(trainer)
        self._leaving.append((before, time.monotonic() + _PATIENCE_S))
        group.stats.workers_replaced += 1
        group.later = group.deadline()

    def _reap(self) -> None:
        """Forget processes that have ended, and end those that do not."""
        still = []
        for worker, deadline in self._leaving:
            if worker.ended():
                worker.join(1.0)
                worker.close()
            else:
                if time.monotonic() > deadline:
                    worker.kill()
                still.append((worker, deadline))
        self._leaving = still

    # --- saying so ---

    def _say_that_it_stays(self, number: int, used: int) -> None:
        why = read_note(self.notes[number])
        with contextlib.suppress(Advice):  # as an error it would lose a batch
            advise(
                "worker-memory-stays",
                f"worker {number} has {in_words(used)} of its own, more than {LEAVE_AT:.0%} of "
                f"worker_memory ({in_words(self.limit)}), and cannot be replaced ({why}): it goes "
                "on; raise worker_memory, or look for what grows in the dataset",
            )

    def _say_that_it_was_replaced(self, number: int, used: int, excess: str) -> None:
        mark = LEAVE_AT if excess == "leaves" else END_AT
        with contextlib.suppress(Advice):  # as an error it would lose a batch
            advise(
                "worker-memory",
                f"worker {number} had {in_words(used)} of its own, more than {mark:.0%} of "
                f"worker_memory ({in_words(self.limit)}), and another process took its place: "
                "look for what grows in the dataset, or raise worker_memory; "
                'stats()["workers_replaced"] counts them all',
            )

    def _why_twice(self, group: WorkerGroup, number: int, used: int) -> str:
        return (
            f"DataLoader worker {number} was ended twice over the same batch, with {in_words(used)} "
            f"of its own where worker_memory is {in_words(self.limit)} ({group.doing(number)}): "
            "raise worker_memory, use a smaller batch, or look at this sample"
        )
