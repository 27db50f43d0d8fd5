"""What the processes of a run use, about once a second: ``usage``, ``system`` and ``gpu`` events.

:class:`Sampler` looks from outside. A run has one events file per rank, whose header names the rank's
process; that process and all it started are sampled into that file (docs/events.md). Nothing is
written before the program has written its header. :class:`SelfSampler` is for loops that nobody samples
from outside: a watched process looks at itself and its workers, between two steps.

What sampling costs is measured and kept under 1 % of a CPU: where a look at all processes takes long,
the next one comes later. The kernel walks every page of a process to tell its share of memory (PSS),
so that is budgeted apart and asked for less often the more memory there is.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Any, Self

from millhead import _core
from millhead.watching import event_files

#: Of one CPU: for everything, and of it for walking memory.
BUDGET = 0.01
#: Looks come sooner at first, so that a run of a few seconds has some: by so much later each time.
FIRST_INTERVAL_S, LATER_BY = 0.25, 1.2
MEMORY_BUDGET = 0.005
#: How often to look at what workers wait for, and most of a CPU for it.
LOOK_S, LOOK_BUDGET = 0.1, 0.002
#: What a program's header and the first events after it fit into many times.
_HEADER_BYTES = 65536

#: How often a loop looks at itself at first, and how long walking memory may hold it up.
SELF_PERIOD_NS, SELF_LONGEST_WALK_S = 1_000_000_000, 0.02
#: After these first looks, most of the time that looking may take.
SELF_FIRST_LOOKS, SELF_BUDGET = 10, 0.001
#: Most of the time that walking memory may take.
SELF_MEMORY_BUDGET = 0.0005

Event = dict[str, Any]


class ProcessUsage:
    """What each process uses, and of it what the kernel forgets or is not asked every time."""

    def __init__(self) -> None:
        #: By pid and start time: what the last walk through its memory saw.
        self._walked: dict[tuple[int, int], Event] = {}
        self._delays: dict[tuple[int, int], int] = {}
        #: CPU seconds of walks so far.
        self.walks_s = 0.0

    def of(self, pid: int, walk: bool, walk_new: bool = False) -> Event:
        """Raises OSError where the process has ended. ``walk``: ask for its share of memory;
        ``walk_new``: where it is not known yet. Else what it gained is taken from its RSS."""
        began = time.thread_time()
        event = _core.usage(pid, walk)
        process = (pid, event.pop("started", 0))
        if walk_new and not walk and process not in self._walked:
            walk, began = True, time.thread_time()
            event = _core.usage(pid, True)
            event.pop("started", None)
        if walk:
            self.walks_s += time.thread_time() - began
        if "pss" in event:
            self._walked[process] = event
        elif process in self._walked:
            event |= _shares_since(self._walked[process], event)
        if "delay" in event:  # the kernel forgets what threads that ended had waited
            event["delay"] = max(event["delay"], self._delays.get(process, 0))
            self._delays[process] = event["delay"]
        return event


def _shares_since(walked: Event, event: Event) -> Event:
    """What is the process's own by now: all that it gained since the walk."""
    return {
        share: max(0, walked[share] + event[whole] - walked[whole])
        for share, whole in (("pss", "rss"), ("pss_file", "rss_file"))
        if share in walked and whole in walked and whole in event
    }


