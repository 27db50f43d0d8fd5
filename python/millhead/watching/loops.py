"""``millhead.watch``: what a loop waits for, whatever it iterates over.

The consumer's side: how long each batch was waited for and worked on. What happens inside the workers
of a torch loader is timed in :mod:`millhead.watching.fetch_times`, and joined to it by worker and number.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millhead import _core
from millhead.watching import hot_code
from millhead.watching.fetch_times import Fetches
from millhead.watching.recording import Recording, recording_of, summary_row, wait_share

if TYPE_CHECKING:
    from millhead.watching.native_loaders import Stages

T = TypeVar("T")


class LoaderWatch:
    """What is kept about one loader, over all its epochs."""

    def __init__(self, recording: Recording, name: str | None, hooks: Any = None) -> None:
        self.recording = recording
        self.log = recording.log
        self.name = name
        self.hooks = hooks
        self.number = -1
        self.epochs = 0
        self.past: list[dict[str, int]] = []
        self.live: weakref.WeakSet[Epoch] = weakref.WeakSet()
        self.first_ns: int | None = None  # the wait for the very first batch
        self.meter = _core.Meter()  # every wait but the first
        self._described = False
        #: Events of a native loader that were lost when it was last asked.
        self.lost_before = 0
        self.train_ns = -1  # of the step under way; -1: not known

    def begin(self) -> None:
        """Before the first iterator is made."""
        if self.number < 0:
            self.log.touch()  # now it is known who made the file
            self.number = self.recording.loader_number()

    def describe(self, **settings: Any) -> None:
        """The loader's line, once."""
        if not self._described:
            self._described = True
            self.log.event(
                "loader", loader=self.number, name=self.name, **settings, cpus=_core.cpus()
            )
            self.recording.describe()

    def stats(self) -> dict[str, Any]:
        """The numbers of ``watched.stats()``."""
        epochs = [*self.past, *(epoch.totals() for epoch in self.live)]
        total = {
            key: sum(epoch[key] for epoch in epochs)
            for key in ("batches", "samples", "setup_ns", "first_ns", "wait_ns", "step_ns")
        }
        waits = self.meter.wait_ms()
        wait_ns = total["wait_ns"] + total["first_ns"] - (self.first_ns or 0)
        return {
            "epochs": self.epochs,
            "batches": total["batches"],
            "samples": total["samples"],
            "setup_s": total["setup_ns"] / 1e9,
            "first_batch_s": None if self.first_ns is None else self.first_ns / 1e9,
            "wait_s": {
                "count": int(waits["count"]),
                **{key: waits[key] / 1e3 for key in ("mean", "p50", "p99", "max", "total")},
            },
            "step_s": {"total": total["step_ns"] / 1e9},
            "wait_share": wait_share(wait_ns, total["step_ns"]),
            "events_lost": self.log.lost,
        }


