"""Watching ``millhead.prefetch``: the loop's waits, and what the thread or process does for each item."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from millhead.watching.fetch_times import FetchPlan
from millhead.watching.loops import Epoch, LoaderWatch, WatchedIterator, loader_watch
from millhead.watching.recording import Recording, recording_of

if TYPE_CHECKING:
    from millhead.ahead.prefetcher import Prefetcher


def iterate(prefetcher: Prefetcher[Any], watch: LoaderWatch) -> Iterator[Any]:
    """The next epoch, watched. Items are joined with their making as batches of a worker 0."""
    watch.begin()
    epoch = Epoch(watch)
    iterator = prefetcher.begin(FetchPlan(watch.log.path, watch.number, epoch.number))
    watch.describe(kind="prefetch", workers=1, prefetch=prefetcher.n, in_order=True)
    epoch.ready()
    return WatchedIterator(iterator, epoch, worker=0)


def watch_of(prefetcher: Prefetcher[Any]) -> LoaderWatch | None:
    """The watch of a prefetcher in a process where all loaders are watched; None: they are not."""
    torch_loaders = sys.modules.get("millhead.watching.torch_loaders")
    recording: Recording | None = None
    if torch_loaders is not None:
        recording = torch_loaders.recording_of_all()
    elif directory := os.environ.get("MILLHEAD_WATCH"):  # a program without torch
        recording = recording_of(directory, fresh=False)
    return None if recording is None else loader_watch(prefetcher, recording, prefetcher.name)
