"""Samples the processes of a run from outside, about once a second, into the run's events files.

A run has one events file per rank, whose header names the rank's process. That process and all it
started are sampled into that file, with the machine and its GPUs (``usage``, ``system`` and ``gpu``
in docs/events.md). Nothing is written before the program has written its header.

What sampling costs is measured and kept under 1 % of a CPU: where a look at all processes takes long,
the next one comes later. The kernel walks every page of a process to tell its share of memory (PSS),
so that is budgeted apart and asked for less often the more memory there is.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from millhead import _core

#: Of one CPU: for everything, and of it for walking memory.
BUDGET = 0.01
MEMORY_BUDGET = 0.005
#: How often to look at what workers wait for, and most of a CPU for it.
LOOK_S, LOOK_BUDGET = 0.1, 0.002
#: What a program's header and the first events after it fit into many times.
_HEADER_BYTES = 65536

Event = dict[str, Any]


class Sampler:
    """Samples what runs in ``directory`` from ``start()`` to ``stop()``, in a thread of its own.

    ::

        with Sampler(run_directory):
            subprocess.run(command)
    """

    def __init__(self, directory: str | os.PathLike[str], interval: float = 1.0) -> None:
        #: Why it ended early; None: it did not.
        self.problem: str | None = None
        self._directory = Path(directory)
        self._interval = interval
        self._trees: dict[Path, _Tree | None] = {}  # None: another machine's, or not ours to read
        self._memory = _Memory()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="millhead-sampler", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after a last sample of what still runs."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self) -> None:
        while True:
            began = time.thread_time()
            try:
                self.sample()
            except OSError as error:  # the disk is full, or the directory gone
                self.problem = str(error)
                return
            spent = time.thread_time() - began
            if self._stopping.is_set():
                return
            # the cost of walking memory has a budget of its own
            rest = max(0.0, spent - self._memory.last_s) / (BUDGET - MEMORY_BUDGET)
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
        self._memory.begin()
        for tree in trees:
            tree.sample()
        self._memory.end()
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
                    ours = header.get("boot") in (None, "", _boot_id())
                    self._trees[path] = _Tree(path, header["pid"], self._memory) if ours else None
        return [tree for tree in self._trees.values() if tree is not None and tree.alive]


class _Memory:
    """Shares of memory, walked as seldom as they are dear.

    After a walk through all processes that took c seconds there is none for c / MEMORY_BUDGET. What
    a process gained in between is taken from what it has resident.
    """

    def __init__(self) -> None:
        self.last_s = 0.0  # of the walks of the last sample
        self._next = 0.0
        self._walk = False
        self._known: dict[tuple[int, int], tuple[int, int]] = {}  # PSS and RSS at the last walk

    def begin(self) -> None:
        """Before a sample: whether this one walks."""
        self.last_s = 0.0
        self._walk = time.monotonic() >= self._next

    def usage(self, pid: int) -> Event:
        """What a process uses."""
        event = _core.usage(pid, False)
        process = (pid, event["started"])
        if self._walk or process not in self._known:
            began = time.thread_time()
            event = _core.usage(pid, True)
            self.last_s += time.thread_time() - began
            if "pss" in event:
                self._known[process] = (event["pss"], event["rss"])
        else:
            pss, rss = self._known[process]
            event["pss"] = max(0, pss + event["rss"] - rss)
        return event

    def end(self) -> None:
        """After a sample."""
        if self._walk:
            self._next = time.monotonic() + self.last_s / MEMORY_BUDGET


class _Tree:
    """A rank's process and what it started, and the events file they go into."""

    def __init__(self, path: Path, pid: int, memory: _Memory) -> None:
        self.alive = True
        self._pid = pid
        self._memory = memory
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._delays: dict[tuple[int, int], int] = {}
        #: Workers, and what looks since the last sample found: 1 where it waited for a lock.
        self._locked: dict[int, list[bool]] = {}

    def __del__(self) -> None:
        os.close(self._file)

    def sample(self) -> None:
        events = []
        try:
            events.append({"role": "main", **self._memory.usage(self._pid)})
        except FileNotFoundError:
            self.alive = False
            return
        looks, self._locked = self._locked, {}
        for pid in _core.children(self._pid):
            try:
                event = {"role": "worker", **self._memory.usage(pid)}
            except FileNotFoundError:
                continue  # it has just ended
            locked = [*looks.get(pid, ()), "lock" in event]
            event |= {"lock": round(sum(locked) / len(locked), 3)} if any(locked) else {}
            events.append(event)
            self._locked[pid] = []
        for event in events:
            self.write("usage", self._never_less(event))

    def look(self) -> None:
        """What workers wait for at this moment."""
        for pid, locked in self._locked.items():
            locked.append(_core.locked(pid))

    def _never_less(self, event: Event) -> Event:
        """The kernel forgets what threads that ended had waited; a counter does not go back."""
        process = (event["pid"], event.pop("started"))
        if "delay" in event:
            most = max(event["delay"], self._delays.get(process, 0))
            event["delay"] = self._delays[process] = most
        return event

    def write(self, name: str, values: Event) -> None:
        line = json.dumps({"event": name, "t": time.monotonic_ns(), **values})
        os.write(self._file, line.encode() + b"\n")  # one write: lines never mix


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


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
