"""Forked workers: the trainer forks two, and each but the first forks the next.

A fork copies the page tables of the whole trainer, which takes milliseconds. ``iter()`` costs two,
however many workers there are: the others start while the trainer goes on, or not at all when they
are no longer wanted. Each is the trainer's own child and sees it as it was at ``iter()``
(``src/sys/fork_chain.h``).
"""

from __future__ import annotations

import errno
import os
import sys
import time
import types
from multiprocessing import connection, popen_fork, util
from multiprocessing import process as mp_process
from typing import Any, NoReturn

from millhead import _core
from millhead.torch.workers.batch_worker import Job, WorkerPlan, run
from millhead.torch.workers.processes import ChildWorker, Worker

#: How often to look whether a worker has been forked, in seconds.
_LOOK_S = 0.0005
#: How a kernel or a sandbox says that it knows no CLONE_PARENT.
_UNKNOWN = (errno.EINVAL, errno.ENOSYS, errno.EPERM)

#: The exit status, for multiprocessing, of a process whose own went to somebody else.
UNKNOWN_STATUS = 255

#: Whether workers that another forked are this process's own; None: not tried yet.
_works: bool | None = None


def can_chain() -> bool:
    """Whether workers may be forked this way: what replaces ``os.fork``, as debuggers that follow
    forks do, would not see them."""
    return _works is not False and isinstance(os.fork, types.BuiltinFunctionType)


def fork_workers(context: Any, job: Job, plans: list[WorkerPlan]) -> list[Worker]:
    """Fork a worker for each plan. Where it turns out that this cannot be done, fewer: the others
    are to be started in another way."""
    global _works
    chain = _core.Chain(len(plans))
    processes = [context.Process(target=run, args=(plan, job), daemon=True) for plan in plans]

    def fork() -> None:
        util._flush_std_streams()  # type: ignore[attr-defined]
        sys.audit("os.fork")
        number = chain.fork()
        if number >= 0:
            _run_worker(processes[number], plans[number])

    workers: list[ChainWorker] = []
    popen = ChainPopen(chain, 0, None)
    try:
        workers.append(ChainWorker(processes[0], popen, fork))
    except _core.Error:
        _works = False
        return []
    for number in range(1, len(plans)):
        popen = ChainPopen(chain, number, popen)
        workers.append(ChainWorker(processes[number], popen, None))
    return list(_that_will_be_forked(workers))


def _run_worker(process: Any, plan: WorkerPlan) -> NoReturn:
    """A worker's life, in its process: what multiprocessing does after a fork."""
    code = 1
    try:
        code = process._bootstrap(parent_sentinel=plan.trainer.fd)
    finally:
        os._exit(code)


def _that_will_be_forked(workers: list[ChainWorker]) -> list[ChainWorker]:
    """All, or two where chains do not work. Waits, the first time, until that is known."""
    global _works
    if _works is None and len(workers) > 2:
        _works = workers[2].shows_that_chains_work()
    if _works is not False:
        return workers
    for worker in workers[2:]:
        worker.forget()
    return workers[:2]


