"""Watching the native loader: its waits like any loop's, and what its threads did."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from millhead.watching.loops import Epoch, LoaderWatch, WatchedIterator, loader_watch

if TYPE_CHECKING:
    from millhead.loader import Loader

#: Of the core's numbers: CPU time of the threads.
_CPU = ("read_ns", "decode_ns", "place_ns")


class Stages:
    """What the threads did since it was last asked."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._before = loader._core_numbers()

    def take(self) -> dict[str, int]:
        """The keys of a ``stages`` event (docs/events.md)."""
        now = self._loader._core_numbers()
        since = {name: number - self._before.get(name, 0) for name, number in now.items()}
        self._before = now
        return {
            "threads": now.get("threads", 0),
            "in_flight": now.get("in_flight", 0),
            "samples": since.get("placed", 0) or since.get("samples", 0),
            "cpu": sum(since.get(name, 0) for name in _CPU),
            "reads": since.get("reads_waited", 0),
            "latency": since.get("waited_ns", 0),
        }


def iterate(loader: Loader, watch: LoaderWatch) -> Iterator[Any]:
    """The loader's next epoch, watched."""
    watch.begin()
    epoch = Epoch(watch)
    epoch.stages = Stages(loader).take
    iterator = loader._begin()
    numbers = loader._core_numbers()
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
