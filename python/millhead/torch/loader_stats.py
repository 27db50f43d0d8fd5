"""What a loader has measured: the numbers behind ``loader.stats()``."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from millhead import Advice, _no_core
from millhead.torch.ranks.batch_size import step_size

if TYPE_CHECKING or _no_core is None:
    from millhead._core import Meter, cpus
else:

    class Meter:
        """Stands in for the C core's: torch's own iterators tell it nothing."""

        def waits_so_far(self) -> bytes:
            return b""

        def wait_ms(self, so_far: bytes = b"") -> dict[str, float]:
            return {"count": 0, "mean": 0.0, "p50": 0.0, "p99": 0.0, "max": 0.0, "total": 0.0}

        def take_loaded(self) -> tuple[int, int]:
            return 0, 0

        def slowest(self) -> list[dict[str, Any]]:
            return []

        def clear(self) -> None:
            pass

    def cpus() -> int:
        return os.cpu_count() or 1


if TYPE_CHECKING:
    from millhead.torch.iterators.worker_counts import WorkerCounts
    from millhead.torch.loader import Keeper
    from millhead.torch.resume.progress import Progress
    from millhead.torch.workers.dask_modes import Streaming

#: Without a timeout a loader waits for ever; after this long it says for what.
SAY_AFTER_S = 60.0

_advised: set[str] = set()
#: What stands between a program's line and what is said about it.
_OURS = ("millhead.", "torch.utils.data.")


def advise(cause: str, text: str) -> None:
    """Warn with :class:`millhead.Advice`, once per cause and process, at the program's line."""
    if cause not in _advised:
        _advised.add(cause)
        warnings.warn(f"millhead: {text}", Advice, stacklevel=_programs_level() - 1)


