"""The iterators: torch's order of events, millhead's memory and queues.

Everything that decides *what* a batch is - samplers, seeds, which worker gets which batch, when a
sampler is asked - follows torch step by step, because the stream must equal torch's bit for bit.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import weakref
from typing import TYPE_CHECKING, Any

from torch._C._autograd import _profiler_enabled  # no public question is as cheap
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _DatasetKind,
    _SingleProcessDataLoaderIter,
)

from millhead import _core
from millhead.torch.iterators.failed_samples import tolerance_of
from millhead.torch.iterators.fetch import Fetcher, Stream, columns_of, length
from millhead.torch.loader_stats import EpochLine, advise
from millhead.torch.resume.progress import Progress
from millhead.torch.resume.restore import Restore, has_hooks
from millhead.torch.resume.rng_state import RngState

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from millhead.torch.loader import Keeper
    from millhead.watching.fetch_times import Fetches


def advise_to_hook(skipped: int) -> None:
    """Say that going on had to draw again what was consumed already."""
    if skipped:
        advise(
            "fast-forward",
            f"an iterable dataset without state_dict() and load_state_dict() was resumed by drawing "
            f"{skipped} batches again (IterableDataset): give it or its iterator both",
        )


class Profiled(_BaseDataLoaderIter):
    """``__next__`` that leaves to torch's own what is seldom needed."""

    _epoch: EpochLine | None

    def _belong_to(self, loader: DataLoader[Any], keeper: Keeper) -> None:
        """Before anything is drawn. A loader may be its own keeper, and must not be kept alive."""
        self._millhead_loader = weakref.ref(loader)
        self._keeper = weakref.ref(keeper)
        self._stats = keeper._stats
        self._progress = Progress(loader, keeper).install(keeper)

    def _end_epoch(self) -> None:
        self._progress.finished = True
        if self._epoch is not None:
            self._epoch.end()
            self._epoch = None

    def state_dict(self) -> dict[str, Any]:
        """The loader's, as torchdata's loader asks its iterators for it."""
        loader, keeper = self._millhead_loader(), self._keeper()
        if loader is None or keeper is None:
            raise RuntimeError("the loader of this iterator is gone, and its state with it")
        return keeper._position.state(loader, keeper)

    @property
    def _finished(self) -> bool:
        """Whether the epoch is over: torchdata's loader asks."""
        return self._progress.finished

    def __next__(self) -> Any:
        said = self._IterableDataset_len_called  # a number only after len() of an iterable's loader
        if _profiler_enabled() or (said is not None and self._num_yielded >= said):
            # Torch's: a row in the profile, and a warning where the dataset lied about its length.
            return super().__next__()
        data: Any = self._next_data()
        self._num_yielded += 1
        return data


