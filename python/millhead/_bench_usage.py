"""What a run's processes took, from the samples among its events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def usage_of(events: Path) -> dict[str, float | None]:
    """The most memory that its processes shared out (PSS), how much of that was the workers', and the
    machine's rates meanwhile; null where a run was too short to be sampled."""
    most, now, main, workers = 0, 0, 0, 0
    system: list[dict[str, Any]] = []
    for line in events.read_text().splitlines():
        if '"usage"' not in line and '"system"' not in line:
            continue
        event = json.loads(line)
        if event["event"] == "system":
            system.append(event)
        elif event["event"] == "usage":
            # The main process comes first in every look at all of them.
            size = event.get("pss", 0)
            now, main = (size, size) if event["role"] == "main" else (now + size, main)
            if now > most:
                most, workers = now, now - main
    return {
        "pss_mb": most / 1e6 if most else None,
        "workers_pss_mb": workers / 1e6 if most else None,
        "disk_mb_per_s": _rate(system, "disk_read"),
        "net_mb_per_s": _rate(system, "net_read"),
    }


def _rate(system: list[dict[str, Any]], key: str) -> float | None:
    known = [(event["t"], event[key]) for event in system if key in event]
    if len(known) < 2 or known[-1][0] == known[0][0]:
        return None
    rate: float = (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])
    return rate * 1e3  # bytes in a nanosecond are GB/s
