"""Where a training step's time goes: :class:`StepTimer`.

One clock, cut into pieces: at every moment exactly one phase, or none ("other"), is charged, so the
phases of a step and "other" add up to the step. A phase inside another interrupts it.

While a step is under way, entering and leaving a phase only notes what the clock shows; the notes of
several steps are added up together. That keeps the timer out of the way of what it times.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

import millhead
from millhead import _hang, _sinks, _stragglers
from millhead._place import Place, place
from millhead._stragglers import BARRIER_AFTER, OTHER, WAITING, RankSteps

if TYPE_CHECKING:
    from millhead._watch import Recording

__all__ = ["Phase", "StepTimer"]

Batch = TypeVar("Batch")

PHASES = ("data", "forward", "backward", "update")
#: What the loop does for the sake of the model; the rest is loading, waiting or its own affair.
TRAINING = ("forward", "backward", "update")
#: Steps that are kept for :meth:`StepTimer.ranks`.
KEPT = 1000
#: Steps are added up, and their events written, when there are so many or so much time has passed.
SETTLE_STEPS, SETTLE_NS = 64, 1_000_000_000


Mark = tuple[int, "Phase | None"]


class Phase:
    """``with phase:`` charges the time inside to it. Made by a :class:`StepTimer`."""

    __slots__ = ("_timer", "label", "name")

    def __init__(self, timer: StepTimer, name: str) -> None:
        self._timer = timer
        self.name = name
        self.label = json.dumps(name)

    def __enter__(self) -> None:
        timer = self._timer
        if timer._wait_for_device is not None:
            timer._wait_for_device()
        timer._marks.append((time.monotonic_ns(), self))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        timer = self._timer
        if error is not None:  # no waiting for the device: it may be what failed
            timer._marks.append((time.monotonic_ns(), None))
            timer._fail(error)
            return
        if timer._wait_for_device is not None:
            timer._wait_for_device()
        timer._marks.append((time.monotonic_ns(), None))
        if timer.barriers and self.name in BARRIER_AFTER:
            timer._meet()


class Step(NamedTuple):
    """A step that has ended and is not yet added up."""

    number: int
    began: int
    ended: int
    marks: list[Mark]
    failed: bool
    samples: int | None
    tokens: int | None


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
        sinks: Sequence[_sinks.Sink] = (),
        log_ranks: str = "every",
        quiet: bool = False,
        hang_after: float | None = None,
        error_file: str | None = None,
    ) -> None:
        if log_ranks not in _sinks.LOG_RANKS:
            known = ", ".join(_sinks.LOG_RANKS)
            raise ValueError(f"log_ranks should be one of {known}, got {log_ranks!r}")
        if hang_after is not None and not hang_after > 0:
            raise ValueError(f"hang_after should be more than 0 seconds, got {hang_after!r}")
        _sinks.check(sinks)
        self.samples = samples
        self.tokens = tokens
        self.barriers = barriers
        self.sinks = list(sinks)
        self.log_ranks = log_ranks
        self.quiet = quiet
        self.error_file = error_file or os.environ.get("TORCHELASTIC_ERROR_FILE")
        #: Steps since the timer was made: all, and those in which a phase raised.
        self.steps = 0
        self.partial_steps = 0
        self._phases: dict[str, Phase] = {}
        self.data, self.forward, self.backward, self.update = (self(name) for name in PHASES)
        self.waiting = self(WAITING)
        self._sync = sync
        self._wait_for_device: Callable[[], object] | None = None
        #: When phases of the step under way were entered (the phase) and left (None).
        self._marks: list[Mark] = []
        self._began = 0  # when the step did; 0: when its first phase will
        self._failed = False
        self._pending: list[Step] = []
        self._settled = 0
        self._last: dict[str, float] = {}
        self._history: deque[dict[str, float]] = deque(maxlen=KEPT)
        self._iterator: Any = None
        self._tell_training: Callable[[int], object] | None = None
        self._clear()
        self.begin_epoch()
        self._recording = _recording(run)
        if self._recording is not None:
            _recorded.add(self)
        self._hang: _hang.HangWatch | None = None
        if hang_after is not None:
            self._hang = _hang.HangWatch(
                hang_after, self._still, self._workers, self.error_file, self.place.rank
            )

    def __call__(self, name: str) -> Phase:
        """The phase of that name, new or not."""
        if name not in self._phases:
            self._phases[name] = Phase(self, name)
        return self._phases[name]

    # --- the clock --------------------------------------------------------------------------

    def _find_device(self) -> Callable[[], object] | None:
        """How to wait for the device; never the first to touch one."""
        if self._sync is not None:
            return self._sync if callable(self._sync) else None
        torch = sys.modules.get("torch")
        for kind in ("cuda", "xpu", "mtia") if torch is not None else ():
            module = getattr(torch, kind, None)
            if module is not None and module.is_initialized():
                wait: Callable[[], object] = module.synchronize
                return wait
        return None

    def _now(self) -> int:
        if self._wait_for_device is not None:
            self._wait_for_device()
        return time.monotonic_ns()

    def _fail(self, error: BaseException) -> None:
        """An exception leaves a phase."""
        if isinstance(error, StopIteration):  # the loader has no more: no step began
            self._drop()
            return
        self._failed = True
        if self.error_file and isinstance(error, Exception):
            _hang.record(self.error_file, error)

    def _meet(self) -> None:
        dist = _process_group()
        if dist is not None:
            with self.waiting:
                dist.barrier()

    @property
    def place(self) -> Place:
        """This process's rank, the number of ranks, its number on the machine, and the host."""
        return place()

    # --- steps ------------------------------------------------------------------------------

    def step(self, samples: int | None = None, tokens: int | None = None) -> None:
        """Ends a step.

        Args:
            samples: in this step of this rank, where steps differ.
            tokens: likewise.
        """
        now = self._now()
        marks = self._marks
        # a look at the whole list only where it is not in pairs: this runs in every step
        if (len(marks) % 2 or (marks and marks[-1][1] is not None)) and (names := _inside(marks)):
            raise RuntimeError(
                f"step() in the phase {names[-1]!r}: leave the phase, then end the step"
            )
        began = self._began or (marks[0][0] if marks else now)
        self._pending.append(Step(self.steps, began, now, marks, self._failed, samples, tokens))
        self._marks = []
        self._began = now
        self.steps += 1
        self.batch += 1
        self.partial_steps += self._failed
        self._failed = False
        if (
            len(self._pending) >= SETTLE_STEPS
            or now - self._settled > SETTLE_NS
            or self._tell_training is not None
        ):
            self._settle()

    @property
    def last(self) -> dict[str, float]:
        """The last step's seconds by phase, with the rest as "other"."""
        self._settle()
        return dict(self._last)

    def _settle(self) -> None:
        """Adds up the steps that have only been noted so far."""
        lines: list[str] = []
        for step in self._pending:
            sums = _add_up(step, None if self._recording is None else lines)
            self._last = {name: ns / 1e9 for name, ns in sums.items()}
            if not step.failed and step.ended > step.began:
                self._count(self._last, step)
            if self._tell_training is not None:
                self._tell_training(sum(sums.get(name, 0) for name in TRAINING))
        self._pending.clear()
        self._settled = time.monotonic_ns()
        if self._wait_for_device is None:  # it may have come into use since
            self._wait_for_device = self._find_device()
        if self._recording is not None:
            self._recording.log.write("".join(lines))

    def _count(self, row: dict[str, float], step: Step) -> None:
        self._history.append(row)
        self._counted += 1
        self._samples += self.samples if step.samples is None else step.samples
        self._tokens += self.tokens if step.tokens is None else step.tokens
        for name, seconds in row.items():
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def skip(self) -> None:
        """The batch at hand is not trained on, as when a resumed run passes over what it had seen:
        it counts as done, its time nowhere."""
        self._drop()
        self.batch += 1

    def _drop(self) -> None:
        self._marks = []
        self._began = 0
        self._failed = False

    def _end_loop(self, iterator: object) -> None:
        """The loop was left, maybe early; a step that had more than its batch is a step."""
        if iterator is not self._iterator:
            return  # it is long since another's turn
        self._iterator = self._tell_training = None
        if not _inside(self._marks):
            entered = {phase.name for _, phase in self._marks if phase is not None}
            if self._failed or entered - {"data", WAITING}:
                self.step()
            self._drop()

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
        self._wait_for_device = self._find_device()
        self._drop()

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

    # --- what it says -----------------------------------------------------------------------

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
        if self._marks:
            self.step()
        self._settle()
        here = self.place
        line = {
            "global_step": global_step,
            "lr": lr,
            "running_loss": running_loss / max(self._counted, 1),
            "epoch": epoch,
            "epoch_progress": self.epoch_progress,
            "num_batches_remaining": self.num_batches_remaining,
            **_device_memory(),
            **self._rates(here.world),
            **self._times(),
            **more,
        }
        self._clear()
        if _sinks.LOG_RANKS[self.log_ranks](here):
            if not self.quiet:
                _sinks.say(line, here)
            _sinks.write(self.sinks, line, here)
        return line

    def _times(self) -> dict[str, float]:
        names = [*PHASES, *(name for name in self._seconds if name not in (*PHASES, OTHER)), OTHER]
        steps = max(self._counted, 1)
        times = {name: 1000 * self._seconds.get(name, 0.0) / steps for name in names}
        return {"time/total": sum(times.values())} | {f"time/{n}": ms for n, ms in times.items()}

    def _rates(self, world: int) -> dict[str, float]:
        """Of all ranks together."""
        seconds = sum(self._seconds.values())
        rates = {}
        for name, count in (("tokens_per_s", self._tokens), ("samples_per_s", self._samples)):
            if count or not self._counted:
                rates[name] = world * count / seconds if seconds else 0.0
        return rates

    def _clear(self) -> None:
        """Begins a new line."""
        self._counted = 0
        self._samples = 0
        self._tokens = 0
        self._seconds: dict[str, float] = {}

    def ranks(self, group: Any = None) -> dict[str, Any]:
        """Which rank the others wait for, from the steps since the last call (1000 at most).

        A collective operation: every rank calls it, every rank gets the answer. It needs neither
        ``barriers`` nor a clock that ranks share.

        Returns:
            ``rank``, ``host``, ``phase``, ``lost_s`` (a step, on every rank), ``share`` (of the
            step) and a sentence ``text``; ``rank`` is None where nobody stands out. ``ranks`` has
            each rank's seconds a step by phase.
        """
        self._settle()
        here = self.place
        own = RankSteps(here.rank, here.host, list(self._history))
        self._history.clear()
        everyone = [own]
        dist = _process_group()
        if dist is not None:
            gathered: list[Any] = [None] * dist.get_world_size(group)
            dist.all_gather_object(gathered, tuple(own), group=group)
            everyone = [RankSteps(*each) for each in gathered]
            self._began = self._began and time.monotonic_ns()  # ranks met here, not in a step
        return _stragglers.find(everyone)

    # --- hanging ----------------------------------------------------------------------------

    def _still(self) -> tuple[float, str]:
        """For how many seconds no phase was entered or left, and where; read by another thread."""
        marks = list(self._marks)
        if not marks:
            return 0.0, ""
        where = (_inside(marks) or [OTHER])[-1]
        return (time.monotonic_ns() - marks[-1][0]) / 1e9, f"{where}, step {self.steps}"

    def _workers(self) -> dict[int, int]:
        """Numbers of the loader's workers by pid; torch's iterators and millhead's have a list."""
        workers = getattr(self._iterator, "_workers", None) or []
        return {worker.pid: number for number, worker in enumerate(workers)}

    def close(self) -> None:
        """Ends what runs beside the loop; the timer still times."""
        self._settle()
        if self._hang is not None:
            self._hang.close()
        self._hang = None
        self._recording = None  # it ends with its last user

    def __del__(self) -> None:
        if getattr(self, "_recording", None) is not None:
            self._write_rest()

    def _write_rest(self) -> None:
        """The steps that have only been noted so far, where the loop ends without :meth:`close`."""
        if self._pending and self._recording is not None and self._recording.goes_on():
            self._settle()

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
        timer._tell_training = getattr(self._loader, "add_training", None)  # it is watched
        try:
            while True:
                try:
                    with timer.data:
                        batch = next(iterator)
                except StopIteration:
                    return
                yield batch
                if timer._marks:
                    timer.step()
        finally:
            timer._end_loop(iterator)