class InlineIter(Profiled, _SingleProcessDataLoaderIter):
    """No worker: fetch and collate in the caller, in C where torch's collate can be matched."""

    _fetcher_class = Fetcher
    _collate_in_c = staticmethod(_core.collate)

    def __init__(self, loader: DataLoader[Any], keeper: Keeper) -> None:
        began = time.perf_counter_ns()
        self._belong_to(loader, keeper)
        self._begun = False  # whether the sampler was asked
        self._fresh = True
        stream = self._begin(loader)
        self._profile_name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        self._meter = self._stats.meter
        tolerance = tolerance_of(loader, keeper, self._base_seed)
        self._fetcher = self._fetcher_class(
            self._dataset,
            self._collate_fn,
            self._auto_collation,
            tolerance,
            self._meter,
            self._collate_in_c,
        )
        if self._dataset_kind == _DatasetKind.Iterable:
            if stream is None:
                stream = self._dataset_fetcher.dataset_iter
            self._open_stream(stream)
        if keeper.limit_batches is not None:
            left = max(keeper.limit_batches - self._progress.consumed, 0)
            self._sampler_iter = itertools.islice(self._sampler_iter, left)
        # Positions in the epoch: of this batch, and of the next
        self._first = self._sample = self._progress.skipped_samples
        #: Lengths of the batches after this one that were consumed before the epoch was resumed.
        self._passed: list[int] = []
        #: Whether C makes batches from the sampler to the collate in one call.
        self._native = (
            self._fetcher.default_collate
            and self._fetcher.tolerance is None
            and self._fetcher.stream is None
            and not self._progress.ahead
            and not self._pin_memory
            and (self._progress.hooked is None or self._progress.counted)
            and not hasattr(self._dataset, "__getitems__")
            and columns_of(self._dataset) is None
        )
        self._began_ns = began
        self._stats.setup_ns = time.perf_counter_ns() - began
        self._epoch = EpochLine(self._stats, self._progress, loader, keeper)

    # --- beginning ---

    def _begin(self, loader: DataLoader[Any]) -> Any:
        """Torch's part of it; the iterator over the dataset where one was brought back."""
        progress, resume = self._progress, self._progress.resume
        if resume is None:
            _SingleProcessDataLoaderIter.__init__(self, loader)
            progress.agree_on_seed(int(self._base_seed))
            return None
        restore = resume.restores[0] if resume.restores else Restore()
        # A stream that begins may draw its order at once: after the epoch's seed was drawn.
        begins = progress.iterable and (restore.renew or not restore.hooked)
        stream, load_again = None, False
        if not begins:
            stream = restore.open(loader.dataset, progress.iterable)
        elif restore.hooked:
            load_again = restore.end_epoch(loader.dataset)
        elif not restore.skip:
            restore.put_generators_back()
        with progress.replaying(loader):
            _BaseDataLoaderIter.__init__(self, loader)  # torch's own would ask for an iterator too
            if progress.forget_seed(loader):
                self._sampler_iter = iter(self._index_sampler)
            if begins:
                stream = restore.begin_epoch(loader.dataset, load_again)
            if progress.first_rng is None:
                progress.first_rng = RngState.now()
            if progress.consumed:
                progress.first_rng.put_back()
                self._begun = True
            self._sampler_iter = progress.ask_again(self._sampler_iter)
        self._base_seed: int = progress.agree_on_seed(int(self._base_seed))
        self._num_yielded = progress.yielded
        return stream

    def _open_stream(self, iterator: Any) -> None:
        progress, caller = self._progress, self._progress.workers[0]
        stream = self._fetcher.stream = Stream(iterator, self._drop_last)
        stream.ended = caller.ended and caller.known().hooked
        if progress.resume is None or not caller.batches:
            return
        assert progress.first_rng is not None
        with progress.first_rng.in_force():
            self._fetcher.skip(caller.batches, lambda: next(self._sampler_iter))
        caller.ended = self._auto_collation and stream.ended
        progress.resume.restores[0].put_generators_back()
        advise_to_hook(caller.batches)

    def observe(self, observer: Fetches) -> None:
        """Let it hear how long samples and batches take."""
        self._native = False  # sampler, dataset and collate in one go cannot be told apart
        self._fetcher.observer = observer

    def _first_data(self) -> Any:
        """The first batch: its sampler draws now, under the generators as they are or were."""
        progress = self._progress
        self._fresh = False
        if not self._begun:
            self._begun = True
            if progress.resume is None:
                progress.first_rng = RngState.now()
            else:
                self._ask_first_again(progress.first_rng)
        data = self._next_data()
        self._stats.first_batch_ns = time.perf_counter_ns() - self._began_ns
        return data

    def _ask_first_again(self, first: RngState | None) -> None:
        """Ask the sampler under the generators of when it was first asked."""
        assert first is not None
        with first.in_force():
            for index in self._sampler_iter:
                self._sampler_iter = itertools.chain([index], self._sampler_iter)
                break

    def note_state(self) -> None:
        """Let the loader's state know the hooks of what lives here."""
        stream = self._fetcher.stream
        self._progress.note_caller(self._dataset, None if stream is None else stream.iterator)

    def __del__(self) -> None:
        fetcher = getattr(self, "_fetcher", None)
        stream = None if fetcher is None else fetcher.stream
        if stream is not None and has_hooks(stream.iterator):
            with contextlib.suppress(Exception):
                self.note_state()

    # --- one batch ---

    def __next__(self) -> Any:
        if self._fresh or not self._native or _profiler_enabled():
            return super().__next__()
        batch = self._load()
        self._num_yielded += 1
        return batch

    def _next_data(self) -> Any:
        if self._fresh:
            return self._first_data()
        if self._native:
            return self._load()
        index, observer = self._next_index(), self._fetcher.observer
        if observer is None:
            return self._finish(self._load_in_python(index, []))
        return self._finish(observer.time(self._load_in_python, index, []))

    def _load(self) -> Any:
        """One batch in C, which also counts it."""
        found: list[Any] = []
        samples: list[Any] = []
        try:
            batch = self._meter.load(self._sampler_iter, self._dataset, found, samples)
        except StopIteration:
            if not found:
                self._end_epoch()
            raise
        except Exception as error:
            if found:
                self._consumed(len(found[0]))
                self._say_where(error, found[0], len(samples))
            raise
        progress = self._progress
        if progress.hooked is None:
            progress.consumed += 1
        else:
            self._consumed(len(found[0]))
        if batch is NotImplemented:
            return self._finish(self._load_in_python(found[0], samples))
        progress.yielded += 1
        return batch

    def _finish(self, batch: Any) -> Any:
        self._progress.yielded += 1
        if self._pin_memory:
            return pin_memory(batch, self._pin_memory_device)  # type: ignore[no-untyped-call]
        return batch

    def _next_index(self) -> Any:
        self._stats.meter.begin_wait()
        try:
            index = next(self._sampler_iter)
        except StopIteration:
            self._end_epoch()
            raise
        self._consumed(length(index) if self._auto_collation else 1)
        return index

    def _consumed(self, samples: int) -> None:
        progress = self._progress
        progress.sampler.asked(samples)
        place = progress.consumed + 1
        while progress.ahead and place in progress.ahead:  # of a run with in_order=False
            index = next(self._sampler_iter, None)
            if index is None:
                break
            self._passed.append(length(index) if self._auto_collation else 1)
            progress.sampler.asked(self._passed[-1])
            place += 1
        progress.done(progress.consumed)

    def _load_in_python(self, index: Any, samples: Any) -> Any:
        """Fetch (unless C already did) and collate, where C cannot do both."""
        fetcher, path, batch = self._fetcher, "slot", NotImplemented
        count = length(index) if self._auto_collation else 1
        self._first, self._sample = self._sample, self._sample + count
        while self._passed:
            self._sample += self._passed.pop()
        if fetcher.may_gather and not samples:
            columns, rows = fetcher.rows(index)
            if columns is not None:
                batch = _core.gather(columns, rows)
        if batch is NotImplemented:
            if samples:  # and C declined to collate them
                path, batch = "general", self._collate_fn(samples)
            else:
                samples = self._fetch(index)
                path, batch = fetcher.collate(samples)
            count = length(samples) if self._auto_collation else 1
        self._stats.batch(path, count)
        self._stats.meter.end_wait()
        return batch

    def _fetch(self, index: Any) -> Any:
        fetcher, stream = self._fetcher, self._fetcher.stream
        fetcher.position = self._first
        try:
            samples = fetcher.fetch(index)
        except Exception as error:
            if stream is not None and isinstance(error, StopIteration):
                self._end_epoch()
            elif stream is not None:
                self._note(error, f"item {stream.failed}")
            elif fetcher.step == "sample":
                self._say_where(error, fetcher.numbers, fetcher.failed)
            raise
        if stream is not None and self._auto_collation:
            self._progress.workers[0].ended = stream.ended
        elif fetcher.tolerance is not None and (faults := fetcher.faults) is not None:
            self._stats.add_faults(faults.skipped, faults.replaced, faults.first)
        return samples

    def _say_where(self, error: Exception, numbers: list[Any], failed: int) -> None:
        place = "a batch"
        with contextlib.suppress(Exception):  # an index that cannot be shown
            place = f"sample index {numbers[failed]!r}"
        self._note(error, place)

    def _note(self, error: Exception, place: str) -> None:
        self._stats.errors_raised += 1
        if not isinstance(error, StopIteration):
            with contextlib.suppress(Exception):  # an exception that takes no note
                error.add_note(f"millhead: {place}")
