"""Worker processes: starting them, knowing that they are alive, ending them."""

from __future__ import annotations

import contextlib
import multiprocessing.process
import os
import signal
import threading
import time
import weakref
from collections.abc import Sequence
from multiprocessing import reduction
from typing import Any

from millhead import _core


class Descriptor:
    """A file descriptor that reaches a worker: inherited by a fork, duplicated otherwise."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> Any:
        # Called while a spawned process's arguments are pickled: DupFd then knows that process.
        return _descriptor, (reduction.DupFd(self.fd),)


def _descriptor(duplicate: Any) -> Descriptor:
    return Descriptor(duplicate.detach())


_own_fork = threading.local()


def forking_a_worker() -> bool:
    """Whether the fork under way on this thread is millhead's own."""
    return getattr(_own_fork, "under_way", False)


#: Processes of live workers, to be forgotten in a forked child.
_processes: weakref.WeakSet[Any] = weakref.WeakSet()


def _forget_in_child() -> None:
    """At its exit, multiprocessing ends all daemons it knows of: in a child that the user forked,
    those are the parent's workers. It has no public way to forget them."""
    known = getattr(multiprocessing.process, "_children", None)
    if known is not None:
        known.difference_update(list(_processes))


os.register_at_fork(after_in_child=_forget_in_child)


def start_process(process: Any) -> None:
    """Start a process of multiprocessing's that is millhead's own."""
    _own_fork.under_way = True
    try:
        process.start()
    finally:
        _own_fork.under_way = False
    _processes.add(process)


class Worker:
    """A handle to one worker process, however it was started.

    ``pidfd`` None: it had ended before it could be opened.
    """

    def __init__(self, pid: int, pidfd: int | None) -> None:
        self._pid = pid
        self._pidfd = pidfd

    @property
    def pid(self) -> int | None:
        """Process id; None for a worker that could not be started."""
        return self._pid

    @property
    def name(self) -> str:
        return f"millhead-worker-{self._pid}"

    @property
    def daemon(self) -> bool:
        """Always true, as for torch's workers."""
        return True

    @property
    def sentinel(self) -> int:
        """A descriptor that becomes readable when the process ends."""
        return -1 if self._pidfd is None else self._pidfd

    @property
    def exitcode(self) -> int | None:
        """None while it runs; negative: the signal that killed it."""
        raise NotImplementedError

    def begun(self) -> bool:
        """Whether there is a process, or was: forked workers may come later than their handle."""
        return True

    def refusal(self) -> str | None:
        """Why there is no process and will be none; None: there is, or may be."""
        return None

    def hurry(self) -> None:
        """Somebody waits for this worker: if there is no process yet, there should be."""

    def call_off(self) -> None:
        """If there is no process yet, there need not be."""

    def ended(self) -> bool:
        """Whether the process has ended. One system call; waits for nothing."""
        return self._pidfd is None or _core.process_ended(self._pidfd)

    def is_stopped(self) -> bool:
        """Whether a signal (SIGSTOP, Ctrl-Z) or a debugger has stopped the process."""
        if not self.begun():
            return False
        try:
            with open(f"/proc/{self.pid}/stat", encoding="ascii", errors="replace") as file:
                return file.read().rpartition(")")[2].split()[0] in "Tt"
        except (OSError, IndexError):
            return False

    def is_alive(self) -> bool:
        raise NotImplementedError

    def join(self, timeout: float | None = None) -> None:
        raise NotImplementedError

    def send_signal(self, number: int) -> None:
        """Send the process a signal; nothing once it has ended."""
        raise NotImplementedError

    def terminate(self) -> None:
        """Ask the process to end (SIGTERM)."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process (SIGKILL)."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Give up the descriptors of an ended process; what is known of it stays."""
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


class ChildWorker(Worker):
    """A worker that is this process's own child."""

    def __init__(self, process: Any, started: bool = False) -> None:
        self._process = process
        self._exitcode: int | None = None
        self._closed = False
        self._pidfd = None
        if not started:
            start_process(process)
        self._open()

    def _open(self) -> None:
        process = self._process
        try:
            self._pidfd = _core.process_open(process.pid)
        except FileNotFoundError:
            pass  # ended already; exitcode will tell
        except BaseException:  # nobody would know of it
            process.kill()
            process.join()
            raise
        self._pid = int(process.pid)

    @property
    def name(self) -> str:
        return str(self._process.name)

    @property
    def exitcode(self) -> int | None:
        if not self._closed:
            self._exitcode = self._process.exitcode
        return self._exitcode

    def is_alive(self) -> bool:
        # multiprocessing takes a process that somebody else waited for to be alive for ever.
        return not self._closed and bool(self._process.is_alive()) and not self.ended()

    def join(self, timeout: float | None = None) -> None:
        if not self._closed:
            self._process.join(timeout)

    def send_signal(self, number: int) -> None:
        if self.is_alive():  # not waited for, so the number is its own
            pid = self.pid
            with contextlib.suppress(ProcessLookupError):
                if pid is not None:
                    os.kill(pid, number)

    def close(self) -> None:
        super().close()
        if not self._closed and self._process.exitcode is not None:  # even if its status is lost
            self._exitcode, self._closed = self._process.exitcode, True
            self._process.close()


def end_all(workers: Sequence[Worker], patience: float) -> None:
    """Wait for workers that were told to stop; after ``patience`` seconds, make them."""
    for worker in workers:
        worker.call_off()
    try:
        _join(workers, patience)
        for worker in workers:
            if worker.is_alive():
                worker.terminate()
        _join(workers, 1.0)
    finally:  # also when a second Ctrl-C interrupts the waiting
        for worker in workers:
            if worker.is_alive():
                worker.kill()
        _join(workers, 1.0)
        for worker in workers:
            worker.close()


def _join(workers: Sequence[Worker], patience: float) -> None:
    deadline = time.monotonic() + patience
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))


def describe_exit(exitcode: int | None) -> str:
    """How a process ended, in words."""
    if exitcode is None:
        return "ended, nobody knows how: what started it is gone, or something else waited for it"
    if exitcode >= 0:
        return f"exited with status {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = "a signal"
    return f"killed by {name} (signal {-exitcode})"


def hint_for_exit(exitcode: int | None, imports_main: bool = False) -> str:
    """What to look at when a worker ended this way; ``imports_main``: while it imported the program."""
    if imports_main and exitcode is not None and exitcode >= 0:
        return (
            "such a worker imports the program first: put what the program does behind "
            'if __name__ == "__main__":, and see what the worker printed'
        )
    if exitcode == -signal.SIGKILL:
        return (
            "usually the out-of-memory killer: look at dmesg and the memory limit of the "
            "container, use fewer workers, a smaller prefetch_factor or a smaller batch"
        )
    if exitcode in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, -signal.SIGILL):
        return (
            "a crash in native code called by the dataset: load this sample with num_workers=0 "
            "under faulthandler to see where"
        )
    if exitcode is None:
        return (
            "look at dmesg, the memory limit of the container, and for what ignores or handles "
            "SIGCHLD in this program"
        )
    if exitcode >= 0:
        return (
            "look for the worker's own last words on stderr, and for sys.exit or os._exit in the "
            "dataset"
        )
    return "find out who sent the signal"
