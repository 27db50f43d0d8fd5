"""What samplers of our own have in common: an epoch follows from (seed, epoch), and the place in it
is one number, so that a loader can go on there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

from torch.utils.data import Sampler

from millhead.torch.loader_stats import advise
from millhead.torch.ranks.world import replica_or_alone

T_co = TypeVar("T_co", covariant=True)

STATE_VERSION = 1


class Run(NamedTuple):
    """An iteration over an epoch, from a place in it."""

    seed: int
    epoch: int
    start: int
    #: Ranks, and samples of each, of those that had the epoch before the start is counted.
    legs: tuple[tuple[int, int], ...] = ()


class ResumableSampler(Sampler[T_co]):
    """Epochs, and the place in an epoch that a loaded state goes on from."""

    seed: int
    epoch: int
    shuffle: bool
    #: What its states call the place in the epoch.
    _place_key: ClassVar[str]
    #: The iteration that was made last, whether or not it was asked for anything.
    _last: Run | None = None
    #: The epoch and the place a loaded state goes on from; used once.
    _resume: tuple[int, int] | None = None
    _epoch_was_set = False

    def _begun(self) -> Run | None:
        """The last iteration, if it was asked for anything: torch's loader makes iterators it never
        uses."""
        raise NotImplementedError

    def _has_ended(self) -> bool:
        """Whether the last iteration gave something and came to its end."""
        raise NotImplementedError

    def _likeness(self) -> dict[str, Any]:
        """What a sampler must have in common with the one whose state it loads."""
        raise NotImplementedError

    def _state(self, run: Run) -> dict[str, Any]:
        return {
            "version": STATE_VERSION,
            "epoch": int(run.epoch),  # numpy's integers are no JSON, and refused on loading
            "seed": int(run.seed),
            self._place_key: run.start,
            **self._likeness(),
        }

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch's shuffle, before its iterator is made, on every rank the same.

        Another epoch than that of a loaded state starts at its beginning.
        """
        self._epoch_was_set = True
        self.epoch = epoch

    def _next_run(self) -> Run:
        """The next iteration: from a loaded state's place on, if that is of this epoch."""
        epoch, start = self._resume or (self.epoch, 0)
        return Run(self.seed, self.epoch, start if epoch == self.epoch else 0)

    def _present_run(self) -> Run:
        """The iteration under way, or the next one."""
        run = self._begun()
        return self._next_run() if run is None or run.epoch != self.epoch else run

    def _advise_set_epoch(self) -> None:
        """Where the next epoch has the shuffle of the last one, and nobody chose that."""
        if self._last is None or self._epoch_was_set or not self.shuffle:
            return
        if self._has_ended() and self._last[:2] == (self.seed, self.epoch):
            advise(
                "set_epoch",
                f"an epoch begins in the same order as the one before ({type(self).__name__}): "
                "call sampler.set_epoch(epoch) before each epoch",
            )

    def state_dict(self) -> dict[str, Any]:
        """The state at the beginning of the epoch under way, or of the next one.

        It does not count what was asked for since: that may still wait in a loader's workers. See
        :meth:`state_at`.
        """
        return self._state(self._present_run())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: the next iteration gives this rank's share of what remains.

        That iteration is shorter (empty, if the epoch was complete); ``len()`` stays an epoch's.
        Call :meth:`set_epoch` as always: the state's own epoch goes on, any other starts at its
        beginning.

        Raises:
            ValueError: the state is not one of a sampler like this, or damaged.
        """
        wrong = self._what_is_wrong(state)
        if wrong is not None:
            raise ValueError(f"millhead: cannot resume: {wrong} ({type(self).__name__})")
        self.seed, self.epoch = state["seed"], state["epoch"]
        self._resume = (state["epoch"], state[self._place_key])
        self._last = None

    def _what_is_wrong(self, state: Any) -> str | None:
        """With a state that should be one of this sampler."""
        version = state.get("version") if isinstance(state, Mapping) else None
        if version != STATE_VERSION or self._place_key not in state:
            return f"not a state of this sampler: version {version!r}"
        for name, mine in self._likeness().items():
            if state.get(name) != mine:
                return (
                    f"the state has {name}={state.get(name)!r}, this sampler {mine!r}: what remains "
                    "of its epoch is not known here"
                )
        return None

    def __getstate__(self) -> dict[str, Any]:
        """A copy begins where the epoch under way began."""
        run = self._present_run()
        return {**self.__dict__, "_last": None, "_resume": (run.epoch, run.start)}


class EpochSampler(ResumableSampler[T_co], ABC):
    """A sampler that gives every rank equally many steps, so that the state of any rank fits all.

    A step is what it yields at once: a sample, or a batch. The state counts the steps of each rank.
    """

    _place_key = "step"

    def __init__(self, seed: int, shuffle: bool, num_replicas: int | None, rank: int | None):
        self.num_replicas, self.rank = replica_or_alone(num_replicas, rank)
        self.seed = seed
        self.shuffle = shuffle
        self.epoch = 0
        self._ended = False

    @abstractmethod
    def _give(self, run: Run) -> Iterator[T_co]:
        """The steps of an iteration."""

    @abstractmethod
    def _samples(self, seed: int, epoch: int, steps: int) -> int:
        """How many samples this rank has had in its first steps of an epoch."""

    @abstractmethod
    def _steps(self, seed: int, epoch: int, samples: int) -> int:
        """The other way round; the last of several numbers of steps. ValueError: there is none."""

    def __iter__(self) -> Iterator[T_co]:
        self._advise_set_epoch()
        return self._run(self._next_run())

    def _run(self, run: Run) -> Iterator[T_co]:
        """Begins when the first step is asked for."""
        self._last, self._ended, self._resume = run, False, None
        yield from self._give(run)
        if self._last is run:
            self._ended = True

    def _begun(self) -> Run | None:
        return self._last

    def _has_ended(self) -> bool:
        return self._ended

    def _state(self, run: Run) -> dict[str, Any]:
        # For dispatch="sample", whose random numbers belong to positions over all ranks
        position = self.num_replicas * self._samples(*run[:3])
        return {**super()._state(run), "position": position}

    def _run_of(self, state: Mapping[str, Any]) -> Run:
        """The iteration that goes on from a state."""
        return Run(state["seed"], state["epoch"], state["step"])

    def state_at(self, consumed: int, since: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The state when this rank has consumed so many samples of the epoch.

        Args:
            consumed: samples consumed since the epoch's iterator was made.
            since: the ``state_dict()`` at the beginning of that epoch; None: of the one begun last.

        Raises:
            ValueError: the rank has fewer samples than that, or no batch ends there.
        """
        run = self._last or self._next_run()
        if since is not None:
            run = self._run_of(since)
        if consumed == 0:
            return self._state(run)
        before = self._samples(*run[:3])
        return self._state(run._replace(start=self._steps(run.seed, run.epoch, before + consumed)))