def _inside(marks: list[Mark]) -> list[str]:
    """Names of the phases that are still under way, the innermost last."""
    names: list[str] = []
    for _, phase in marks:
        if phase is not None:
            names.append(phase.name)
        elif names:
            names.pop()
    return names


def _add_up(step: Step, lines: list[str] | None) -> dict[str, int]:
    """A step's ns by phase; adds an event for each use of a phase, where there are lines to add to."""
    sums: dict[str, int] = {}
    stack: list[tuple[int, Phase]] = []
    since = step.began
    for ns, phase in step.marks:
        current = stack[-1][1].name if stack else OTHER
        sums[current] = sums.get(current, 0) + ns - since
        since = ns
        if phase is not None:
            stack.append((ns, phase))
        elif stack:  # empty where the notes of a phase under way were dropped
            entered, left = stack.pop()
            if lines is not None:
                lines.append(
                    f'{{"event":"phase","t":{entered},"ns":{ns - entered},"name":{left.label},'
                    f'"step":{step.number}}}\n'
                )
    sums[OTHER] = sums.get(OTHER, 0) + step.ended - since
    return sums


def _process_group() -> Any:
    """torch.distributed, where there are ranks to meet."""
    dist = sys.modules.get("torch.distributed")  # whoever has a process group has imported it
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


