"""A watched process looks at itself and its workers, about once a second, between two steps.

For loops that nobody samples from outside: ``usage`` and ``system`` of docs/events.md.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from millhead import _core
from millhead._events import line

#: How often to look at first, and how long walking memory may hold up the loop.
PERIOD_NS, LONGEST_WALK_S = 1_000_000_000, 0.02
#: After so many looks most of the time that looking may take: a long run needs no more of them.
FIRST_LOOKS, LOOK_BUDGET = 10, 0.001
#: Most of the time that walking memory may take: the kernel looks at every page to tell a share.
MEMORY_BUDGET = 0.0005


class SelfUsage:
    """What to write at the end of a step."""

    def __init__(self) -> None:
        self._next = self._looks = 0
        self._next_walk = 0.0
        #: By process: the share of memory and the resident memory at the last walk.
        self._memory: dict[tuple[int, int], tuple[int, int]] = {}
        self._delays: dict[tuple[int, int], int] = {}
        there = all(hasattr(_core, name) for name in ("usage", "system", "children"))
        self._on = there and "MILLHEAD_SAMPLED" not in os.environ

    def lines(self) -> str:
        """Events, where they are due; mostly none."""
        if not self._on or (now := time.monotonic_ns()) < self._next:
            return ""
        walk = now >= self._next_walk
        began = time.monotonic()
        core: Any = _core
        text = ""
        for pid in (os.getpid(), *core.children(os.getpid())):
            with contextlib.suppress(OSError):  # it has just ended
                role = "main" if pid == os.getpid() else "worker"
                text += line("usage", role=role, **self._usage(core, pid, walk))
        spent = time.monotonic() - began
        if walk:
            too_long = spent > LONGEST_WALK_S
            self._next_walk = float("inf") if too_long else now + spent * 1e9 / MEMORY_BUDGET
        with contextlib.suppress(OSError):
            text += line("system", **core.system())
        self._looks += 1
        spent_ns = 0 if self._looks < FIRST_LOOKS else (time.monotonic() - began) * 1e9
        self._next = now + max(PERIOD_NS, int(spent_ns / LOOK_BUDGET))
        return text

    def _usage(self, core: Any, pid: int, walk: bool) -> dict[str, Any]:
        event: dict[str, Any] = core.usage(pid, walk)
        process = (pid, event.pop("started", 0))
        if "pss" in event:
            self._memory[process] = event["pss"], event["rss"]
        elif process in self._memory:
            pss, rss = self._memory[process]
            event["pss"] = max(0, pss + event["rss"] - rss)
        if "delay" in event:  # the kernel forgets what threads that ended had waited
            event["delay"] = max(event["delay"], self._delays.get(process, 0))
            self._delays[process] = event["delay"]
        return event
