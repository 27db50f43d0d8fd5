"""Where a worker, or the caller without workers, sets its dataset to when an epoch goes on.

A dataset or its iterator may have hooks, as torchdata's ``Stateful`` asks for: those say where to begin.
A stream without them is drawn again from its start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millhead.torch.resume.rng_state import RngState


def has_hooks(thing: Any) -> bool:
    """Whether it can save and load its own state, as torchdata's ``Stateful`` asks."""
    return callable(getattr(thing, "state_dict", None)) and callable(
        getattr(thing, "load_state_dict", None)
    )


def state_of(thing: Any) -> Any:
    """Its state, or None without hooks."""
    return thing.state_dict() if has_hooks(thing) else None


@dataclass
class Restore:
    """What a worker, or the caller without workers, sets its dataset to."""

    dataset: Any = None
    iterator: Any = None
    #: Generators as text (``snapshot_rng``), or None.
    generators: str | None = None
    #: The states are those of the last epoch's end, and an epoch begins.
    renew: bool = False
    #: That epoch (the last one with ``renew``, else this) ends before the dataset's iterator does.
    cut: bool = False
    #: The dataset's iterator has ended: nothing of the epoch is left here.
    ended: bool = False
    #: Batches to draw and drop, where an iterable dataset has no hooks, and the generators that the
    #: epoch began with, where those are not the ones of a new worker.
    skip: int = 0
    began: str | None = None

    @property
    def hooked(self) -> bool:
        """Whether hooks say where to begin."""
        return self.dataset is not None or self.iterator is not None

    @property
    def leaves_a_note(self) -> bool:
        """Whether hooks may have noted where to begin, and no iterator has begun there yet."""
        return self.hooked and not self.renew and not self.ended

    def open(self, dataset: Any, iterable: bool) -> Any:
        """Bring the dataset back; its iterator if it is iterable, else None. Who skips batches of
        it then calls :meth:`put_generators_back`."""
        if iterable and not self.hooked:
            return self._open_again(dataset)
        if iterable and (self.renew or self.ended):
            stream = self.begin_epoch(dataset, self.end_epoch(dataset))
            if self.renew:
                return stream
        else:
            stream, _ = self._load(dataset, iterable)
            if self.cut and iterable:
                next(stream, None)  # nobody else will, and the next iterator must not begin here
        self.put_generators_back()
        return stream

    def _open_again(self, dataset: Any) -> Any:
        """The iterator of a stream without hooks, which may draw its order in ``__iter__``: under
        the generators that the epoch began with."""
        began = self.generators if self.renew else self.began
        if began is not None:
            RngState.decode(began).put_back()
        stream = iter(dataset)
        if not self.renew and not self.skip:
            self.put_generators_back()
        return stream

    def put_generators_back(self) -> None:
        """As they were after the last batch."""
        if self.generators is not None:
            RngState.decode(self.generators).put_back()

    def _load(self, dataset: Any, iterable: bool) -> tuple[Any, RngState]:
        """Load what has hooks. An iterator of the dataset, and the generators as the hooks left
        them, which may keep their own: ``__iter__`` may have drawn since."""
        if self.dataset is not None and has_hooks(dataset):
            dataset.load_state_dict(self.dataset)
        loaded = RngState.now()
        if not iterable:
            return None, loaded
        stream = iter(dataset)
        if self.iterator is not None and has_hooks(stream):
            stream.load_state_dict(self.iterator)
            loaded = RngState.now()
        return stream, loaded

    def end_epoch(self, dataset: Any) -> bool:
        """Bring a dataset to where the next epoch begins, from its hooks' states at the end of one.
        Whether :meth:`begin_epoch` has to load it again.

        Most hooks only remember where the next iterator shall begin: one that ends at once uses that
        up, and the next begins at the start. Where it does not end, the epoch was cut short, or the
        dataset had nothing to remember, and is loaded again to undo what was drawn.
        """
        stream, before = self._load(dataset, iterable=True)
        nothing = object()
        try:
            ended = next(stream, nothing) is nothing
        finally:
            before.put_back()
        if self.renew:
            self.put_generators_back()
        return not ended and not self.cut

    def begin_epoch(self, dataset: Any, load_again: bool) -> Any:
        """The iterator of the epoch. It may draw its order at once."""
        return self._load(dataset, iterable=True)[0] if load_again else iter(dataset)
