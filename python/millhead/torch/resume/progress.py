"""Where a loader is in its data, and how it goes on from there.

A position is taken between two batches and holds no data: which epoch, how many batches of it were
consumed, the generators as they were when it began, and the states of the user's own hooks. To go
on, the sampler is asked again for the batches already consumed; no sample of theirs is fetched.

Batches that were prefetched and not yet asked for do not count: they are fetched again.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset

from millhead.torch.resume.restore import Restore, has_hooks, state_of
from millhead.torch.resume.rng_state import RngState
from millhead.torch.resume.sampler_progress import SamplerProgress, has_plain_length
from millhead.torch.resume.saved_position import (
    describe,
    is_endless,
    length_of,
)

if TYPE_CHECKING:
    from millhead.torch.resume.loader_position import LoaderPosition


@dataclass
class WorkerProgress:
    """What is known of a worker, or of the caller where there is none."""

    batches: int = 0  # of this epoch
    #: After its last batch: pickled as the worker sent it, or as it was restored.
    state: bytes | Restore | None = None
    old: bool = False  # the state is that of an earlier epoch's end
    cut: bool = False  # which came before that of the dataset's iterator
    ended: bool = False
    #: Its generators when the epoch began, where that was an earlier one's end.
    began: str | None = None

    def known(self) -> Restore:
        """Its state after its last batch, as far as it is known."""
        if isinstance(self.state, Restore):
            return self.state
        if self.state is None:
            return Restore()
        dataset, iterator, generators, ended = pickle.loads(self.state)
        return Restore(dataset, iterator, generators, ended=ended)

    def to_dict(self, iterable: bool) -> dict[str, Any]:
        """For the loader's state. Also finds out whether the worker's stream has ended."""
        known = self.known()
        self.ended = self.ended or (known.ended and not self.old)
        draws_again = iterable and not known.hooked
        return {
            "dataset": known.dataset,
            "iterator": known.iterator,
            "generators": known.generators,
            "renew": self.old,
            "cut": self.old and self.cut,
            "skip": self.batches if draws_again else 0,
            "began": self.began if draws_again else None,
        }


class Progress:
    """How far an epoch is. Its iterator keeps this up to date; the loader keeps it beyond that."""

    def __init__(self, loader: Any, keeper: Any, again: bool = False) -> None:
        position: LoaderPosition = keeper._position
        resume, position.resume = position.resume, None
        self.sampler = SamplerProgress(loader._index_sampler)
        self.hooked, self.counted = self.sampler.hooked, self.sampler.counted
        if resume is not None and resume.finished:
            resume.begin_next_epoch(loader)
            if self.counted:
                resume.sampler = None  # set_epoch() has the next word
        elif resume is not None:
            resume.end_at(keeper.limit_batches)
        self.resume = resume
        self.alone = loader.num_workers == 0
        self.finished = False
        self.iterable = isinstance(loader.dataset, IterableDataset)
        #: Whether workers have states to bring.
        self.stateful: bool = keeper.dispatch == "batch" and (
            keeper.snapshot_rng or has_hooks(loader.dataset)
        )
        self.consumed = self.yielded = self.next_worker = 0
        #: Samples of the epoch before the place resumed from.
        self.skipped_samples = 0
        self.ahead: set[int] = set()
        self.workers = [WorkerProgress() for _ in range(max(loader.num_workers, 1))]
        self._begin(loader, position, again)
        self._set_lengths(loader, keeper)
        self._resumed_at = self.consumed
        self._snapshot: dict[str, Any] | None = self._snapshot_now() if self.every > 1 else None

    def _begin(self, loader: Any, position: LoaderPosition, again: bool) -> None:
        """A new epoch, or the one of the position resumed from."""
        resume = self.resume
        #: The generators before the next epoch, where that has begun ahead of time.
        self.next_rng: RngState | None = None
        #: When the sampler was first asked, without workers.
        self.first_rng: RngState | None = None
        self.base_seed: int | None = None
        if resume is None:
            self.epoch, self.again = position.epoch + 1, again
            self.rng_state = RngState.now(loader)
            #: The last epoch ended before its sampler did, and without workers its stream.
            self._after_cut = self._follows_cut(position.progress)
            return
        self.epoch, self.again, self._after_cut = resume.epoch, resume.again, resume.cut
        self.rng_state, self.first_rng = resume.rng_state, resume.first_rng
        self.base_seed = resume.base_seed
        self.consumed, self.yielded = resume.consumed, resume.yielded
        self.ahead, self.next_worker = set(resume.ahead), resume.next_worker
        self.sampler.load(resume)
        for worker, restore in zip(self.workers, resume.restores, strict=False):
            worker.state, worker.old, worker.batches = restore, restore.renew, restore.skip
            worker.began = restore.generators if restore.renew else restore.began
            worker.cut = restore.cut
        for number in resume.ended:
            self.workers[number].ended = True

    def _set_lengths(self, loader: Any, keeper: Any) -> None:
        self.limit: int | None = keeper.limit_batches
        #: Batches of the epoch, where that can be known beforehand.
        self.total: int | None = None
        if has_plain_length(loader._index_sampler):
            self.total = length_of(loader._index_sampler)
        #: Batches from one snapshot of the workers' states to the next.
        self.every = 1  # where nobody knows which of a worker's batches will be its last
        if loader.in_order and loader.num_workers and (self.iterable or self.total is not None):
            self.every = max(keeper.snapshot_every_n_steps or 1, 1)

    def epoch_length(self, last_len: int | None) -> int | None:
        """Batches of the epoch, where that is known before its end: not where a resumed sampler
        gives what is left. ``last_len``, what ``len(loader)`` was, counts where we may not ask."""
        if self.resume is not None and self.hooked is not None:
            return None
        return self._most(last_len)

    def _most(self, last_len: int | None = None) -> int | None:
        """Batches that an epoch has at most."""
        total = last_len if self.total is None and not self.iterable else self.total
        if total is None or self.limit is None:
            return self.limit if total is None else total
        return min(total, self.limit)

    @property
    def cut(self) -> bool:
        """Whether ``limit_batches`` has ended the epoch: sampler and dataset would have more."""
        return self.limit is not None and self.consumed >= self.limit

    def _follows_cut(self, before: Progress | None) -> bool:
        """Without workers nobody asks ahead: an epoch that was left early is cut as well."""
        return before is not None and (before.cut or (self.alone and not before.finished))

    @property
    def untouched(self) -> bool:
        """Whether no batch was consumed since the epoch began, or was resumed."""
        return self.consumed == self._resumed_at and not self.finished

    def install(self, keeper: Any) -> Progress:
        """Be the one that the loader's state is made from."""
        keeper._position.progress, keeper._position.epoch = self, self.epoch
        return self

    def adopt_workers(self, before: Progress) -> None:
        """Workers that persist go on as the last epoch left them."""
        self._after_cut = self._follows_cut(before)
        for worker, old in zip(self.workers, before.workers, strict=True):
            worker.cut = old.cut if old.old else not old.ended
            worker.state, worker.old = old.state, old.state is not None
            worker.began = old.known().generators if self.iterable else None
        if self._snapshot is not None:
            self._snapshot = self._snapshot_now()

    # --- going on from a position ---

    @contextmanager
    def replaying(self, loader: Any) -> Iterator[None]:
        """Run what draws for the epoch's order under the generators of its beginning.

        Global generators are then put back as the caller had them, unless they were in that very
        state: then the draws are those of the caller's own run.
        """
        if self.resume is None:
            yield
            return
        before = RngState.now()
        at_draw = self.rng_state
        if self.first_rng is not None and not self.alone and not self.consumed:
            at_draw = self.first_rng  # the sampler of a loader without workers had still to draw
        self._rewind(loader)
        try:
            yield
        finally:
            if not before.same_global(self.rng_state) and not before.same_global(at_draw):
                before.put_back()

    def _rewind(self, loader: Any) -> None:
        self.rng_state.put_back()
        self.rng_state.put_back_own(loader)

    def forget_seed(self, loader: Any) -> bool:
        """Undo an iterator's draw of a seed, where the workers of the run that was left persisted
        and drew none for the epoch. Whether it was so."""
        undone = self.resume is not None and self.again
        if undone:
            self._rewind(loader)
        return undone

    def ask_again(self, indices: Any) -> Any:
        """The iterator over indices, beyond the batches that were consumed."""
        if self.resume is None or is_endless(self.sampler.index_sampler):
            return indices
        if self.first_rng is not None and not self.alone:
            self.first_rng.put_back()  # the sampler had drawn later, in a loader without workers
        indices, self.skipped_samples = self.sampler.skip_consumed(self.resume, indices)
        if self._snapshot is not None:
            self._snapshot = self._snapshot_now()
        return indices

    def agree_on_seed(self, drawn: int) -> int:
        """The seed of the epoch's workers: the one that was saved, else the one just drawn."""
        if self.base_seed is None:
            self.base_seed = drawn
        return self.base_seed

    # --- keeping up ---

    def done(self, position: int) -> None:
        """The batch at a position of the epoch was consumed."""
        self.ahead.add(position)
        while self.consumed in self.ahead:
            self.ahead.remove(self.consumed)
            self.consumed += 1
            if self.hooked is not None:
                self.sampler.consumed()

    def worker_done(self, number: int, state: bytes | None, ended: bool) -> None:
        """A worker's result was consumed; it came with its state where one was asked for."""
        worker = self.workers[number]
        worker.batches += not ended
        self.stateful = self.stateful or state is not None
        worker.state, worker.old, worker.ended = state, False, ended

    def note_dataset(self, dataset: Any) -> None:
        """Without workers, and after the iterator is gone: the dataset still knows where it is."""
        known = self.workers[0].state
        if not isinstance(known, Restore) or known.iterator is None:
            self.note_caller(dataset, None)

    def note_caller(self, dataset: Any, stream: Any) -> None:
        """Keep the states of hooks in the caller's process. Most datasets only look where to begin
        when they are first drawn from: until then what was loaded counts, or the last epoch's end."""
        caller = self.workers[0]
        ended = caller.ended and self.consumed == self._resumed_at  # nothing was drawn since either
        if self.resume is not None and (self.untouched or ended):
            return
        caller.state = Restore(
            dataset=None if stream is dataset else state_of(dataset), iterator=state_of(stream)
        )
        caller.old, caller.cut = self.untouched and self.epoch > 0, self._after_cut

    def delivered(self) -> None:
        """A batch was handed over."""
        self.yielded += 1
        if self.every > 1 and self.yielded % self.every == 0:
            self._snapshot = self._snapshot_now()

    def snapshot_due(self, position: int) -> bool:
        """Whether the task at this position should bring its worker's state: a worker's last batch
        before each snapshot must, and its last of the epoch. An iterable dataset's tasks outnumber
        its batches by one for each worker that ended."""
        workers, place, most = len(self.workers), (position + 1) % self.every, self._most()
        if most is not None and position >= most - workers:
            return True
        return self.every <= 2 * workers or place <= workers or place > self.every - workers

    # --- saying where ---

    def _snapshot_now(self) -> dict[str, Any]:
        """The part of the loader's state that belongs to a place where all workers' are known."""
        if self.alone:
            self.workers[0].batches = self.consumed
        # First, since it may find out that a worker has ended
        states = [worker.to_dict(self.iterable) for worker in self.workers]
        return {
            "_num_yielded": self.yielded,
            "_sampler_iter_yielded": self.consumed,
            "next_worker": self.next_worker,
            "worker_states": states,
            "ended": [number for number, worker in enumerate(self.workers) if worker.ended],
            **self.sampler.to_dict(),
        }

    def to_dict(self, loader: Any, keeper: Any) -> dict[str, Any]:
        """The loader's state."""
        rng_state, first = self.rng_state, self.first_rng
        if self.finished:
            rng_state, first = self.next_rng or RngState.now(loader), None
        elif first is None and self.alone:
            first = RngState.now()  # its sampler has still to draw
        snapshot = self._snapshot
        if snapshot is None or not self.stateful or self.finished:
            snapshot = self._snapshot_now()
        if self.alone and keeper.snapshot_rng:  # the caller does the work
            snapshot["worker_states"][0]["generators"] = RngState.now().text
        consumed: int = snapshot["_sampler_iter_yielded"]
        return describe(
            loader,
            rng_state,
            **snapshot,
            epoch=self.epoch,
            _steps_since_snapshot=self.consumed - consumed,
            _iterator_finished=self.finished,
            cut=self.cut or (consumed == 0 and self._after_cut),
            base_seed=self.base_seed,
            persists=loader.persistent_workers and keeper.dispatch == "batch",
            again=self.again,
            at_end=self.finished,
            ahead=sorted(self.ahead),
            first_generators=None if first is None else first.to_dict(),
        )