#: Timers that write events.
_recorded: weakref.WeakSet[StepTimer] = weakref.WeakSet()


@functools.cache
def _write_rests_at_exit() -> None:
    """To be called when the module of recordings is there: what is registered last comes first, and
    a recording that has ended takes no more."""

    def write() -> None:
        for timer in list(_recorded):
            timer._write_rest()

    atexit.register(write)


def _recording(run: str | os.PathLike[str] | None) -> Recording | None:
    """The events of a run, shared with whoever watches a loader into it."""
    directory = run or os.environ.get("MILLHEAD_WATCH")
    if not directory or (run is None and millhead._no_core is not None):
        return None
    from millhead._watch import recording_of

    _write_rests_at_exit()
    # a directory from the environment is not ours alone: other processes may have begun to write
    recording = recording_of(directory, fresh=run is not None)
    recording.run.describe()
    return recording


def _device_memory() -> dict[str, float]:
    """In GB; zeros where there is no CUDA device in use."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return dict.fromkeys(
            ("total_gb", "curr_alloc_gb", "peak_alloc_gb", "curr_resv_gb", "peak_resv_gb"), 0.0
        )
    stats = torch.cuda.memory_stats()
    return {
        "total_gb": 1e-9 * torch.cuda.get_device_properties(None).total_memory,
        "curr_alloc_gb": 1e-9 * stats["allocated_bytes.all.current"],
        "peak_alloc_gb": 1e-9 * stats["allocated_bytes.all.peak"],
        "curr_resv_gb": 1e-9 * stats["reserved_bytes.all.current"],
        "peak_resv_gb": 1e-9 * stats["reserved_bytes.all.peak"],
    }
