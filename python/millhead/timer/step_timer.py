"""Where a training step's time goes: :class:`StepTimer`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import millhead
from millhead._rank_info import RankInfo, process_group, rank_info
from millhead.timer import hang, line_sinks, stragglers
from millhead.timer.phases import Phase, PhaseClock, under_way
from millhead.timer.step_ledger import PHASES, StepLedger, device_memory
from millhead.timer.stragglers import WAITING, RankSteps

if TYPE_CHECKING:
    from millhead.watching.recording import Recording

__all__ = ["Phase", "StepTimer"]

Batch = TypeVar("Batch")


class StepTimer:
    """Measures the phases of training steps, and says what they cost.

    >>> from millhead import StepTimer
    >>> timer = StepTimer(quiet=True)
    >>> for batch in timer.loop([1, 2, 3]):         # any loader: asking it is the phase "data"
    ...     with timer.forward:
    ...         loss = batch * 0.5
    ...     with timer("augment"):                  # a phase of your own
    ...         pass
    >>> line = timer.log(global_step=3, lr=0.1, running_loss=3.0, epoch=0)
    >>> line["running_loss"], line["num_batches_remaining"], line["time/forward"] >= 0
    (1.0, 0, True)

    Where a device is in use, each phase waits for what it has queued there, so that a phase's time
    is its own. A phase that raises is closed, and its step counted in :attr:`partial_steps`, not in
    the means.

    Args:
        samples: in a step of this rank, for ``samples_per_s``; or give them to :meth:`step`.
        tokens: in a step of this rank, for ``tokens_per_s``; likewise.
        barriers: all ranks meet after data, forward and backward; the time until the last one
            comes is the phase "waiting". Needs as many steps on every rank.
        sync: waits for the device; None: torch's where one is in use, False: never.
        run: directory in which ``phase`` events are written (docs/events.md); None: the one that
            ``MILLHEAD_WATCH`` names, if any.
        sinks: where :meth:`log` puts its lines: paths ending in .jsonl or .csv, or run objects with
            a method ``log``, such as wandb's.
        log_ranks: which ranks log: "every", "local_rank0", "rank0".
        quiet: no line for people on stderr.
        hang_after: seconds in which nothing moves, after which the stacks of this process and its
            workers are written to stderr and to ``error_file``.
        error_file: for that, and for exceptions that leave a phase; None: the one that
            ``TORCHELASTIC_ERROR_FILE`` names, if any.
    """

    def __init__(
        self,
        *,
        samples: int = 0,
        tokens: int = 0,
        barriers: bool = False,
        sync: Callable[[], object] | bool | None = None,
        run: str | os.PathLike[str] | None = None,
        sinks: Sequence[line_sinks.Sink] = (),
        log_ranks: str = "every",
        quiet: bool = False,
        hang_after: float | None = None,
        error_file: str | None = None,
    ) -> None:
        if log_ranks not in line_sinks.LOG_RANKS:
            known = ", ".join(line_sinks.LOG_RANKS)
            raise ValueError(f"log_ranks should be one of {known}, got {log_ranks!r}")
        if hang_after is not None and not hang_after > 0:
            raise ValueError(f"hang_after should be more than 0 seconds, got {hang_after!r}")
        line_sinks.check(sinks)
        self.samples = samples
        self.tokens = tokens
        self.sinks = list(sinks)
        self.log_ranks = log_ranks
        self.quiet = quiet
        error_file = error_file or os.environ.get("TORCHELASTIC_ERROR_FILE")
        self._clock = PhaseClock(sync, barriers, error_file)
        self.data, self.forward, self.backward, self.update = (self(name) for name in PHASES)
        self.waiting = self(WAITING)
        self._ledger = StepLedger(self._clock, _recording(run))
        self._iterator: Any = None
        self.begin_epoch()
        self._hang: hang.HangWatch | None = None
        if hang_after is not None:
            self._hang = hang.HangWatch(
                hang_after, self._clock.standstill, self._workers, error_file, self.place.rank
            )

    def __call__(self, name: str) -> Phase:
        """The phase of that name, new or not."""
        return self._clock.phase(name)

    @property
    def place(self) -> RankInfo:
        """This process's rank, the number of ranks, its number on the machine, and the host."""
        return rank_info()

    @property
    def barriers(self) -> bool:
        """Whether all ranks meet after data, forward and backward."""
        return self._clock.barriers

    @barriers.setter
    def barriers(self, meet: bool) -> None:
        self._clock.barriers = meet

    @property
    def error_file(self) -> str | None:
        """Where hangs and exceptions are written."""
        return self._clock.error_file

    @property
    def steps(self) -> int:
        """Steps since the timer was made."""
        return self._clock.steps

    @property
    def partial_steps(self) -> int:
        """Those of them in which a phase raised."""
        return self._clock.partial_steps

    # --- steps ------------------------------------------------------------------------------

    def step(self, samples: int | None = None, tokens: int | None = None) -> None:
        """Ends a step.

        Args:
            samples: in this step of this rank, where steps differ.
            tokens: likewise.
        """
        samples = self.samples if samples is None else samples
        now = self._clock.end_step(samples, self.tokens if tokens is None else tokens)
        self.batch += 1
        self._ledger.step_ended(now)

    @property
    def last(self) -> dict[str, float]:
        """The last step's seconds by phase, with the rest as "other"."""
        self._ledger.settle()
        return dict(self._ledger.last)

    def skip(self) -> None:
        """The batch at hand is not trained on, as when a resumed run passes over what it had seen:
        it counts as done, its time nowhere."""
        self._clock.drop()
        self.batch += 1

    def loop(self, loader: Iterable[Batch], done: int = 0) -> Loop[Batch]:
        """Goes through a loader: asking for a batch is "data", and a step ends when the next batch
        is asked for, unless :meth:`step` or :meth:`log` was called before.

        Args:
            loader: any iterable.
            done: batches of this epoch that were trained on before; a resumed loader begins there.
        """
        return Loop(self, loader, done)

    def begin_epoch(self, batches: int | None = None, done: int = 0) -> None:
        """What :meth:`loop` does first; for loops without it.

        Args:
            batches: in the epoch, None where nobody knows.
            done: of them before the first step.
        """
        self.batches = batches
        self.batch = done
        self._clock.find_device()
        self._clock.drop()

    @property
    def num_batches_remaining(self) -> int | None:
        """Batches of the epoch that are still to come; None where its length is not known."""
        return None if self.batches is None else max(self.batches - self.batch, 0)

    @property
    def epoch_progress(self) -> float | None:
        """Share of the epoch's batches that are done, 0 to 1."""
        if self.batches is None:
            return None
        return min(self.batch / self.batches, 1.0) if self.batches else 1.0

    # --- what it reports -----------------------------------------------------------------------

    def log(
        self, global_step: int, lr: float, running_loss: float, epoch: int, **more: Any
    ) -> dict[str, Any]:
        """One line about the steps since the last one, then it begins anew. Ends the step under way.

        Args:
            running_loss: sum of the losses since the last line; the line has their mean.
            more: further entries for the line.

        Returns:
            The line: as train_llm.py's, times in ms a step.
        """
        if self._clock.changes:
            self.step()
        here = self.place
        window = self._ledger.take_window()
        line = {
            "global_step": global_step,
            "lr": lr,
            "running_loss": running_loss / max(window.steps, 1),
            "epoch": epoch,
            "epoch_progress": self.epoch_progress,
            "num_batches_remaining": self.num_batches_remaining,
            **device_memory(),
            **window.rates(here.world),
            **window.times(),
            **more,
        }
        if line_sinks.LOG_RANKS[self.log_ranks](here):
            if not self.quiet:
                line_sinks.print_line(line, here)
            line_sinks.write(self.sinks, line, here)
        return line

    def ranks(self, group: Any = None) -> dict[str, Any]:
        """Which rank the others wait for, from the steps since the last call (1000 at most).

        A collective operation: every rank calls it, every rank gets the answer. It needs neither
        ``barriers`` nor a clock that ranks share.

        Returns:
            ``rank``, ``host``, ``phase``, ``lost_s`` (a step, on every rank), ``share`` (of the
            step) and a sentence ``text``; ``rank`` is None where nobody stands out. ``ranks`` has
            each rank's seconds a step by phase.
        """
        ledger, here = self._ledger, self.place
        ledger.settle()
        own = RankSteps(here.rank, here.host, list(ledger.history))
        ledger.history.clear()
        everyone = stragglers.gather(own, group)
        if process_group() is not None:
            self._clock.restart()  # ranks met here, not in a step
        return stragglers.find(everyone)

    # --- what runs beside the loop ----------------------------------------------------------

    def _workers(self) -> dict[int, int]:
        """Numbers of the loader's workers by pid; torch's iterators and millhead's have a list."""
        workers = getattr(self._iterator, "_workers", None) or []
        return {worker.pid: number for number, worker in enumerate(workers)}

    def close(self) -> None:
        """Ends what runs beside the loop; the timer still times."""
        self._ledger.settle()
        if self._hang is not None:
            self._hang.close()
        self._hang = None
        self._ledger.recording = None  # it ends with its last user

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Loop(Generic[Batch]):
    """What :meth:`StepTimer.loop` returns: as long as its loader, for progress bars."""

    def __init__(self, timer: StepTimer, loader: Iterable[Batch], done: int) -> None:
        self._timer = timer
        self._loader = loader
        self._done = done

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Batch]:
        timer = self._timer
        iterator = iter(self._loader)  # starting workers is no part of a step
        try:
            batches: int | None = len(self)
        except (TypeError, NotImplementedError):
            batches = None
        timer.begin_epoch(batches, self._done)
        timer._iterator = iterator
        timer._ledger.add_training = getattr(self._loader, "add_training", None)  # it is watched
        try:
            while True:
                try:
                    with timer.data:
                        batch = next(iterator)
                except StopIteration:
                    return
                yield batch
                if timer._clock.changes:
                    timer.step()
        finally:
            if iterator is timer._iterator:  # else it is long since another's turn
                self._leave()

    def _leave(self) -> None:
        """The loop was left, maybe early; a step that had more than its batch is a step."""
        timer, clock = self._timer, self._timer._clock
        timer._iterator = timer._ledger.add_training = None
        if not under_way(clock.changes):
            entered = {phase.name for _, phase in clock.changes if phase is not None}
            if clock.failed or entered - {"data", WAITING}:
                timer.step()
            clock.drop()


def _recording(run: str | os.PathLike[str] | None) -> Recording | None:
    """The events of a run, shared with whoever watches a loader into it."""
    directory = run or os.environ.get("MILLHEAD_WATCH")
    if not directory or (run is None and millhead._no_core is not None):
        return None
    from millhead.watching.recording import recording_of

    # a directory from the environment is not ours alone: other processes may have begun to write
    recording = recording_of(directory, fresh=run is not None)
    recording.describe()
    return recording