class ChainPopen(popen_fork.Popen):
    """What multiprocessing knows of a process of its own, here from before it is forked."""

    def __init__(self, chain: _core.Chain, number: int, previous: ChainPopen | None) -> None:
        self.returncode: int | None = None
        self.lost = False  # whether nobody will know its exit status
        self.finalizer = None
        self.chain = chain
        self._number = number
        self._previous = previous
        self._pidfd: int | None = None

    def state(self) -> int:
        """The process; 0: not forked yet; negative: it never will be, and the errno why."""
        pid = self.chain.pid(self._number)
        if pid == 0 and self._previous is not None and self._previous.ended():
            return self.chain.pid(self._number) or -errno.ECHILD
        return pid

    def await_fork(self) -> int:
        """The state, once it is not 0."""
        while (state := self.state()) == 0:
            time.sleep(_LOOK_S)
        return state

    @property
    def pid(self) -> int | None:  # type: ignore[override]
        """The process, once it is forked; None: it never will be."""
        state = self.await_fork()
        return state if state > 0 else None

    @property
    def sentinel(self) -> ChainPopen:  # type: ignore[override]
        """What multiprocessing waits for, by its fileno(): there may be no descriptor yet."""
        return self

    def fileno(self) -> int:
        """A descriptor that becomes readable when the process ends; -1: there is no process."""
        if self._pidfd is None:
            try:
                self._pidfd = (
                    -1 if self.returncode is not None else _core.process_open(self.await_fork())
                )
            except FileNotFoundError:
                self._pidfd = -1
        return self._pidfd

    def ended(self) -> bool:
        """Whether the process has ended, or will never be. Waits for nothing."""
        if self.returncode is not None:
            return True
        state = self.state()
        if state <= 0:
            return state < 0
        return self.fileno() < 0 or _core.process_ended(self.fileno())

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        """The exit status; None while there is none."""
        if self.returncode is None:
            state = self.state()
            if state < 0:
                self.returncode = 0 if state == -errno.ECANCELED else 1
            elif state > 0 and super().poll(flag) is None and self._was_waited_for():
                self.lost, self.returncode = True, UNKNOWN_STATUS
        return self.returncode

    def _was_waited_for(self) -> bool:
        """Whether it has ended and its status went to somebody else: to a handler of the user's that
        waits for any child, or to nobody where SIGCHLD is ignored."""
        if not self.ended():
            return False
        try:
            os.waitid(os.P_PID, self.state(), os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit status; None when the time is over before."""
        deadline = time.monotonic() + (1e9 if timeout is None else timeout)
        while self.poll() is None and (left := deadline - time.monotonic()) > 0:
            if self.state() == 0 or self.fileno() < 0:
                time.sleep(min(left, _LOOK_S))
            else:
                connection.wait([self.fileno()], min(left, 1e6))
        return self.returncode

    def _send_signal(self, sig: int) -> None:
        if self.returncode is None and self.await_fork() > 0:
            super()._send_signal(sig)  # type: ignore[misc]

    def close(self) -> None:
        """Give up the descriptor."""
        if self._pidfd is not None and self._pidfd >= 0:
            os.close(self._pidfd)
        self._pidfd = -1


class ChainWorker(ChildWorker):
    """A worker of this process's own that may not have been forked yet."""

    def __init__(self, process: Any, popen: ChainPopen, fork: Any) -> None:
        self._popen = popen

        def start(_: Any) -> ChainPopen:
            if fork is not None:
                fork()
            return popen

        process._Popen = start  # start() calls it, with its own checks before
        try:
            super().__init__(process)
        finally:
            del process._Popen

    def _open(self) -> None:
        pass  # ChainPopen has the descriptor, when there is a process

    @property
    def pid(self) -> int | None:
        """Process id; waits until there is one. None: there never will be."""
        return self._popen.pid

    @property
    def exitcode(self) -> int | None:
        """None while it runs, and where its status went to somebody else."""
        code = super().exitcode
        return None if self._popen.lost else code

    @property
    def sentinel(self) -> int:
        return self._popen.fileno()

    def ended(self) -> bool:
        return self._popen.ended()

    def begun(self) -> bool:
        return self._popen.state() > 0

    def refusal(self) -> str | None:
        """Why the process was never forked; None where it was, or may still be."""
        state = self._popen.state()
        return os.strerror(-state) if state < 0 else None

    def hurry(self) -> None:
        self._popen.chain.hurry()

    def call_off(self) -> None:
        """Do not fork this worker or those after it, if that is not done yet."""
        self._popen.chain.stop()

    def shows_that_chains_work(self) -> bool | None:
        """Whether workers can fork workers; None: this one does not show it."""
        self.hurry()
        while not self._popen.chain.proven():
            if self.ended():
                return False if -self._popen.state() in _UNKNOWN else None
            time.sleep(_LOOK_S)
        return True

    def forget(self) -> None:
        """Let multiprocessing know nothing of this process."""
        getattr(mp_process, "_children", set()).discard(self._process)
