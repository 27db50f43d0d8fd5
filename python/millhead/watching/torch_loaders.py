"""Watching the loaders of torch, and millhead's, from inside.

An iterator is made as ever and then given a subclass of its class, whose ``__next__`` keeps the time:
it stays the object that others hold, with all it has. Workers are reached through ``worker_init_fn``,
which is the user's own again once they have started.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, cast

import torch.utils.data
from torch import Tensor
from torch.utils.data.dataloader import _BaseDataLoaderIter

from millhead import _import_hook
from millhead.torch import core_available
from millhead.torch.ranks.batch_size import effective_batch_size
from millhead.watching import hot_code
from millhead.watching.fetch_times import Fetches, FetchPlan, WorkerInit, time_fetcher
from millhead.watching.loops import (
    Epoch,
    LoaderWatch,
    WatchedIterator,
    hooks_wanted,
    loader_watch,
)
from millhead.watching.recording import Recording, recording_of

try:
    from numpy import ndarray as _Array
except ImportError:
    _Array = Tensor  # type: ignore[assignment,misc]

if core_available.why_not is None:
    from millhead.torch.iterators.inline import InlineIter
    from millhead.torch.iterators.multiprocess import MultiprocessIter
    from millhead.torch.iterators.sample_dispatch import SampleIter

AnyLoader = torch.utils.data.DataLoader[Any]


#: Drawing an order is told from here on, as samples are.
_SLOW_NS = 100_000

# --- what iterators become ---


class Watched(_BaseDataLoaderIter):
    """An iterator that keeps the time. Its class comes first among those of the iterator."""

    _watch_epoch: Epoch
    _watch_by_worker: bool  # whether a batch is all one worker's
    _watch_count: int
    _watch_delivered: dict[int, int]
    _from_worker: int

    def _watch_begin(self, epoch: Epoch) -> None:
        self._watch_epoch = epoch
        self._watch_count = 0
        self._watch_delivered = {}  # batches of each worker; -1: of none

    def __next__(self) -> Any:
        epoch, delivered = self._watch_epoch, self._watch_delivered
        watch = epoch.watch
        self._from_worker = -1
        epoch.ask(watch.train_ns)
        try:
            batch = super().__next__()
        except StopIteration:
            epoch.end(complete=True)
            raise
        except BaseException as error:
            worker = self._from_worker if self._watch_by_worker else -1
            delivered[worker] = delivered.get(worker, 0) + 1  # the next one has another number
            epoch.failed(error, worker)
            raise
        worker = self._from_worker if self._watch_by_worker else -1
        nth = delivered.get(worker, 0)
        delivered[worker] = nth + 1
        fetched = -1 if epoch.fetches is None else epoch.fetches.times.samples
        if not self._auto_collation:
            fetched = 1
        samples = fetched if fetched > 0 else samples_in(batch)
        count = self._watch_count
        self._watch_count = count + 1
        # Batches 0, 1, 2, 4, 8 and so on: what one takes is known soon, and costs nothing later.
        size, texts = (-1, -1) if count & (count - 1) else bytes_in(batch)
        if lines := epoch.got(samples, worker, nth, size, texts):
            epoch.keep(lines)
        watch.train_ns = -1
        return batch

    def _reset(self, loader: AnyLoader, first_iter: bool = False) -> None:
        """Another epoch of workers that persist."""
        before = self._watch_epoch
        before.end(complete=False)
        epoch = Epoch(before.watch)
        self._watch_begin(epoch)
        super()._reset(loader, first_iter)
        epoch.ready()

    def __del__(self) -> None:
        self._watch_epoch.end(complete=False)
        ends = getattr(super(), "__del__", None)
        if ends is not None:
            ends()

    # --- what only iterators with workers have ---

    def _try_put_index(self) -> Any:
        """Each batch that is taken lets the loop draw the order of a later one."""
        began = time.monotonic_ns()
        result = super()._try_put_index()  # type: ignore[misc]
        ns = time.monotonic_ns() - began
        if not self._watch_count:  # those before the first batch are start-up
            self._watch_epoch.drawn_ns += ns
        elif ns >= _SLOW_NS:
            self._watch_epoch.drew(began, ns, self._watch_count)
        return result

    def _process_data(self, data: Any, *rest: Any) -> Any:
        # Private; every batch of torch's passes through, with its worker's number since torch 2.6.
        if rest:
            self._from_worker = rest[0]
        return super()._process_data(data, *rest)  # type: ignore[misc]


@functools.cache
def _watched_class(kind: Any) -> Any:
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (Watched, kind), names)


def _adopt(iterator: Any, epoch: Epoch) -> None:
    """Let an iterator that was just made keep the time from now on."""
    native, by_worker = core_available.why_not is None, True
    if native and isinstance(iterator, MultiprocessIter):
        # A batch of several workers' samples is none's; a resumed epoch has dropped some already.
        resume = iterator._progress.resume
        by_worker = not isinstance(iterator, SampleIter) and (resume is None or resume.since == 0)
    elif hasattr(iterator, "_dataset_fetcher") or (native and isinstance(iterator, InlineIter)):
        epoch.fetches = Fetches(epoch.watch.log, epoch.watch.number, epoch.number, -1)
        if native and isinstance(iterator, InlineIter):
            iterator.observe(epoch.fetches)
        else:
            time_fetcher(iterator._dataset_fetcher, epoch.fetches)
    kind: Any = type(iterator)
    iterator.__class__ = _watched_class(kind)
    iterator._watch_by_worker = by_worker
    iterator._watch_begin(epoch)


def samples_in(batch: Any) -> int:
    """How many samples a batch of the usual kinds has; -1 where that takes more than a look."""
    for _ in range(3):
        if isinstance(batch, Tensor):
            shape = batch.shape  # the cheapest question there is; len() is Python code of torch's
            return shape[0] if shape else -1
        if type(batch) in (list, tuple) and batch:
            batch = batch[0]
        elif type(batch) is dict and batch:
            batch = next(iter(batch.values()))
        else:
            break
    return -1


#: Parts of a batch that are looked at for its bytes: a batch of short texts has many and few bytes.
_MOST_PARTS = 1000
#: A number of Python's, pickled.
_NUMBER_BYTES = 9


def bytes_in(batch: Any) -> tuple[int, int]:
    """The bytes of a batch's tensors and arrays, and those of its texts and numbers, which a worker
    would pickle; -1 if it has none. In a batch of too many parts only texts and numbers that come before
    any tensor count."""
    total, texts, parts = -1, -1, [batch]
    for _ in range(_MOST_PARTS):
        if not parts:
            return total, texts
        part = parts.pop()
        if isinstance(part, (Tensor, _Array)):
            total = max(total, 0) + int(part.nbytes)
        elif isinstance(part, str) and not part.isascii():
            texts = max(texts, 0) + len(part.encode(errors="surrogatepass"))
        elif isinstance(part, (str, bytes, bytearray)):
            texts = max(texts, 0) + len(part)
        elif isinstance(part, (int, float)):
            texts = max(texts, 0) + _NUMBER_BYTES
        elif isinstance(part, Mapping):
            parts.extend(part.values())
        elif isinstance(part, (list, tuple)):
            parts.extend(part)
    return -1, texts if total < 0 else -1


# --- making them ---


def iterate(
    loader: AnyLoader, watch: LoaderWatch, make: Callable[[AnyLoader], Any] = iter
) -> Iterator[Any]:
    """A watched iterator over a loader; ``make`` gives one."""
    if loader.persistent_workers and isinstance(getattr(loader, "_iterator", None), Watched):
        return cast(Iterator[Any], make(loader))  # it counts the epoch itself
    watch.begin()
    epoch = Epoch(watch)
    with _explicitly(loader), _init_wrapped(loader, watch, epoch) as init, _orders_timed(epoch):
        iterator = make(loader)
    if getattr(iterator, "_worker_init_fn", None) is init:
        iterator._worker_init_fn = init.users
    watch.describe(**_settings(loader, iterator))
    epoch.ready()
    if isinstance(iterator, _BaseDataLoaderIter):
        _adopt(iterator, epoch)
        return iterator
    return WatchedIterator(iterator, epoch)  # a framework's own, around torch's


@contextlib.contextmanager
def _init_wrapped(loader: AnyLoader, watch: LoaderWatch, epoch: Epoch) -> Iterator[WorkerInit]:
    """The loader's ``worker_init_fn`` starts the watching of workers, for as long as they start."""
    users = loader.worker_init_fn
    init = WorkerInit(users, FetchPlan(watch.log.path, watch.number, epoch.number))
    if loader.num_workers == 0:
        yield init
        return
    # Not by the class's own __setattr__, which may record or refuse.
    object.__setattr__(loader, "worker_init_fn", init)
    try:
        yield init
    finally:
        object.__setattr__(loader, "worker_init_fn", users)


