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
from torch.utils.data import default_collate
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _DatasetKind,
    _SingleProcessDataLoaderIter,
)

from millhead import _core
from millhead.torch._faults import Tolerance, choices_of
from millhead.torch._moment import Moment
from millhead.torch._restore import Restore, has_hooks
from millhead.torch._stats import EpochLine, advise
from millhead.torch.fetch import (
    Stream,
    as_list,
    columns_of,
    fetches_together,
    length,
    rows_of,
    within,
)
from millhead.torch.resume import Progress

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from millhead.torch.loader import Keeper


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

    _millhead_loader: weakref.ref[DataLoader[Any]]
    _keeper: weakref.ref[Keeper]
    _progress: Progress

    def state_dict(self) -> dict[str, Any]:
        """The loader's, as torchdata's loader asks its iterators for it."""
        loader, keeper = self._millhead_loader(), self._keeper()
        if loader is None or keeper is None:
            raise RuntimeError("the loader of this iterator is gone, and its state with it")
        return keeper._bookmark.state(loader, keeper)

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


class SingleIter(Profiled, _SingleProcessDataLoaderIter):
    """No worker: fetch and collate in the caller, in C where torch's collate can be matched."""

    def __init__(self, loader: DataLoader[Any], keeper: Keeper) -> None:
        began = time.perf_counter_ns()
        self._keeper = weakref.ref(keeper)
        self._progress = Progress(loader, keeper).install(keeper)
        self._begun = False  # whether the sampler was asked
        self._fresh = True
        stream = self._begin(loader)
        self._profile_name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        self._millhead_loader = weakref.ref(loader)
        self._stats = keeper._stats
        self._meter = keeper._stats.meter
        self._default_collate = self._auto_collation and self._collate_fn is default_collate
        self._stream: Stream | None = None
        if self._dataset_kind == _DatasetKind.Iterable:
            if stream is None:
                stream = self._dataset_fetcher.dataset_iter
            self._stream = Stream(stream, self._drop_last)
            caller = self._progress.workers[0]
            self._stream.ended = caller.ended and caller.known().hooked
            self._skip(self._progress)
        if keeper.limit_batches is not None:
            left = max(keeper.limit_batches - self._progress.consumed, 0)
            self._sampler_iter = itertools.islice(self._sampler_iter, left)
        #: What deals with samples that raise an exception; None: they are the caller's to see.
        self._tolerance: Tolerance | None = None
        if keeper.on_error != "raise":
            self._tolerance = Tolerance(keeper.on_error, choices_of(loader), self._base_seed)
        # Positions in the epoch: of this batch, and of the next
        self._first = self._sample = self._progress.skipped_samples
        #: Lengths of the batches after this one that were consumed before the epoch was resumed.
        self._passed: list[int] = []
        self._native = (
            self._default_collate
            and self._tolerance is None
            and self._stream is None
            and not self._progress.ahead
            and not self._pin_memory
            and (self._progress.hooked is None or self._progress.counted)
            and not hasattr(self._dataset, "__getitems__")
            and columns_of(self._dataset) is None
        )
        self._began_ns = began
        self._stats.setup_ns = time.perf_counter_ns() - began
        self._epoch: EpochLine | None = EpochLine(self._stats, self._progress, loader, keeper)

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
            if progress.first_moment is None:
                progress.first_moment = Moment.now()
            if progress.consumed:
                progress.first_moment.put_back()
                self._begun = True
            self._sampler_iter = progress.ask_again(self._sampler_iter)
        self._base_seed: int = progress.agree_on_seed(int(self._base_seed))
        self._num_yielded = progress.yielded
        return stream

    def _skip(self, progress: Progress) -> None:
        """Draw again what was consumed of a stream that cannot be told where to begin."""
        skipped = progress.workers[0].batches if progress.resume is not None else 0
        if not skipped:
            return
        assert progress.resume is not None
        assert progress.first_moment is not None
        before, first = Moment.now(), progress.first_moment
        first.put_back()
        stream = self._stream
        assert stream is not None

        def fetch() -> None:
            index = next(self._sampler_iter)
            stream.batch(len(index), self._draw) if self._auto_collation else stream.one()

        stream.pass_over(skipped, fetch)
        progress.workers[0].ended = self._auto_collation and stream.ended
        if not before.same_global(first):
            before.put_back()
        progress.resume.restores[0].put_generators_back()
        advise_to_hook(skipped)

    def _first_data(self) -> Any:
        """The first batch: its sampler draws now, under the generators as they are or were."""
        progress = self._progress
        self._fresh = False
        if not self._begun:
            self._begun = True
            if progress.resume is None:
                progress.first_moment = Moment.now()
            else:
                self._ask_first_again(progress)
        data = self._next_data()
        self._stats.first_batch_ns = time.perf_counter_ns() - self._began_ns
        return data

    def _ask_first_again(self, progress: Progress) -> None:
        before, first = Moment.now(), progress.first_moment
        assert first is not None
        first.put_back()
        for index in self._sampler_iter:
            self._sampler_iter = itertools.chain([index], self._sampler_iter)
            break
        if not before.same_global(first):
            before.put_back()

    def note_state(self) -> None:
        """Let the loader's state know the hooks of what lives here."""
        stream = None if self._stream is None else self._stream.iterator
        self._progress.note_caller(self._dataset, stream)

    def __del__(self) -> None:
        stream = getattr(self, "_stream", None)
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
        if not self._native:
            return self._finish(self._load_in_python(self._next_index(), []))
        return self._load()

    def _load(self) -> Any:
        """One batch in C, which also counts it."""
        found: list[Any] = []
        samples: list[Any] = []
        try:
            batch = _core.load(self._sampler_iter, self._dataset, found, samples, self._meter)
        except StopIteration:
            if not found:
                self._end_epoch()
            raise
        except Exception as error:
            if found:
                self._consumed(len(found[0]))
                self._note_sample(error, found[0][len(samples) :])
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
        progress.put(samples)
        place = progress.consumed + 1
        while progress.ahead and place in progress.ahead:  # of a run with in_order=False
            index = next(self._sampler_iter, None)
            if index is None:
                break
            self._passed.append(length(index) if self._auto_collation else 1)
            progress.put(self._passed[-1])
            place += 1
        progress.done(progress.consumed)

    def _load_in_python(self, index: Any, samples: Any) -> Any:
        """Fetch (unless C already did) and collate, where C cannot do both."""
        path = "slot"
        count = length(index) if self._auto_collation else 1
        self._first, self._sample = self._sample, self._sample + count
        while self._passed:
            self._sample += self._passed.pop()
        batch = self._gather(index) if not samples else NotImplemented
        if batch is NotImplemented:
            fetched_in_c = bool(samples)
            if not fetched_in_c:
                samples = self._fetch(index)
            count = length(samples) if self._auto_collation else 1
            if self._default_collate and not fetched_in_c:
                batch = _core.collate(samples)
            if batch is NotImplemented:
                batch, path = self._collate_fn(samples), "general"
        self._stats.batch(path, count)
        self._stats.meter.end_wait()
        return batch

    def _gather(self, index: Any) -> Any:
        """The batch, where the samples are rows of what is in memory already."""
        if self._default_collate and self._stream is None and type(index) is list:
            dataset, numbers = rows_of(self._dataset, index)
            if dataset is not None:
                return _core.gather(dataset, numbers)
        return NotImplemented

    def _source(self, samples: Any) -> Any:
        """What is asked for samples: a dataset or an iterator, or what stands for it."""
        return samples

    def _fetch(self, index: Any) -> Any:
        if self._stream is not None:
            return self._fetch_from_stream(index)
        if self._tolerance is not None:
            return self._fetch_tolerantly(self._tolerance, index)
        if self._auto_collation and fetches_together(self._dataset):
            return self._dataset.__getitems__(index)  # type: ignore[attr-defined]
        samples: list[Any] = []
        numbers = as_list(index) if self._auto_collation else [index]
        try:
            if not self._auto_collation:
                return self._source(self._dataset)[index]
            dataset, inner = within(self._dataset, numbers)
            _core.fetch(self._source(dataset), inner, samples, self._stats.meter)
        except Exception as error:
            self._note_sample(error, numbers[len(samples) :])
            raise
        return samples

    def _fetch_tolerantly(self, tolerance: Tolerance, index: Any) -> Any:
        numbers = as_list(index) if self._auto_collation else [index]
        if self._auto_collation and fetches_together(self._dataset):
            with contextlib.suppress(Exception):  # one of them: see which, one by one
                return self._dataset.__getitems__(numbers)  # type: ignore[attr-defined]
        try:
            samples, faults = tolerance.fetch_batch(numbers, self._first, self._fetch_some)
        except Exception as error:
            self._note_sample(error, numbers[tolerance.failed :])
            raise
        self._stats.add_faults(faults.skipped, faults.replaced, faults.first)
        return samples if self._auto_collation else samples[0]

    def _fetch_some(self, numbers: list[Any], first: int, samples: list[Any]) -> None:
        _core.fetch(self._source(self._dataset), numbers, samples, self._stats.meter)

    def _fetch_from_stream(self, index: Any) -> Any:
        stream = self._stream
        assert stream is not None
        try:
            if not self._auto_collation:
                return stream.one()
            samples = stream.batch(len(index), self._draw)
            self._progress.workers[0].ended = stream.ended
            return samples
        except StopIteration:
            self._end_epoch()
            raise
        except Exception as error:
            self._note(error, f"item {stream.failed}")
            raise

    def _draw(self, iterator: Any, first: int, count: int) -> list[Any]:
        samples: list[Any] = []
        try:
            _core.draw(self._source(iterator), first, count, samples, self._stats.meter)
        except Exception:
            assert self._stream is not None
            self._stream.raised(len(samples))
            raise
        return samples

    def _note_sample(self, error: Exception, unfetched: list[Any]) -> None:
        place = "a batch"
        with contextlib.suppress(Exception):  # an index that cannot be shown
            place = f"sample index {unfetched[0]!r}"
        self._note(error, place)

    def _note(self, error: Exception, place: str) -> None:
        self._stats.errors_raised += 1
        if not isinstance(error, StopIteration):
            with contextlib.suppress(Exception):  # an exception that takes no note
                error.add_note(f"millhead: {place}")

    def _end_epoch(self) -> None:
        self._progress.finished = True
        if self._epoch is not None:
            self._epoch.end()
            self._epoch = None
