"""A loop that no longer moves: noticed, and every process's Python stack shown.

Stacks are dumped by faulthandler from inside a signal handler, so a worker that never gives up its
interpreter's lock is dumped too. (In this process the watch is a thread, and needs the lock to begin.)
Workers forked after the watch began have the handler, and the file it writes to, from their parent.
Others are not signalled: without a handler the signal would end them.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from millhead._stack_memory import StackMemory

#: Beside SIGRTMIN+9 and +10, on which millhead's own workers show their stacks.
SIGNAL = signal.SIGRTMIN + 11
#: Name of the memory that stacks are written to.
STACKS = "millhead-hang"


class HangWatch:
    """A thread that asks from time to time how long nothing has moved."""

    def __init__(
        self,
        seconds: float,
        still: Callable[[], tuple[float, str]],
        workers: Callable[[], Mapping[int, int]],
        error_file: str | None,
        rank: int,
    ) -> None:
        """
        Args:
            seconds: of standing still after which stacks are dumped, once until it moves again.
            still: how many seconds nothing moved, and where.
            workers: numbers of the loader's workers by pid.
        """
        self._seconds = seconds
        self._still = still
        self._workers = workers
        self._error_file = error_file
        self._rank = rank
        self._end = threading.Event()
        self._stacks = StackMemory(STACKS)
        self._registered = signal.getsignal(SIGNAL) is signal.SIG_DFL
        if self._registered:  # a handler of the user's stays
            faulthandler.register(SIGNAL, file=self._stacks.fileno())
        self._thread = threading.Thread(target=self._watch, name="millhead-hang", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """No more watching."""
        self._end.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
        if self._registered:
            faulthandler.unregister(SIGNAL)
        self._stacks.close()

    def _watch(self) -> None:
        dumped = False
        while not self._end.wait(min(self._seconds / 4, 1.0)):
            seconds, where = self._still()
            if seconds < self._seconds:
                dumped = False
            elif not dumped:
                dumped = True
                self._dump(seconds, where)

    def _dump(self, seconds: float, where: str) -> None:
        from millhead import _core  # a timer that watches for no hang needs none

        numbers = self._workers()
        stacks = [
            {"worker": numbers.get(pid), "pid": pid, "traceback": self._stack_of(pid)}
            for pid in _core.children(os.getpid())
        ]
        main = self._stack_of(os.getpid())
        what = f"nothing moved for {seconds:.0f} s ({where}, rank {self._rank})"
        print(f"millhead: {what}: the stacks show where\n{main}", file=sys.stderr)
        for stack in stacks:
            number = stack["worker"]
            name = f"worker {number}" if number is not None else "child"
            print(f"millhead: {name}, pid {stack['pid']}:\n{stack['traceback']}", file=sys.stderr)
        sys.stderr.flush()
        if self._error_file:
            write_error(self._error_file, "Hang", what, main, workers=stacks)

    def _stack_of(self, pid: int) -> str:
        """The Python stacks of a process's threads, or what the kernel says it does."""
        if not self._registered or not holds(pid, STACKS) or not catches(pid, SIGNAL):
            return state(pid)
        return self._stacks.after(lambda: os.kill(pid, SIGNAL)) or state(pid)


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


def holds(pid: int, memory: str) -> bool:
    """Whether a process has memory of that name open."""
    try:
        return any(
            os.readlink(entry).startswith(f"/memfd:{memory} ")
            for entry in Path(f"/proc/{pid}/fd").iterdir()
        )
    except OSError:  # it has ended, or is another user's
        return False


def state(pid: int) -> str:
    """What the kernel says about a process that cannot be asked for its Python stack."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        wait = Path(f"/proc/{pid}/wchan").read_text() or "0"
    except OSError:
        return "it has ended"
    return f"no Python stack; state {letter}, in the kernel at {wait}"


def write_error(path: str, kind: str, message: str, stack: str, **more: Any) -> None:
    """An error file as torch's elastic agent reads it, with what else is known."""
    extra = {"py_callstack": stack, "timestamp": str(int(time.time()))}
    error = {
        "message": {"message": f"{kind}: {message}", "extraInfo": extra},
        "type": kind,
        "traceback": stack,
        "worker": None,
        "pid": os.getpid(),
        **more,
    }
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(json.dumps(error) + "\n")
    except OSError as reason:  # the error itself matters more
        print(
            f"millhead: no error file ({path}): {reason.strerror or reason}: choose another place",
            file=sys.stderr,
        )


def record(path: str, error: BaseException) -> None:
    """Write an exception that leaves a phase into an error file."""
    stack = "".join(traceback.format_exception(error))
    # what torch's workers, and millhead's, say in the exceptions that they send
    worker = re.search(r"in DataLoader worker process (\d+)", str(error))
    number = int(worker[1]) if worker else None
    write_error(path, type(error).__name__, str(error), stack, worker=number)