def _asking_classes() -> Iterator[Any]:
    """Iterators with workers, by the classes that ask their sampler for orders."""
    yield torch.utils.data.dataloader._MultiProcessingDataLoaderIter
    if core_available.why_not is None:
        yield from (MultiprocessIter, SampleIter)
    stateful = sys.modules.get("torchdata.stateful_dataloader.stateful_dataloader")
    yield getattr(stateful, "_StatefulMultiProcessingDataLoaderIter", object)


#: Who counts orders at the moment: one thread, since the classes are there for all.
_counting = threading.RLock()


def _timed(ask: Any, epoch: Epoch) -> Any:
    thread = threading.get_ident()

    @functools.wraps(ask)
    def asked(self: Any) -> Any:
        if threading.get_ident() != thread:  # it makes one of its own meanwhile
            return ask(self)
        began, before = time.monotonic_ns(), epoch.drawn_ns
        try:
            return ask(self)
        finally:  # not twice what one class leaves to another
            epoch.drawn_ns = before + time.monotonic_ns() - began

    return asked


@contextlib.contextmanager
def _orders_timed(epoch: Epoch) -> Iterator[None]:
    """Count what the first orders take, while an iterator is made whose class nobody knows yet."""
    if not _counting.acquire(blocking=False):
        yield
        return
    kinds = [kind for kind in _asking_classes() if "_try_put_index" in vars(kind)]
    before = [kind._try_put_index for kind in kinds]
    try:
        for kind, ask in zip(kinds, before, strict=True):
            kind._try_put_index = _timed(ask, epoch)
        yield
    finally:
        for kind, ask in zip(kinds, before, strict=True):
            kind._try_put_index = ask
        _counting.release()