class Epoch:
    """One iterator's time: asked, got, asked again, until it ends."""

    def __init__(self, watch: LoaderWatch) -> None:
        self.watch = watch
        self.number = watch.epochs
        self._steps = _core.Steps(watch.number, self.number, watch.meter, watch.first_ns is None)
        # Not methods of this class: in a loop that comes here once in some milliseconds every call
        # finds the caches cold, and those of C take a third of the time.
        #: ask(ns): the loop asks for a batch, and ns of the step before were training; -1: not known.
        self.ask: Callable[[int], None] = self._steps.ask
        #: got(samples, worker, nth, bytes, texts): it is there; -1: not known. What is to be kept now.
        self.got: Callable[[int, int, int, int, int], bytes | None] = self._steps.got
        if watch.hooks is not None:
            self.ask, self.got = _with_hooks(self._steps, watch.hooks)
        self._ended = False
        self._hot = hot_code.start_loop()
        #: What the sampler took for the first orders, while the iterator was made.
        self.drawn_ns = 0
        #: Of a loop that makes its batches itself.
        self.fetches: Fetches | None = None
        #: Of a native loader: what its threads did since it was last asked.
        self.stages: Stages | None = None
        watch.epochs += 1
        watch.live.add(self)
        watch.recording.live.add(self)

    def ready(self) -> None:
        """The iterator is made."""
        self.watch.log.write(self._steps.ready(self.drawn_ns))

    def keep(self, lines: bytes) -> None:
        """Write what ``got`` gave, with the first batch for the first time."""
        watch = self.watch
        watch.log.write(lines)
        if usage := watch.recording.usage.lines():
            watch.log.write(usage)
        if self._hot is not None and (hot := self._hot.lines(watch.number, -1)):
            watch.log.write(hot)
        if self.stages is not None and (tasks := self.stages.lines()):
            watch.log.write(tasks)
        if watch.first_ns is None:
            watch.first_ns = self._steps.totals()["first_ns"]

    def drew(self, t: int, ns: int, batch: int) -> None:
        """While this batch was waited for, the loop asked the sampler for a later one's order."""
        self.watch.log.event(
            "order", t, ns=ns, loader=self.watch.number, epoch=self.number, batch=batch
        )

    def flush(self) -> None:
        """Write what was held back."""
        if self.fetches is not None:
            self.fetches.flush()
        if self.stages is not None:
            self.watch.log.write(self.stages.lines())
            self.watch.log.event(
                "stages", loader=self.watch.number, epoch=self.number, **self.stages.sums()
            )
        if lines := self._steps.rest():
            self.watch.log.write(lines)
        if self._hot is not None and (hot := self._hot.lines(self.watch.number, -1, at_once=True)):
            self.watch.log.write(hot)

    def failed(self, error: BaseException, worker: int) -> None:
        """An exception came instead of a batch."""
        what = type(error).__name__
        with contextlib.suppress(Exception):  # an exception that cannot be shown
            # A worker's comes with its traceback: what it is and where stands at the end.
            what += ": " + "; ".join(str(error).strip().splitlines()[-2:])
        self.flush()
        self.watch.log.event("error", what=what, worker=worker)

    def end(self, complete: bool) -> None:
        """The loop leaves the iterator."""
        if self._ended:
            return
        self._ended = True
        watch, totals = self.watch, self._steps.totals()
        ns = (time.monotonic_ns() if complete else totals["last"]) - totals["began"]
        self.flush()
        watch.log.event(
            "epoch",
            totals["began"],
            ns=ns,
            loader=watch.number,
            epoch=self.number,
            batches=totals["batches"],
            complete=complete,
        )
        watch.recording.rows.append(summary_row(watch.number, self.number, totals, ns, complete))
        watch.recording.live.discard(self)
        watch.past.append(totals)
        watch.live.discard(self)
        self._steps.close()
        hot_code.end_loop(self._hot)

    def totals(self) -> dict[str, int]:
        """What it comes to so far."""
        return self._steps.totals()

    def __del__(self) -> None:
        if not getattr(self, "_ended", True):
            self.end(complete=False)


def _with_hooks(steps: _core.Steps, hooks: Any) -> tuple[Any, Any]:
    """``ask`` and ``got`` of a loop in which torch's hooks show when it trains, unless it says so
    itself."""

    def ask(train_ns: int) -> None:
        hooks.told = train_ns >= 0
        if hooks.told:
            steps.ask(train_ns)
        else:
            steps.ask(*hooks.take())

    def got(samples: int, worker: int, nth: int, size: int, texts: int) -> bytes | None:
        lines = steps.got(samples, worker, nth, size, texts)
        hooks.arm()
        return lines

    return ask, got


class WatchedIterator(Generic[T]):
    """Any iterator, with its waits recorded."""

    def __init__(self, iterator: Iterator[T], epoch: Epoch, worker: int = -1) -> None:
        self._iterator = iterator
        self._epoch = epoch
        self._worker = worker
        self._count = 0

    def __iter__(self) -> WatchedIterator[T]:
        return self

    def __next__(self) -> T:
        epoch = self._epoch
        watch = epoch.watch
        epoch.ask(watch.train_ns)
        try:
            item = next(self._iterator)
        except StopIteration:
            epoch.end(complete=True)
            raise
        except BaseException as error:
            epoch.failed(error, self._worker)
            raise
        if lines := epoch.got(-1, self._worker, self._count, -1, -1):
            epoch.keep(lines)
        watch.train_ns = -1
        self._count += 1
        return item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)

    def __del__(self) -> None:
        if "_epoch" in self.__dict__:
            self._epoch.end(complete=False)


class Watched(Generic[T]):
    """An iterable that is watched: iterated as before, everything else passed through."""

    def __init__(self, iterable: Any, watch: LoaderWatch) -> None:
        self._iterable = iterable
        self._watch = watch

    def __iter__(self) -> Iterator[T]:
        kind = _torch_watching(self._iterable) or _own_watching(self._iterable)
        if kind is not None:
            found: Iterator[T] = kind.iterate(self._iterable, self._watch)
            return found
        self._watch.begin()
        epoch = Epoch(self._watch)
        iterator = iter(self._iterable)
        self._watch.describe(kind="iterable")
        epoch.ready()
        return WatchedIterator(iterator, epoch)

    def __len__(self) -> int:
        return len(self._iterable)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copying and pickling ask before there is anything
            raise AttributeError(name)
        return getattr(self._iterable, name)

    def stats(self) -> dict[str, Any]:
        """Over all epochs, in seconds: ``setup_s`` (making iterators), ``first_batch_s`` (the wait for
        the very first), ``wait_s`` (all others: count, mean, p50, p99, max, total), ``wait_share`` (of
        the time after the first batch)."""
        return self._watch.stats()

    def verdict(self) -> dict[str, Any]:
        """What the loop waited for so far and what to change: what ``millhead doctor --json`` prints."""
        for epoch in list(self._watch.recording.live):
            epoch.flush()
        found: dict[str, Any] = json.loads(_core.diagnose(self._watch.recording.path))
        return found

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        """Marks the part of a step that is training; the rest is the loop's own work.

        ::

            for batch in (watched := millhead.watch(loader)):
                with watched.training():
                    train(batch)
        """
        began = time.monotonic_ns()
        try:
            yield
        finally:
            self.add_training(time.monotonic_ns() - began)

    def add_training(self, ns: int) -> None:
        """Say that this much of the step under way was training."""
        watch = self._watch
        watch.train_ns = max(watch.train_ns, 0) + ns

    def close(self) -> None:
        """End the recording: writes the summary. What is iterated later is not recorded."""
        self._watch.recording.close()