def _programs_level() -> int:
    """How far up the program's own code is: beyond millhead's functions and torch's loader's."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and f"{frame.f_globals.get('__name__')}.".startswith(_OURS):
        level, frame = level + 1, frame.f_back
    return level


class Stats:
    """Counters of one loader, over all its iterators."""

    def __init__(self) -> None:
        #: Of iterators that still count: their numbers are to be added to these.
        self.sources: weakref.WeakSet[WorkerCounts] = weakref.WeakSet()
        #: Epochs that have begun and are not counted.
        self.under_way: weakref.WeakSet[EpochLine] = weakref.WeakSet()
        self.meter = Meter()
        #: Slow samples, where they are not the consumer's own thread's to meet.
        self.sample_meter: Meter | None = None
        #: Iterators that started workers; a reset keeps the number.
        self.starts = 0
        self.clear()

    def clear(self) -> None:
        """Begin again; what live iterators counted was fetched before."""
        self.meter.clear()  # not a new one: iterators hold it
        if self.sample_meter is not None:
            self.sample_meter.clear()
        self.paths = {"slot": 0, "general": 0, "torch": 0}
        self.samples = 0
        self.epochs = 0
        self.start = "none"
        self.setup_ns = 0
        self.first_batch_ns = 0
        self.workers_busy: list[float] = []
        self.errors_raised = 0
        self.skipped = 0
        self.replaced = 0
        self.bytes_copied = 0
        self.bytes_pickled = 0
        self.batches_copied_out = 0
        self.events_lost = 0
        self.threads_seen = 0
        self.streaming: dict[str, Any] | None = None
        self.workers_replaced = 0

    def refresh(self) -> None:
        """Fetch what live iterators counted since the last time."""
        for source in list(self.sources):
            source.bring()
        self.count_loaded()
        self.count_epochs()

    def count_epochs(self) -> None:
        """Count those whose last batch was handed out: their loops may not ask for another."""
        for epoch in list(self.under_way):
            epoch.end_if_complete()

    def count_loaded(self) -> None:
        """Fetch what the C core loaded and counted itself."""
        batches, samples = self.meter.take_loaded()
        self.paths["slot"] += batches
        self.samples += samples

    def batch(self, path: str, samples: int) -> None:
        """Count one delivered batch."""
        self.paths[path] += 1
        self.samples += samples

    def streams(self, how: Streaming | None, workers: int) -> None:
        """Note how dask computes in the workers that have started."""
        self.streaming = None
        if how is not None:
            self.streaming = {"mode": how.mode, "threads": how.total(workers)}

    def add_counts(self, now: tuple[int, int, int, int], before: tuple[int, int, int, int]) -> None:
        """Add what a consumer end counted since ``before``."""
        self.bytes_copied += now[0] - before[0]
        self.bytes_pickled += now[1] - before[1]
        self.batches_copied_out += now[2] - before[2]
        self.events_lost += now[3] - before[3]

    def add_faults(self, skipped: int, replaced: int, first: str) -> None:
        """Count samples that could not be loaded; the first one is told."""
        self.skipped += skipped
        self.replaced += replaced
        if skipped or replaced:
            with contextlib.suppress(Advice):  # where warnings are errors, the batch matters more
                advise(
                    "bad-sample",
                    f"a sample was {'skipped' if skipped else 'replaced'} ({first}): look at it; "
                    'stats()["errors"] counts them all',
                )

    def report(self, workers: int, slots: dict[str, int]) -> dict[str, Any]:
        """The dictionary ``loader.stats()`` returns."""
        batches = sum(self.paths.values())
        return {
            "version": 1,
            "path": max(self.paths, key=lambda path: self.paths[path]),
            "paths": dict(self.paths),
            "start": self.start,
            "workers": workers,
            "epoch": self.epochs,
            "batches": batches,
            "samples": self.samples,
            "setup_ms": self.setup_ns / 1e6,
            "first_batch_ms": self.first_batch_ns / 1e6,
            "wait_ms": self.meter.wait_ms(),
            "workers_busy": list(self.workers_busy),
            "bytes_copied": self.bytes_copied,
            "bytes_pickled": self.bytes_pickled,
            "batches_copied_out": self.batches_copied_out,
            "slots": slots,
            "slowest": (self.sample_meter or self.meter).slowest(),
            "errors": {
                "raised": self.errors_raised,
                "skipped": self.skipped,
                "replaced": self.replaced,
            },
            "workers_replaced": self.workers_replaced,
            "threads_seen": self.threads_seen,
            "streaming": None if self.streaming is None else dict(self.streaming),
            "cpus": cpus(),
            "events_lost": self.events_lost,
        }


class EpochLine:
    """An epoch until it is counted, and the one line that ``MILLHEAD_VERBOSE=1`` asks for then.

    It has ended when its iterator says so. Loops that take ``len(loader)`` batches never hear that:
    their epoch is counted when the next one begins, when somebody asks for the numbers, or when the
    iterator is gone. One that is left early has its line then too, and is not counted. No batch pays
    for it.
    """

    def __init__(self, stats: Stats, progress: Progress, loader: Any, keeper: Keeper) -> None:
        self.ended = False
        self.pid = os.getpid()
        self.stats = stats
        self.progress = progress
        self.resumed_at = progress.consumed
        self.position = keeper._position
        stats.count_epochs()
        stats.count_loaded()
        stats.under_way.add(self)
        verbose = os.environ.get("MILLHEAD_VERBOSE", "0") not in ("", "0")
        #: What it says about the batch size; None: it says nothing at all.
        self.size = f"{step_size(loader, keeper.accumulate) or ''}" if verbose else None
        self.began = time.monotonic()
        self.samples = stats.samples
        self.paths = dict(stats.paths)
        self.waits = b"" if self.size is None else stats.meter.waits_so_far()
        self.faults = self._faults_now()

    def end_if_complete(self) -> None:
        """End the epoch if its last batch was handed out."""
        consumed = self.progress.consumed + len(self.progress.ahead)
        total = self.progress.epoch_length(self.position.last_len)
        if total is not None and consumed >= total and consumed > self.resumed_at:
            self.end()

    def __del__(self) -> None:
        if not getattr(self, "ended", True) and self.pid == os.getpid():
            self.end_if_complete()
            if not self.ended:
                self.leave()

    def leave(self) -> None:
        """Print the line of an epoch that goes no further, when asked to."""
        self.ended = True
        self.stats.under_way.discard(self)
        self._print(self.stats.epochs, left=True)

    def end(self) -> None:
        """Count the epoch once, and print its line when asked to."""
        if self.ended:
            return
        self.ended = True
        stats = self.stats
        stats.under_way.discard(self)
        stats.epochs += 1
        self._print(stats.epochs - 1, left=False)

    def _print(self, number: int, *, left: bool) -> None:
        stats = self.stats
        if self.size is None or sys.stderr is None:
            return
        stats.count_loaded()
        seconds = max(time.monotonic() - self.began, 1e-9)
        samples = stats.samples - self.samples
        waits = stats.meter.wait_ms(self.waits)
        paths = {path: count - self.paths[path] for path, count in stats.paths.items()}
        taken = ", ".join(f"{count} by {path}" for path, count in paths.items() if count)
        print(
            f"millhead: epoch {number}{' left early' if left else ''}: {sum(paths.values())} batches"
            f" ({taken or 'none'}), {samples} samples in {seconds:.2f} s,"
            f" {samples / seconds:.0f} samples/s, waited {waits['total'] / 1e3 / seconds:.0%} of it"
            f" (mean {waits['mean']:.2f} ms, p50 {waits['p50']:.2f} ms, p99 {waits['p99']:.2f} ms)"
            f"{self.size and ', '}{self.size}{self._faults()}",
            file=sys.stderr,
        )

    def _faults_now(self) -> tuple[int, ...]:
        stats = self.stats
        return stats.errors_raised, stats.skipped, stats.replaced, stats.workers_replaced

    def _faults(self) -> str:
        kinds = ("errors raised", "samples skipped", "samples replaced", "workers replaced")
        pairs = zip(self._faults_now(), self.faults, strict=True)
        counts = [after - before for after, before in pairs]
        told = [f"{count} {kind}" for count, kind in zip(counts, kinds, strict=True) if count]
        return f"; {', '.join(told)}" if told else ""
