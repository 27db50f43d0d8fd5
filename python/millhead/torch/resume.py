"""Where a loader is in its data, and how it goes on from there.

A position is taken between two batches and holds no data: which epoch, how many batches of it were
consumed, the generators as they were when it began, and the states of the user's own hooks. To go
on, the sampler is asked again for the batches already consumed; no sample of theirs is fetched.

Batches that were prefetched and not yet asked for do not count: they are fetched again.
"""

from __future__ import annotations

import itertools
import pickle
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import WrapperDescriptorType
from typing import Any, NamedTuple

from torch.utils.data import BatchSampler, IterableDataset

from millhead.torch._moment import Moment
from millhead.torch._position import VERSION, Position, is_endless, length_of, read, require
from millhead.torch._restore import Restore, has_hooks, state_of
from millhead.torch._seal import seal
from millhead.torch.fetch import length


def sampler_with_hooks(index_sampler: Any) -> Any:
    """What yields the indices and can save its own state: the sampler that was asked for, or the
    one that torch's BatchSampler asks. None where neither can."""
    if has_hooks(index_sampler):
        return index_sampler
    if type(index_sampler) is BatchSampler and has_hooks(index_sampler.sampler):
        return index_sampler.sampler
    return None


#: The state of a loader that nobody has iterated over: the end of nothing.
_UNBEGUN: dict[str, Any] = {
    "millhead": VERSION,
    "epoch": -1,
    "_num_yielded": 0,
    "_sampler_iter_yielded": 0,
    "_steps_since_snapshot": 0,
    "_iterator_finished": False,
    "cut": False,
    "_index_sampler_state": None,
    "sampler_ended": False,
    "samples": 0,
    "base_seed": None,
    "next_worker": 0,
    "again": False,
    "at_end": True,
    "ahead": [],
    "ended": [],
    "first_generators": None,
}


def unbegun(loader: Any, keeper: Any) -> dict[str, Any]:
    """The state of a loader before its first iterator."""
    now = Moment.now(loader)
    caller = WorkerProgress(state=Restore(generators=now.encode()))
    alone = loader.num_workers == 0 and keeper.snapshot_rng
    return {
        **_UNBEGUN,
        "worker_states": [caller.to_dict(iterable=False)] if alone else [],
        "length": length_of(loader.dataset),
        "batch_size": loader.batch_size,
        "workers": loader.num_workers,
        "persists": False,
        "generators": now.to_text(),
    }


def _counts_quietly(sampler: Any) -> bool:
    """Whether asking for its length runs no code of the user's. Theirs may draw its batches to count
    them, and torch's iterators never ask: the stream would not be torch's any more."""
    count = getattr(type(sampler), "__len__", None)
    if isinstance(count, WrapperDescriptorType):
        return True  # of a list, a range, an array
    module = getattr(count, "__module__", None) or ""
    if module.partition(".")[0] not in ("torch", "millhead"):
        return False
    return not isinstance(sampler, BatchSampler) or _counts_quietly(sampler.sampler)


@dataclass
class WorkerProgress:
    """What is known of a worker, or of the caller where there is none."""

    batches: int = 0  # of this epoch
    #: After its last batch: as the worker sent it, pickled, or as it was told to restore.
    state: bytes | Restore | None = None
    old: bool = False  # the state is that of an earlier epoch's end
    cut: bool = False  # which came before that of the dataset's iterator
    ended: bool = False
    #: Its generators when the epoch began, where that was an earlier one's end.
    began: str | None = None

    def known(self) -> Restore:
        """After its last batch, where it told."""
        if isinstance(self.state, Restore):
            return self.state
        if self.state is None:
            return Restore()
        dataset, iterator, generators, ended = pickle.loads(self.state)
        return Restore(dataset, iterator, generators, ended=ended)

    def to_dict(self, iterable: bool) -> dict[str, Any]:
        """For the loader's state; notes on the way whether the worker's own told that it ended."""
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


class Given(NamedTuple):
    """A sampler after a batch of its."""

    state: Any  # of its hooks; None where it says by itself where it is
    samples: int = 0  # that it gave in the epoch
    ended: bool = False  # it had no more


@dataclass
class Mark:
    """A place at which the state of every worker is known."""

    consumed: int
    yielded: int
    next_worker: int
    sampler: Any
    sampler_ended: bool
    samples: int
    workers: list[dict[str, Any]]
    ended: list[int]


