"""Watching the native loader: its waits like any loop's, and what its threads did."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from millhead import _core
from millhead.watching.loops import Epoch, LoaderWatch, WatchedIterator, loader_watch

if TYPE_CHECKING:
    from millhead.loader import Loader

#: Time of the tasks: where there are no threads, the CPU time.
_TASKS = ("read_ns", "decode_ns", "place_ns")


class Stages:
    """What the threads did since it was last asked."""

    def __init__(self, loader: Loader, epoch: Epoch) -> None:
        self._loader = loader
        self._epoch = epoch
        self._before = self._counts()
        with contextlib.suppress(_core.Error):  # a closed loader gives no batch either
            loader._native.watch()

    def _counts(self) -> dict[str, int]:
        counts = self._loader._counts
        own = {"map_ns": counts.map_ns, "pin_ns": counts.pin_ns}
        return {**counts.now(self._loader), **own}

    def lines(self) -> bytes:
        """Events read, decode, place and storage (docs/events.md)."""
        watch = self._epoch.watch
        try:
            lines, lost = self._loader._native.events(watch.number, self._epoch.number)
        except _core.Error:
            return b""
        watch.log.lost += max(0, lost - watch.lost_before)
        watch.lost_before = lost
        return lines

    def sums(self) -> dict[str, int]:
        """The keys of a ``stages`` event."""
        now = self._counts()
        since = {name: number - self._before.get(name, 0) for name, number in now.items()}
        self._before = now
        tasks = sum(since.get(name, 0) for name in _TASKS)
        return {
            "threads": now.get("threads", 0),
            "in_flight": now.get("in_flight", 0),
            "samples": since.get("placed", 0) or since.get("samples", 0),
            "cpu": since.get("cpu_ns", 0) if now.get("threads") else tasks,
            "bytes": since.get("bytes_read", 0),
            "reads": since.get("reads_waited", 0),
            "latency": since.get("waited_ns", 0),
            "wait_read": since.get("wait_read_ns", 0),
            "wait_decode": since.get("wait_decode_ns", 0),
            "wait_place": since.get("wait_place_ns", 0),
            "pin": since.get("pin_ns", 0),
            "map": since.get("map_ns", 0),
            "requests": since.get("requests", 0),
            "cache_hits": since.get("cache_hits", 0),
            "cache_misses": since.get("cache_misses", 0),
            "cache_bytes": since.get("cache_bytes", 0),
            "cache_evicted": since.get("cache_evicted_bytes", 0),
        }


def iterate(loader: Loader, watch: LoaderWatch) -> Iterator[Any]:
    """The loader's next epoch, watched."""
    watch.begin()
    epoch = Epoch(watch)
    epoch.stages = Stages(loader, epoch)
    iterator = loader._begin()
    numbers = loader._counts.now(loader)
    watch.describe(
        kind="native",
        workers=numbers.get("threads", 0),
        prefetch=loader.prefetch,
        batch_size=loader.batch_size,
    )
    epoch.ready()
    return WatchedIterator(iterator, epoch)


def watch_of(loader: Loader) -> LoaderWatch | None:
    """The watch of a loader in a process where all loaders are watched; None: they are not."""
    torch_loaders = sys.modules.get("millhead.watching.torch_loaders")
    if torch_loaders is None:
        return None
    recording = torch_loaders.recording_of_all()
    return None if recording is None else loader_watch(loader, recording, None)
