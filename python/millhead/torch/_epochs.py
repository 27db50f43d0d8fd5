"""What samplers of our own have in common: an epoch follows from (seed, epoch), and the place in it
is one number, so that a loader can go on there.

A step is what the sampler yields at once: a sample, or a batch. The state counts the steps that
each rank has made; samplers that inherit from this give every rank equally many, and so the state
of any rank fits all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from torch.utils.data import Sampler

from millhead.torch._stats import advise
from millhead.torch._world import replica_or_alone

T_co = TypeVar("T_co", covariant=True)

_STATE_VERSION = 1


class Run(NamedTuple):
    """An iteration over an epoch, of which ``start`` steps were made before."""

    seed: int
    epoch: int
    start: int


class EpochSampler(Sampler[T_co], ABC):
    """Seed, epoch, rank and place of a sampler; what it yields is its own matter."""

    def __init__(self, seed: int, shuffle: bool, num_replicas: int | None, rank: int | None):
        self.num_replicas, self.rank = replica_or_alone(num_replicas, rank)
        self.seed = seed
        self.shuffle = shuffle
        self.epoch = 0
        self._epoch_was_set = False
        #: The epoch and the step a loaded state goes on from; used once.
        self._resume: tuple[int, int] | None = None
        #: The iteration that was begun last, and whether it has ended.
        self._last: Run | None = None
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

    @abstractmethod
    def _likeness(self) -> dict[str, Any]:
        """What a sampler must have in common with the one whose state it loads."""

    def __iter__(self) -> Iterator[T_co]:
        if self._repeats_an_epoch():
            advise(
                "set_epoch",
                f"an epoch begins in the same order as the one before ({type(self).__name__}): "
                "call sampler.set_epoch(epoch) before each epoch",
            )
        return self._run(Run(self.seed, self.epoch, self._next_start()))

    def _run(self, run: Run) -> Iterator[T_co]:
        """Begins when the first step is asked for: torch's loader makes iterators it never uses."""
        self._last, self._ended, self._resume = run, False, None
        yield from self._give(run)
        if self._last is run:
            self._ended = True

    def _repeats_an_epoch(self) -> bool:
        """Whether the next epoch has the shuffle of the last one, and nobody chose that."""
        if self._last is None or self._epoch_was_set or not self.shuffle:
            return False
        return self._ended and self._last[:2] == (self.seed, self.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch's shuffle, before its iterator is made, on every rank the same.

        Another epoch than that of a loaded state starts at its beginning.
        """
        self._epoch_was_set = True
        self.epoch = epoch

    # --- resuming -------------------------------------------------------------------------------

    def _next_start(self) -> int:
        if self._resume is not None and self._resume[0] == self.epoch:
            return self._resume[1]
        return 0

    def state_dict(self) -> dict[str, Any]:
        """The state at the beginning of the epoch under way, or of the next one.

        It does not count what was asked for since: that may still wait in a loader's workers. See
        :meth:`state_at`.
        """
        last = self._last
        if last is not None and self._resume is None and last.epoch == self.epoch:
            return self._state(last)
        return self._state(Run(self.seed, self.epoch, self._next_start()))

    def _state(self, run: Run) -> dict[str, Any]:
        return {
            "version": _STATE_VERSION,
            "epoch": run.epoch,
            "seed": run.seed,
            "step": run.start,
            # For dispatch="sample", whose random numbers belong to positions over all ranks
            "position": self.num_replicas * self._samples(*run),
            **self._likeness(),
        }

    def state_at(self, consumed: int, since: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The state when this rank has consumed so many samples of the epoch.

        Args:
            consumed: samples consumed since the epoch's iterator was made.
            since: the ``state_dict()`` at the beginning of that epoch; None: of the one begun last.

        Raises:
            ValueError: the rank has fewer samples than that, or no batch ends there.
        """
        run = self._last
        if since is not None:
            run = Run(since["seed"], since["epoch"], since["step"])
        if run is None:
            run = Run(self.seed, self.epoch, self._next_start())
        if consumed == 0:
            return self._state(run)
        before = self._samples(*run)
        return self._state(run._replace(start=self._steps(run.seed, run.epoch, before + consumed)))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: the next iteration gives what remains of its epoch.

        Call :meth:`set_epoch` as always: the state's own epoch goes on, any other starts at its
        beginning. ``len()`` stays that of a whole epoch.

        Raises:
            ValueError: the state is not one of a sampler like this.
        """
        if state.get("version") != _STATE_VERSION or "step" not in state:
            raise ValueError(f"not a state of this sampler: version {state.get('version')!r}")
        for name, mine in self._likeness().items():
            if state.get(name) != mine:
                raise ValueError(
                    f"the state has {name}={state.get(name)!r}, this sampler {mine!r}: what remains "
                    "of its epoch is not known here"
                )
        self.seed, self.epoch = state["seed"], state["epoch"]
        self._resume = (state["epoch"], state["step"])
        self._last, self._ended = None, False

    def __getstate__(self) -> dict[str, Any]:
        """A copy begins where the epoch under way began."""
        state = self.state_dict()
        resume = (state["epoch"], state["step"])
        return {**self.__dict__, "_last": None, "_ended": False, "_resume": resume}