class Progress:
    """How far an epoch is. Its iterator keeps this up to date; the loader keeps it beyond that."""

    def __init__(self, loader: Any, keeper: Any, again: bool = False) -> None:
        bookmark: Bookmark = keeper._bookmark
        resume, bookmark.resume = bookmark.resume, None
        self.index_sampler = loader._index_sampler
        self.hooked = sampler_with_hooks(self.index_sampler)
        #: The sampler says by itself where it is after so many samples: millhead's own does.
        self.counted = hasattr(self.hooked, "state_at")
        if resume is not None and resume.finished:
            resume.begin_next_epoch(loader)
            if self.counted:
                resume.sampler = None  # set_epoch() has the next word
        elif resume is not None:
            resume.end_at(keeper.limit_batches)
        self.resume = resume
        self.alone = loader.num_workers == 0
        #: The last epoch ended before its sampler did, and without workers its stream.
        self._after_cut: bool = (
            self._follows_cut(bookmark.progress) if resume is None else resume.cut
        )
        if resume is None:
            self.epoch = bookmark.epoch + 1
            self.moment: Moment = Moment.now(loader)
            self.first_moment: Moment | None = None
            self.base_seed: int | None = None
            self.again = again
        else:
            self.epoch = resume.epoch
            self.moment, self.first_moment = resume.moment, resume.first_moment
            self.base_seed, self.again = resume.base_seed, resume.again
        #: The generators before the next epoch, where that has begun ahead of time.
        self.next_moment: Moment | None = None
        self.consumed = self.yielded = self.next_worker = 0
        #: Samples of the epoch before the place resumed from.
        self.skipped_samples = 0
        self.ahead: set[int] = set()
        self.finished = False
        self.iterable = isinstance(loader.dataset, IterableDataset)
        #: Whether workers have states to bring.
        self.stateful: bool = keeper.dispatch == "batch" and (
            keeper.snapshot_rng or has_hooks(loader.dataset)
        )
        self._sampler = Given(None if self.counted else state_of(self.hooked))
        self._sampler_began: Any = None
        self._sampler_given = 0
        #: After each batch that was asked for and not consumed.
        self._sampler_ahead: deque[Given] = deque()
        self.workers = [WorkerProgress() for _ in range(max(loader.num_workers, 1))]
        #: Batches of the epoch, where that can be known beforehand.
        self.total: int | None = None
        if _counts_quietly(self.index_sampler):
            self.total = length_of(self.index_sampler)
        self.limit: int | None = keeper.limit_batches
        if loader.in_order and loader.num_workers and (self.iterable or self.total is not None):
            self.every = max(keeper.snapshot_every_n_steps or 1, 1)
        else:
            self.every = 1  # nobody knows which of a worker's batches will be its last
        if resume is not None:
            self._adopt(resume)
        self._found = self.consumed
        self.mark: Mark | None = self.make_mark() if self.every > 1 else None

    def epoch_length(self, told: int | None) -> int | None:
        """Batches of the epoch, where that is known before its end: not of a stream without a
        limit, nor where the sampler itself goes on, since it then gives what is left. What the user
        was ``told`` by ``len(loader)`` counts where we may not ask."""
        if self.resume is not None and self.hooked is not None:
            return None
        return self._most(told)

    def _most(self, told: int | None = None) -> int | None:
        """Batches that an epoch has at most."""
        total = told if self.total is None and not self.iterable else self.total
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
        return self.consumed == self._found and not self.finished

    def install(self, keeper: Any) -> Progress:
        """Be the one that the loader's state is made from."""
        keeper._bookmark.progress, keeper._bookmark.epoch = self, self.epoch
        return self

    def _adopt(self, resume: Position) -> None:
        """Take over the counts of the position resumed from."""
        self.consumed, self.yielded = resume.consumed, resume.yielded
        self.ahead, self.next_worker = set(resume.ahead), resume.next_worker
        if self.counted:
            self._sampler_began = resume.sampler
        elif resume.sampler is not None:
            self._sampler = Given(resume.sampler, resume.samples, resume.sampler_ended)
            self._sampler_given = resume.samples
        for worker, restore in zip(self.workers, resume.restores, strict=False):
            worker.state, worker.old, worker.batches = restore, restore.renew, restore.skip
            worker.began = restore.generators if restore.renew else restore.began
            worker.cut = restore.cut
        for number in resume.ended:
            self.workers[number].ended = True

    def carry_over(self, before: Progress) -> None:
        """Workers that persist go on as the last epoch left them."""
        self._after_cut = self._follows_cut(before)
        for worker, old in zip(self.workers, before.workers, strict=True):
            worker.cut = old.cut if old.old else not old.ended
            worker.state, worker.old = old.state, old.state is not None
            worker.began = old.known().generators if self.iterable else None
        if self.mark is not None:
            self.mark = self.make_mark()

    # --- going on from a position ---

    @contextmanager
    def replaying(self, loader: Any) -> Iterator[None]:
        """Run what draws for the epoch's order under the generators of its beginning.

        Global generators are then put back as the caller had them, unless they were at that very
        moment: then the draws are those of the caller's own run.
        """
        if self.resume is None:
            yield
            return
        before = Moment.now()
        at_draw = self.moment
        if self.first_moment is not None and not self.alone and not self.consumed:
            at_draw = self.first_moment  # the sampler of a loader without workers had still to draw
        self._rewind(loader)
        try:
            yield
        finally:
            if not before.same_global(self.moment) and not before.same_global(at_draw):
                before.put_back()

    def _rewind(self, loader: Any) -> None:
        self.moment.put_back()
        self.moment.put_back_own(loader)

    def forget_seed(self, loader: Any) -> bool:
        """Undo that an iterator drew a seed for its workers, where those of the run that was left
        had persisted and no seed was drawn for the epoch. Whether it was so."""
        undone = self.resume is not None and self.again
        if undone:
            self._rewind(loader)
        return undone

    def ask_again(self, indices: Any) -> Any:
        """The iterator over indices, beyond the batches that were consumed."""
        if self.resume is None or is_endless(self.index_sampler):
            return indices
        if self.first_moment is not None and not self.alone:
            self.first_moment.put_back()  # the sampler had drawn later, in a loader without workers
        if self.resume.sampler is not None and self.hooked is not None:
            found = self._load_sampler(self.resume.sampler)
            self._draw_again(found, self.resume.sampler_behind)
            if not self.counted:
                self.skipped_samples = self._sampler.samples
            return found
        lengths = self._draw_again(indices, self.consumed)
        skipped, self.skipped_samples = len(lengths), sum(lengths)
        require(
            skipped == self.consumed,
            f"the sampler ended after {skipped} of the {self.consumed} batches that were consumed: "
            "it is not the one the state was made with",
        )
        return indices

    def _load_sampler(self, state: Any) -> Any:
        """As for datasets: what was saved at the beginning of an epoch may be the end of another."""
        assert self.resume is not None
        self.hooked.load_state_dict(state)
        found = iter(self.index_sampler)
        ended = self.resume.sampler_ended
        if self.consumed - self.resume.sampler_behind and not ended:
            if self.resume.cut:
                next(found, None)
            return found
        try:
            next(found)
        except StopIteration:
            return iter(() if ended else self.index_sampler)
        if not self.resume.cut:
            self.hooked.load_state_dict(state)
        return iter(() if ended else self.index_sampler)

    def _draw_again(self, indices: Any, batches: int) -> list[int]:
        """Pass over batches that were consumed after the sampler's state was taken; their lengths."""
        lengths = [length(index) for index in itertools.islice(indices, batches)]
        if not lengths or self.hooked is None:
            return lengths
        if self.counted:
            self._sampler_began = self.hooked.state_dict()
            self._sampler_given = sum(lengths)
            self._sampler = Given(None, self._sampler_given)
        else:
            self._sampler_given += sum(lengths)
            self._sampler = self._gives(lengths[-1])
        if self.mark is not None:
            self.mark = self.make_mark()
        return lengths

    def sampler_position(self) -> int:
        """Samples that all ranks together had consumed when the sampler began to deal out the rest;
        0 where it gives a rank's whole share."""
        return int(self._sampler_began["position"]) if self.counted and self._sampler_began else 0

    def agree_on_seed(self, drawn: int) -> int:
        """The seed of the epoch's workers: the one that was saved, else the one just drawn."""
        if self.base_seed is None:
            self.base_seed = drawn
        return self.base_seed

    # --- keeping up ---

    def put(self, samples: int) -> None:
        """A batch was asked for: note what the sampler would go on from after it."""
        self._sampler_given += samples
        if self.counted:
            if self._sampler_began is None:
                self._sampler_began = self.hooked.state_dict()
            self._sampler_ahead.append(Given(None, self._sampler_given))
        elif self.hooked is not None:
            self._sampler_ahead.append(self._gives(samples))

    def _gives(self, samples: int) -> Given:
        """The sampler with hooks, which just gave a batch of so many. Of torch's batches only the
        last can be a short one: then its sampler had no more."""
        index_sampler = self.index_sampler
        short = type(index_sampler) is BatchSampler and samples < index_sampler.batch_size
        return Given(self.hooked.state_dict(), self._sampler_given, short)

    def _sampler_now(self) -> Any:
        if not self.counted:
            return self._sampler.state
        if self._sampler_began is None:
            return None  # not asked yet
        return self.hooked.state_at(self._sampler.samples, since=self._sampler_began)

    def done(self, position: int) -> None:
        """The batch at a position of the epoch was consumed."""
        if position != self.consumed:
            self.ahead.add(position)
            return
        self._advance()
        while self.ahead and self.consumed in self.ahead:
            self.ahead.remove(self.consumed)
            self._advance()

    def _advance(self) -> None:
        self.consumed += 1
        if self._sampler_ahead:
            self._sampler = self._sampler_ahead.popleft()

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
        """The states of hooks that live in the caller's process.

        Most datasets only look where to begin when they are first drawn from: until then what was
        loaded counts, and in a further epoch they still tell of the last one's end.
        """
        caller = self.workers[0]
        ended = caller.ended and self.consumed == self._found  # nothing was drawn since either
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
            self.mark = self.make_mark()

    def make_mark(self) -> Mark:
        """Here."""
        if self.alone:
            self.workers[0].batches = self.consumed
        # First, since it may find out that a worker has ended
        states = [worker.to_dict(self.iterable) for worker in self.workers]
        return Mark(
            self.consumed,
            self.yielded,
            self.next_worker,
            self._sampler_now(),
            self._sampler.ended,
            0 if self.counted else self._sampler.samples,
            states,
            [number for number, worker in enumerate(self.workers) if worker.ended],
        )

    def snapshot_due(self, position: int) -> bool:
        """Whether the task at this position of the epoch should bring its worker's state.

        A worker's last batch before each mark must, and its last of the epoch. An iterable
        dataset's tasks outnumber its batches by one for each worker that ended.
        """
        workers, place, most = len(self.workers), (position + 1) % self.every, self._most()
        if most is not None and position >= most - workers:
            return True
        return self.every <= 2 * workers or place <= workers or place > self.every - workers

    # --- saying where ---

    def to_dict(self, loader: Any, keeper: Any) -> dict[str, Any]:
        """The loader's state."""
        moment, first = self.moment, self.first_moment
        if self.finished:
            moment, first = self.next_moment or Moment.now(loader), None
        elif first is None and self.alone:
            first = Moment.now()  # its sampler has still to draw
        mark = self.mark
        if mark is None or not self.stateful or self.finished:
            mark = self.make_mark()
        if self.alone and keeper.snapshot_rng:
            mark.workers[0]["generators"] = Moment.now().encode()  # the caller does the work
        return {
            "millhead": VERSION,
            "epoch": self.epoch,
            "_num_yielded": mark.yielded,
            "_sampler_iter_yielded": mark.consumed,
            "_steps_since_snapshot": self.consumed - mark.consumed,
            "_iterator_finished": self.finished,
            "cut": self.cut or (mark.consumed == 0 and self._after_cut),
            "_index_sampler_state": mark.sampler,
            "sampler_ended": mark.sampler_ended,
            "samples": mark.samples,
            "length": length_of(loader.dataset),
            "batch_size": loader.batch_size,
            "base_seed": self.base_seed,
            "workers": loader.num_workers,
            "next_worker": mark.next_worker,
            "persists": loader.persistent_workers and keeper.dispatch == "batch",
            "again": self.again,
            "at_end": self.finished,
            "ahead": sorted(self.ahead),
            "ended": mark.ended,
            "generators": moment.to_text(),
            "first_generators": None if first is None else first.to_text(),
            "worker_states": mark.workers,
        }


class Bookmark:
    """What a loader keeps of its position between its iterators, and beyond them."""

    def __init__(self) -> None:
        self.epoch = -1
        #: Of the epoch begun last.
        self.progress: Progress | None = None
        self.current: weakref.ref[Any] | None = None
        #: What was loaded, until an iterator goes on from it.
        self.resume: Position | None = None
        self._loaded: dict[str, Any] | None = None
        #: What ``len(loader)`` was last, ``limit_batches`` apart.
        self.told_length: int | None = None

    def state(self, loader: Any, keeper: Any) -> dict[str, Any]:
        """``state_dict()``."""
        if self.progress is None:
            return seal(unbegun(loader, keeper)) if self._loaded is None else dict(self._loaded)
        iterator = None if self.current is None else self.current()
        if iterator is not None:
            iterator.note_state()
        elif self.progress.alone:
            self.progress.note_dataset(loader.dataset)
        return seal(self.progress.to_dict(loader, keeper))

    def load(self, state: dict[str, Any], loader: Any) -> None:
        """``load_state_dict()``."""
        self.resume = read(state, loader)
        self._loaded = dict(state)
        self.progress = self.current = None