class Sampler:
    """``with Sampler(directory):`` samples what runs there, in a thread of its own."""

    def __init__(self, directory: str | os.PathLike[str], interval: float = 1.0) -> None:
        # Imported here, where it is no cost of sampling: that would put off the next look.
        from millhead._environment import boot_id

        self._boot = boot_id()
        #: Why it ended early; None: it did not.
        self.problem: str | None = None
        self._directory = Path(directory)
        self._longest = interval
        self._interval = min(interval, FIRST_INTERVAL_S)
        self._trees: dict[Path, _Tree | None] = {}  # None: another machine's, or not ours to read
        self._usage = ProcessUsage()
        self._next_walk = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="millhead-sampler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End after a last sample of what still runs."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            began, walks_s = time.thread_time(), self._usage.walks_s
            try:
                self.sample()
            except OSError as error:  # the disk is full, or the directory gone
                self.problem = str(error)
                return
            spent = time.thread_time() - began
            if self._stopping.is_set():
                return
            if any(tree is not None for tree in self._trees.values()):
                self._interval = min(self._longest, self._interval * LATER_BY)
            # the cost of walking memory has a budget of its own
            walks_s = self._usage.walks_s - walks_s
            rest = max(0.0, spent - walks_s) / (BUDGET - MEMORY_BUDGET)
            self._look_until(time.monotonic() + max(self._interval, rest))

    def _look_until(self, then: float) -> None:
        """Between two samples: what workers wait for changes every few milliseconds."""
        period = LOOK_S
        while (left := then - time.monotonic()) > 0:
            if self._stopping.wait(min(left, period)):
                return
            began = time.thread_time()
            for tree in self._trees.values():
                if tree is not None and tree.alive:
                    tree.look()
            period = max(LOOK_S, (time.thread_time() - began) / LOOK_BUDGET)

    def sample(self) -> None:
        """One look at everything."""
        trees = self._find_trees()
        if not trees:
            return
        walk, walks_s = time.monotonic() >= self._next_walk, self._usage.walks_s
        for tree in trees:
            tree.sample(walk)
        if walk:  # none for as long as this one takes up the budget
            walks_s = self._usage.walks_s - walks_s
            self._next_walk = time.monotonic() + walks_s / MEMORY_BUDGET
        machine, gpus = _core.system(), _core.gpus()
        for tree in trees:
            tree.write("system", machine)
            for gpu in gpus:
                tree.write("gpu", gpu)

    def _find_trees(self) -> list[_Tree]:
        for path in self._directory.glob("events*.jsonl"):
            if path not in self._trees:
                header = _header_of(path)
                if header is not None:  # else it is not written yet
                    ours = header.get("boot") in (None, "", self._boot)
                    self._trees[path] = _Tree(path, header["pid"], self._usage) if ours else None
        return [tree for tree in self._trees.values() if tree is not None and tree.alive]


class _Tree:
    """A rank's process and what it started, and the events file they go into."""

    def __init__(self, path: Path, pid: int, usage: ProcessUsage) -> None:
        self.alive = True
        self._pid = pid
        self._usage = usage
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        #: Workers, and what looks since the last sample found: 1 where it waited for a lock.
        self._locked: dict[int, list[bool]] = {}

    def __del__(self) -> None:
        os.close(self._file)

    def sample(self, walk: bool) -> None:
        """Write what each process uses."""
        try:
            events = [{"role": "main", **self._usage.of(self._pid, walk, walk_new=True)}]
        except FileNotFoundError:
            self.alive = False
            return
        looks, self._locked = self._locked, {}
        for pid in _core.children(self._pid):
            try:
                event = {"role": "worker", **self._usage.of(pid, walk, walk_new=True)}
            except FileNotFoundError:
                continue  # it has just ended
            locked = [*looks.get(pid, ()), "lock" in event]
            event |= {"lock": round(sum(locked) / len(locked), 3)} if any(locked) else {}
            events.append(event)
            self._locked[pid] = []
        for event in events:
            self.write("usage", event)

    def look(self) -> None:
        """See what workers wait for now."""
        for pid, locked in self._locked.items():
            locked.append(_core.locked(pid))

    def write(self, name: str, values: Event) -> None:
        """One write: lines never mix."""
        os.write(self._file, event_files.line(name, **values).encode())


def _header_of(path: Path) -> Event | None:
    """The first line of an events file, once it is whole."""
    with path.open("rb") as file:
        line, newline, _ = file.read(_HEADER_BYTES).partition(b"\n")
    if not newline:
        return None
    try:
        header = json.loads(line)
    except ValueError:
        return None
    is_header = isinstance(header, dict) and isinstance(header.get("pid"), int)
    return header if is_header else None


class SelfSampler:
    """What a watched process writes about itself and its workers at the end of a step."""

    def __init__(self) -> None:
        self._next = self._looks = 0
        self._next_walk = 0.0
        self._usage = ProcessUsage()
        self._on = "MILLHEAD_SAMPLED" not in os.environ

    def lines(self) -> str:
        """Events, where they are due; mostly none."""
        if not self._on or (now := time.monotonic_ns()) < self._next:
            return ""
        walk = now >= self._next_walk
        began = time.monotonic()
        text = ""
        for pid in (os.getpid(), *_core.children(os.getpid())):
            with contextlib.suppress(OSError):  # it has just ended
                role = "main" if pid == os.getpid() else "worker"
                text += event_files.line("usage", role=role, **self._usage.of(pid, walk))
        spent = time.monotonic() - began
        if walk:
            too_long = spent > SELF_LONGEST_WALK_S
            self._next_walk = float("inf") if too_long else now + spent * 1e9 / SELF_MEMORY_BUDGET
        with contextlib.suppress(OSError):
            text += event_files.line("system", **_core.system())
        self._looks += 1
        spent_ns = 0 if self._looks < SELF_FIRST_LOOKS else (time.monotonic() - began) * 1e9
        self._next = now + max(SELF_PERIOD_NS, int(spent_ns / SELF_BUDGET))
        return text
