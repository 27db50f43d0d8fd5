"""What a native loader's ``stats()`` tells: the core's numbers and those of the Python side."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millhead import _core

if TYPE_CHECKING:
    from millhead.loader import Loader


class LoaderCounts:
    """What ``stats()`` tells beside the core's own numbers."""

    def __init__(self, setup_ns: int) -> None:
        self.setup_ns = setup_ns
        self.made = time.monotonic_ns()
        self.meter = _core.Meter()
        self.clear()
        self.base: dict[str, int] = {}
        #: The core's numbers when the loader was closed.
        self.last: dict[str, int] = {}

    def clear(self) -> None:
        """Count from nothing."""
        self.meter.clear()
        self.first_batch_ns = 0
        self.raised = 0
        self.pin_ns = 0
        self.pin_count = 0
        self.map_ns = 0
        self.map_count = 0

    def delivered(self) -> None:
        """A batch has come."""
        self.meter.end_wait()
        if not self.first_batch_ns:
            self.first_batch_ns = time.monotonic_ns() - self.made

    def pinned(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The batch in pinned memory; the copy is timed."""
        began = time.monotonic_ns()
        # a copy: torch gives its memory to others only after copies from it ended
        pinned = {name: value.pin_memory() for name, value in batch.items()}
        self.pin_ns += time.monotonic_ns() - began
        self.pin_count += 1
        return pinned

    def mapped(self, fn: Callable[[Any], Any], batch: Any) -> Any:
        """``fn(batch)``, timed."""
        began = time.monotonic_ns()
        try:
            return fn(batch)
        finally:
            self.map_ns += time.monotonic_ns() - began
            self.map_count += 1

    def now(self, loader: Loader) -> dict[str, int]:
        """The core's numbers, as they were if it is closed."""
        try:
            return loader._native.stats()
        except _core.Error:
            return self.last

    def report(self, loader: Loader, reset: bool) -> dict[str, Any]:
        """The dictionary ``loader.stats()`` returns."""
        now = self.now(loader)
        since = {name: value - self.base.get(name, 0) for name, value in now.items()}
        batches = since.get("batches", 0)
        found = {
            "version": 1,
            "path": "native",
            "paths": {"native": batches},
            "start": "none",
            "workers": 0,
            "threads": now.get("threads", 0),
            "rank": loader.rank,
            "world": loader.world,
            "epoch": loader.state_dict()["epoch"] if now is not self.last else loader._next[0],
            "batches": batches,
            "samples": since.get("samples", 0),
            "setup_ms": self.setup_ns / 1e6,
            "first_batch_ms": self.first_batch_ns / 1e6,
            "wait_ms": self.meter.wait_ms(),
            "batches_copied_out": since.get("batches_copied_out", 0),
            "errors": {
                "raised": self.raised,
                "skipped": since.get("skipped", 0),
                "replaced": since.get("replaced", 0),
            },
            "stages": self._stages(since),
            "units": _units(now, since),
            "cache": _cache(since),
            "requests": _requests(now, since),
            "cpus": _core.cpus(),
        }
        if reset:
            self.clear()
            self.base = {name: value for name, value in now.items() if name not in _LEVELS}
        return found

    def _stages(self, since: dict[str, int]) -> dict[str, dict[str, float]]:
        reads = since.get("reads_now", 0) + since.get("reads_waited", 0)
        return {
            "read": _stage(reads, since.get("read_ns", 0), since.get("bytes_read", 0)),
            "decode": _stage(since.get("units_decoded", 0), since.get("decode_ns", 0), 0),
            "place": _stage(since.get("placed", 0), since.get("place_ns", 0), 0),
            "pin": _stage(self.pin_count, self.pin_ns, 0),
            "map": _stage(self.map_count, self.map_ns, 0),
        }


#: Numbers of the core that are not counts.
_LEVELS = frozenset(["threads", "in_flight", "units_bytes_peak", "slots_peak", "requests_peak"])


def _cache(since: dict[str, int]) -> dict[str, int]:
    names = {
        "hits": "cache_hits",
        "misses": "cache_misses",
        "bytes": "cache_bytes",
        "written": "cache_written_bytes",
        "evicted": "cache_evicted_bytes",
        "corrupt": "cache_corrupt",
    }
    return {name: since.get(count, 0) for name, count in names.items()}


def _requests(now: dict[str, int], since: dict[str, int]) -> dict[str, int]:
    return {
        "count": since.get("requests", 0),
        "retried": since.get("requests_retried", 0),
        "hedged": since.get("requests_hedged", 0),
        "in_flight_peak": now.get("requests_peak", 0),
    }


def _units(now: dict[str, int], since: dict[str, int]) -> dict[str, int]:
    counts = {name: since.get(f"units_{name}", 0) for name in ("fetched", "decoded", "refetched")}
    return {**counts, "resident_peak": now.get("units_bytes_peak", 0)}


def _stage(count: int, ns: int, size: int) -> dict[str, float]:
    mean_us = ns / 1e3 / count if count else 0.0
    return {"count": count, "mean_us": mean_us, "total_s": ns / 1e9, "bytes": size}
