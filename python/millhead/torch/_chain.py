"""Forked workers: the trainer forks two, and each but the first the next, from one snapshot.

A fork copies the page tables of the whole trainer, which takes milliseconds. ``iter()`` costs two,
however many workers there are: the others come up while the trainer goes on, and those that are no
longer wanted do not come at all. Each is the trainer's own child and sees the trainer as it was at
``iter()``, as if the trainer had forked it. ``src/sys/chain.h`` says how.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time
import types
from multiprocessing import popen_fork, util
from multiprocessing import process as mp_process
from typing import Any, NoReturn

from millhead import _core
from millhead.torch._workers import ChildWorker, Worker
from millhead.torch.worker import Job, WorkerPlan, run

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
            _live(processes[number], plans[number])

    workers: list[ChainWorker] = []
    link = Link(chain, 0, None)
    try:
        workers.append(ChainWorker(processes[0], link, fork))
    except _core.Error:
        _works = False
        return []
    for number in range(1, len(plans)):
        link = Link(chain, number, link)
        workers.append(ChainWorker(processes[number], link, None))
    return list(_prove(workers))


def _live(process: Any, plan: WorkerPlan) -> NoReturn:
    """A worker's life, in its process: what multiprocessing does after a fork."""
    code = 1
    try:
        code = process._bootstrap(parent_sentinel=plan.trainer.fd)
    finally:
        os._exit(code)


def _prove(workers: list[ChainWorker]) -> list[ChainWorker]:
    """The first time, wait until it is known whether chains work; the workers that are forked."""
    global _works
    if _works is None and len(workers) > 2:
        _works = workers[2].proves()
    if _works is not False:
        return workers
    for worker in workers[2:]:
        worker.forget()
    return workers[:2]


class Link(popen_fork.Popen):
    """What multiprocessing has of a process of its own: here from before it is forked."""

    def __init__(self, chain: _core.Chain, number: int, previous: Link | None) -> None:
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

    def settled(self) -> int:
        """The state, once it is not 0."""
        while (state := self.state()) == 0:
            time.sleep(_LOOK_S)
        return state

    @property
    def pid(self) -> int | None:  # type: ignore[override]
        """The process, once it is forked; None: it never will be."""
        state = self.settled()
        return state if state > 0 else None

    @property
    def sentinel(self) -> Link:  # type: ignore[override]
        """What multiprocessing waits for, by its fileno(): there may be no descriptor yet."""
        return self

    def fileno(self) -> int:
        """A descriptor that becomes readable when the process ends; -1: there is no process."""
        if self._pidfd is None:
            try:
                self._pidfd = (
                    -1 if self.returncode is not None else _core.process_open(self.settled())
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
                ask = select.poll()
                ask.register(self.fileno(), select.POLLIN)
                ask.poll(min(left, 1e6) * 1000)
        return self.returncode

    def _send_signal(self, sig: int) -> None:
        if self.returncode is None and self.settled() > 0:
            super()._send_signal(sig)  # type: ignore[misc]

    def close(self) -> None:
        """Give up the descriptor."""
        if self._pidfd is not None and self._pidfd >= 0:
            os.close(self._pidfd)
        self._pidfd = -1


class ChainWorker(ChildWorker):
    """A worker of this process's own that may not have been forked yet."""

    def __init__(self, process: Any, link: Link, fork: Any) -> None:
        self._link = link

        def popen(_: Any) -> Link:
            if fork is not None:
                fork()
            return link

        process._Popen = popen  # start() calls it, with its own checks before
        try:
            super().__init__(process)
        finally:
            del process._Popen

    def _open(self) -> None:
        pass  # the link has the descriptor, when there is a process

    @property
    def pid(self) -> int | None:
        """Process id; waits until there is one. None: there never will be."""
        return self._link.pid

    @property
    def exitcode(self) -> int | None:
        """None while it runs, and where its status went to somebody else."""
        code = super().exitcode
        return None if self._link.lost else code

    @property
    def sentinel(self) -> int:
        """A descriptor that becomes readable when the process ends."""
        return self._link.fileno()

    def ended(self) -> bool:
        """Whether the process has ended or will never be."""
        return self._link.ended()

    def begun(self) -> bool:
        """Whether there is a process, or was."""
        return self._link.state() > 0

    def refusal(self) -> str | None:
        """Why the process was never forked; None where it was, or may still be."""
        state = self._link.state()
        return os.strerror(-state) if state < 0 else None

    def hurry(self) -> None:
        """This worker is waited for."""
        self._link.chain.hurry()

    def call_off(self) -> None:
        """Do not fork this worker or those after it, if that is not done yet."""
        self._link.chain.stop()

    def proves(self) -> bool | None:
        """Whether workers can fork workers, as this one shows; None: it cannot be told."""
        self.hurry()
        while not self._link.chain.proven():
            if self.ended():
                return False if -self._link.state() in _UNKNOWN else None
            time.sleep(_LOOK_S)
        return True

    def forget(self) -> None:
        """Let multiprocessing know nothing of this process."""
        getattr(mp_process, "_children", set()).discard(self._process)