def _torch_watching(iterable: Any) -> Any:
    """The module that watches torch's loaders, for one of them."""
    data = sys.modules.get("torch.utils.data")
    if data is None or not isinstance(iterable, data.DataLoader):
        return None
    import millhead.torch  # noqa: F401 - first: it imports torch_loaders itself
    from millhead.watching import torch_loaders

    return torch_loaders


def _own_watching(iterable: Any) -> Any:
    """The module that watches native loaders or prefetchers, for one of them."""
    loader = sys.modules.get("millhead.loader")
    if loader is not None and isinstance(iterable, loader.Loader):
        from millhead.watching import native_loaders

        return native_loaders
    prefetcher = sys.modules.get("millhead.ahead.prefetcher")
    if prefetcher is not None and isinstance(iterable, prefetcher.Prefetcher):
        from millhead.watching import prefetchers

        return prefetchers
    return None


_watches: dict[int, tuple[weakref.ref[Any], dict[str, LoaderWatch]]] = {}


def loader_watch(iterable: Any, recording: Recording | None, name: str | None) -> LoaderWatch:
    """The watch of a loader that was watched into the same recording before, or a new one.

    ``recording`` None: any that is in memory.
    """
    key = "" if recording is None else recording.path
    known = _watches_of(iterable)
    if key in known and known[key].recording.goes_on():
        return known[key]
    watch = known[key] = LoaderWatch(recording or recording_of(None), name)
    return watch


def _watches_of(iterable: Any) -> dict[str, LoaderWatch]:
    """Those of an object by run, to be found again unless it takes no weak reference."""
    number = id(iterable)
    entry = _watches.get(number)
    if entry is not None and entry[0]() is iterable:
        return entry[1]
    try:
        reference = weakref.ref(iterable, lambda _: _watches.pop(number, None))
    except TypeError:
        return {}
    entry = _watches[number] = (reference, {})
    return entry[1]


def watch(
    iterable: Any,
    *,
    run: str | os.PathLike[str] | None = None,
    name: str | None = None,
    hooks: bool | None = None,
) -> Watched[Any]:
    """Iterate over anything, and know what was waited for.

    For a torch DataLoader (torch's own or millhead's) also what its workers did: every batch, every
    slow sample. The batches and all random numbers stay what they are. Call it once or in each epoch:
    epochs of the same loader are counted on.

    Args:
        iterable: a DataLoader, or whatever ``for`` takes.
        run: a directory to keep the events in (docs/events.md); None: memory.
        name: what to call the loader in the events.
        hooks: find out by hooks in torch when each step trains: from the first module's
            forward to the end of the last optimizer's step. None: as ``MILLHEAD_WATCH_HOOKS`` says.

    Raises:
        TypeError: there is nothing to iterate over.

    Example:
        >>> import millhead
        >>> watched = millhead.watch([1, 2, 3])
        >>> sum(watched), watched.stats()["batches"]
        (6, 3)
    """
    if isinstance(iterable, Watched):
        return iterable
    if not hasattr(iterable, "__iter__") and not hasattr(iterable, "__getitem__"):
        raise TypeError(f"watch takes a loader or another iterable, not {iterable!r}")
    recording = None if run is None else recording_of(run)
    if recording is None and (torch_loaders := _torch_watching(iterable)) is not None:
        recording = torch_loaders.recording_of_all()
    elif recording is None and (directory := os.environ.get("MILLHEAD_WATCH")):
        recording = recording_of(directory, fresh=False)  # a program that is watched as a whole
    watch = loader_watch(iterable, recording, name)
    if hooks or (hooks is None and hooks_wanted()):
        from millhead.watching import training_hooks

        watch.hooks = training_hooks.hooks()
    return Watched(iterable, watch)


def hooks_wanted() -> bool:
    """Whether the environment asks for hooks in torch."""
    return os.environ.get("MILLHEAD_WATCH_HOOKS", "0") not in ("", "0") and "torch" in sys.modules