def _settings(loader: AnyLoader, iterator: Any) -> dict[str, Any]:
    ours = core_available.why_not is None and isinstance(iterator, (InlineIter, MultiprocessIter))
    keeper = iterator._keeper() if ours else None
    return {
        "kind": "millhead" if ours else "torch",
        "workers": loader.num_workers,
        "prefetch": loader.prefetch_factor,
        "batch_size": loader.batch_size or getattr(loader.batch_sampler, "batch_size", None),
        "effective_batch_size": effective_batch_size(loader),
        "in_order": getattr(loader, "in_order", True),
        "persistent": loader.persistent_workers,
        "pin_memory": loader.pin_memory,
        "start": _start_method(loader, keeper),
        "dispatch": "batch" if keeper is None else keeper.dispatch,
        "iterable": isinstance(loader.dataset, torch.utils.data.IterableDataset) or None,
        "dataset": type(loader.dataset).__name__,
        "place": hot_code.users_line(),
    }


def _start_method(loader: AnyLoader, keeper: Any) -> str:
    if loader.num_workers == 0:
        return "none"
    if keeper is not None:
        return str(keeper._stats.start)
    return str((loader.multiprocessing_context or torch.multiprocessing).get_start_method())


# --- every loader of the process ---

_all: Recording | None = None
#: Loaders whose iterator is being made by iterate().
_under_way: set[int] = set()


@contextlib.contextmanager
def _explicitly(loader: AnyLoader) -> Iterator[None]:
    _under_way.add(id(loader))
    try:
        yield
    finally:
        _under_way.discard(id(loader))


#: Classes whose ``__iter__`` makes iterators, by the module that defines them. A module that is not
#: imported is awaited.
_CLASSES = {
    "torch.utils.data.dataloader": "DataLoader",
    "torchdata.stateful_dataloader.stateful_dataloader": "StatefulDataLoader",
}
#: What was there before, and ours.
_replaced: dict[Any, tuple[Callable[[AnyLoader], Any], Callable[[AnyLoader], Any]]] = {}


def _watching(make: Callable[[AnyLoader], Any]) -> Callable[[AnyLoader], Any]:
    """An ``__iter__`` that watches what another one makes."""

    def watched_iter(self: AnyLoader) -> Any:
        recording = recording_of_all()
        in_worker = torch.utils.data.get_worker_info() is not None
        if recording is None or in_worker or id(self) in _under_way:
            return make(self)
        watch = loader_watch(self, recording, None)
        if watch.hooks is None and hooks_wanted():
            from millhead.watching import training_hooks

            watch.hooks = training_hooks.hooks()
        return iterate(self, watch, make)

    return watched_iter


def _replace(module: ModuleType) -> None:
    kind = getattr(module, _CLASSES[module.__name__])
    if kind not in _replaced:
        _replaced[kind] = kind.__iter__, _watching(kind.__iter__)
        kind.__iter__ = _replaced[kind][1]


def watch_all(run: str | os.PathLike[str]) -> None:
    """Watch every ``torch.utils.data.DataLoader`` of this process from now on, millhead's included.

    As :func:`millhead.watch` does, with the events in the directory ``run``. Loaders that exist are
    reached too: it counts when iteration begins. See also ``MILLHEAD_WATCH``, docs/events.md.
    """
    global _all
    _all = recording_of(run, fresh=False)
    for module in _CLASSES:
        _import_hook.when_imported(module, _replace)


def unwatch_all() -> None:
    """Undo :func:`watch_all`, and end its recording."""
    global _all
    recording, _all = _all, None
    if recording is not None:
        recording.close()
    for module in _CLASSES:
        _import_hook.forget(module, _replace)
    for kind, (before, ours) in list(_replaced.items()):
        if kind.__iter__ is ours:  # else another's, which passes on to ours
            kind.__iter__ = before
            del _replaced[kind]


def recording_of_all() -> Recording | None:
    """Where :func:`watch_all` writes to, in this process; None: it was not called."""
    global _all
    if _all is not None and _all.directory is not None:
        _all = recording_of(_all.directory, fresh=False)  # a forked process has its own
    return _all
