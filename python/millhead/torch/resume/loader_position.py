"""What a loader keeps of its position: between its iterators, and where none has begun."""

from __future__ import annotations

import weakref
from typing import Any

from millhead.torch.resume.progress import Progress, WorkerProgress
from millhead.torch.resume.restore import Restore
from millhead.torch.resume.rng_state import RngState
from millhead.torch.resume.saved_position import SavedPosition, describe, read


class LoaderPosition:
    """What a loader keeps of its position between its iterators, and beyond them."""

    def __init__(self) -> None:
        self.epoch = -1
        #: Of the epoch begun last.
        self.progress: Progress | None = None
        self.current: weakref.ref[Any] | None = None
        #: What was loaded, until an iterator goes on from it.
        self.resume: SavedPosition | None = None
        self._loaded: dict[str, Any] | None = None
        #: What ``len(loader)`` was last, ``limit_batches`` apart.
        self.last_len: int | None = None

    def state(self, loader: Any, keeper: Any) -> dict[str, Any]:
        """``state_dict()``."""
        if self.progress is None and self._loaded is not None:
            return dict(self._loaded)
        if self.progress is None:
            return _state_before_first_epoch(loader, keeper)
        iterator = None if self.current is None else self.current()
        if iterator is not None:
            iterator.note_state()
        elif self.progress.alone:
            self.progress.note_dataset(loader.dataset)
        return self.progress.to_dict(loader, keeper)

    def load(self, state: dict[str, Any], loader: Any) -> None:
        """``load_state_dict()``."""
        self.resume = read(state, loader)
        self._loaded = dict(state)
        self.progress = self.current = None


def _state_before_first_epoch(loader: Any, keeper: Any) -> dict[str, Any]:
    """The end of nothing."""
    now = RngState.now(loader)
    caller = WorkerProgress(state=Restore(generators=now.text))
    alone = loader.num_workers == 0 and keeper.snapshot_rng
    return describe(
        loader,
        now,
        epoch=-1,
        _num_yielded=0,
        _sampler_iter_yielded=0,
        _steps_since_snapshot=0,
        _iterator_finished=False,
        cut=False,
        _index_sampler_state=None,
        sampler_ended=False,
        samples=0,
        base_seed=None,
        next_worker=0,
        persists=False,
        again=False,
        at_end=True,
        ahead=[],
        ended=[],
        first_generators=None,
        worker_states=[caller.to_dict(iterable=False)] if alone else [],
    )
