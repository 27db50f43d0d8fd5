"""A template: one clean process that imports and unpickles once, and forks the workers.

Starting W spawned workers as torch does costs W interpreters, W imports of torch and W copies of
the dataset. A template costs one, and its forks share what it has loaded. It is used only where a
fork of it is as good as a new process: it has one thread, and unpickling opened no descriptor. Where
it is not, the template becomes the first worker itself, and the others start one by one.

    trainer                       template                         worker
    Template() ---- spawn ------> unpickle the job, "ready"
    start(plan) --- plan, fds --> fork --------------------------> run(plan, job)
                <-- pid, pidfd --                                  ends
                <-- exit status - reaps it
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Iterator
from multiprocessing import connection, resource_tracker
from multiprocessing import process as mp_process
from typing import Any

from millhead import _core
from millhead.torch.loader_stats import SAY_AFTER_S, advise
from millhead.torch.start.pickled_job import PickledJob, surroundings
from millhead.torch.start.template_process import (
    MESSAGE_BYTES,
    START,
    one_line,
    serve,
    worker_name,
)
from millhead.torch.workers.batch_worker import Job, WorkerPlan
from millhead.torch.workers.native_pools import lent
from millhead.torch.workers.processes import (
    ChildWorker,
    Descriptor,
    Worker,
    describe_exit,
    start_process,
)

#: Set to 1 while the template imports: a thread pool that has run cannot be forked.
_POOL_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
#: Set while the template imports, where the user has not: pyarrow's jemalloc starts a thread that
#: frees memory as soon as it is loaded.
_ALLOCATOR_VARIABLES = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}


class UnusableError(Exception):
    """Why workers cannot be started from a template.

    ``spare``: the template, where it can still be one worker itself; whoever catches this closes it.
    """

    def __init__(self, why: str, spare: Template | None = None) -> None:
        super().__init__(why)
        self.spare = spare


class UnpicklableError(UnusableError):
    """Nor in any other way that pickles what they need."""


class TemplateWorker(Worker):
    """A handle to a worker that a template forked: not our child, so others wait for it."""

    def __init__(self, template: Template, pid: int, pidfd: int) -> None:
        super().__init__(pid, pidfd)
        self._template = template

    @property
    def exitcode(self) -> int | None:
        """None while it runs, or when its template cannot tell; negative: the signal."""
        return self._template.exit_status(self._pid)

    def another(self, plan: WorkerPlan) -> Worker | None:
        """A worker from the same template; None where that starts no more."""
        if self._template.closed or self._template.ended() is not None:
            return None
        try:
            return self._template.start([plan])[0]
        except UnusableError:
            return None

    def is_alive(self) -> bool:
        return not self.ended()

    def join(self, timeout: float | None = None) -> None:
        if self._pidfd is not None and _readable([self._pidfd], timeout):
            self._template.await_status(self._pid)

    def send_signal(self, number: int) -> None:
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)


class Template:
    """The trainer's side.

    ``variables``: what workers have in their environment for libraries that are yet to be loaded.
    """

    def __init__(self, job: Job, timeout: float, variables: dict[str, str]) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._statuses: dict[int, int | None] = {}  # by pid; None: still running
        self._process: Any = None
        self.closed = False
        #: What it has from this process, besides its job.
        self.surroundings = surroundings()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pickled = PickledJob(job)
        try:
            with theirs:
                self._start(pickled, theirs, variables)
            self._await_ready(timeout)
        except BaseException as error:
            if getattr(error, "spare", None) is not self:
                self.close()
            raise
        finally:
            pickled.close()
        #: Tells whether the same job would be pickled the same again; None: it cannot be told.
        self.digest = pickled.digest

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def ended(self) -> str | None:
        """How the template ended; None while it lives."""
        if self._process.is_alive():
            return None
        return describe_exit(self._process.exitcode)

    def _start(self, pickled: PickledJob, theirs: socket.socket, variables: dict[str, str]) -> None:
        trainer = _core.process_open(os.getpid())
        try:
            with _single_threaded_pools(variables) as unset:
                process = multiprocessing.get_context("spawn").Process(
                    target=serve,
                    args=(pickled, Descriptor(theirs.fileno()), Descriptor(trainer), unset),
                    name="millhead-template",
                )
                process.daemon = False  # a daemon may have no children
                start_process(process)
                self._process = process
        except (MemoryError, OSError, RuntimeError):
            raise
        except Exception as error:
            raise UnpicklableError(f"it cannot be pickled: {one_line(error)}") from error
        finally:
            os.close(trainer)
        # Multiprocessing must not wait for it at exit: it ends when this process does.
        getattr(mp_process, "_children", set()).discard(process)
        # What it inherits is not the user's: it looks for descriptors that are.
        self._line.send(pickle.dumps(list(getattr(process._popen, "_fds", ()))))  # type: ignore[attr-defined]

    def _await_ready(self, timeout: float) -> None:
        began = time.monotonic()
        while not _readable([self._line.fileno(), self._process.sentinel], 0.1):
            seconds = time.monotonic() - began
            if 0 < timeout < seconds:
                raise RuntimeError(
                    f"DataLoader timed out after {timeout} seconds: the dataset is still being "
                    f"unpickled for the workers (pid {self.pid})"
                )
            if seconds > SAY_AFTER_S:
                advise(
                    "long-unpickling",
                    f"no worker after {SAY_AFTER_S:.0f} s (pid {self.pid} still unpickles the "
                    "dataset): still waiting; set timeout= to raise instead",
                )
        message, _ = self._await_message()
        if message is None:
            self._process.join(1.0)
            how = describe_exit(self._process.exitcode)
            raise UnusableError(f"the process that unpickles it {how}")
        _, why, unpickled = message
        if why is not None:
            raise UnusableError(why, self if unpickled else None)

    def start(self, plans: list[WorkerPlan]) -> list[Worker]:
        """Fork a worker for each plan, in order."""
        workers: list[Worker] = []
        try:
            with self._lock:
                for plan in plans:
                    self._ask_for(plan)
                while len(workers) < len(plans):
                    workers.append(self._started())
        except BaseException as error:
            # Answers still to come would be taken for those to later questions, and workers that
            # nobody knows of yet would stay: end the template and all that it started.
            self.kill()
            for worker in workers:
                worker.kill()
                worker.close()
            if isinstance(error, OSError):
                raise UnusableError(f"the template is gone: {error}") from error
            raise
        return workers

    def become(self, plan: WorkerPlan) -> Worker | None:
        """Let the process itself be a worker, where none can be forked from it; None: it is gone."""
        plan.start = "template"
        try:
            self._ask_for(plan)
        except OSError:
            return None
        self.closed = True
        self._line.close()
        self._process.name = worker_name(plan)
        return ChildWorker(self._process, started=True)

    def _ask_for(self, plan: WorkerPlan) -> None:
        fds = [descriptor.fd for descriptor in plan.descriptors]
        # In memory of its own: states that a resumed dataset goes on from are too long for a message.
        with os.fdopen(os.memfd_create("millhead-plan"), "wb") as memory:
            memory.write(pickle.dumps(dataclasses.replace(plan, descriptors=())))
            memory.flush()
            socket.send_fds(self._line, [START], [*fds, memory.fileno()])

    def _started(self) -> Worker:
        message, fds = self._await_message()
        if message is None:
            raise UnusableError("the template ended while it started workers")
        if message[0] != "started":
            raise UnusableError(str(message[1]))
        self._statuses[message[1]] = None
        return TemplateWorker(self, message[1], fds[0])

    def _await_message(self) -> tuple[Any, list[int]]:
        """The next answer; (None, []) when the template is gone."""
        while True:
            while not _readable([self._line.fileno(), self._process.sentinel], 0.1):
                pass
            message, fds = self._receive()
            if message is not None or not self._process.is_alive():
                return (message, fds) if message is not None else self._receive()

    def _receive(self) -> tuple[Any, list[int]]:
        """The next answer that is there; keeps exit statuses on the way."""
        while self._line.fileno() >= 0 and _readable([self._line.fileno()], 0):
            try:
                data, fds, _, _ = socket.recv_fds(self._line, MESSAGE_BYTES, 1)
            except OSError:
                break
            if not data:
                break
            message = pickle.loads(data)
            if message[0] != "exit":
                return message, list(fds)
            self._statuses[message[1]] = message[2]
        return None, []

    def exit_status(self, pid: int) -> int | None:
        """The exit status of a worker, if it is known."""
        if self._pid == os.getpid() and self._statuses.get(pid) is None:
            with self._lock:
                self._receive()
        return self._statuses.get(pid)

    def await_status(self, pid: int) -> None:
        """Wait a moment for the exit status of a worker that has ended."""
        deadline = time.monotonic() + 1.0
        while self.exit_status(pid) is None and time.monotonic() < deadline:
            if self._line.fileno() < 0 or not self._process.is_alive():
                return
            _readable([self._line.fileno()], 0.05)

    def close(self) -> None:
        """Start no more workers. The template ends with the last of those it started."""
        if self._pid != os.getpid() or self._line.fileno() < 0 or self._process is None:
            return
        self.closed = True
        with contextlib.suppress(OSError):
            self._line.send(b"end")
        if self._process.is_alive() and None in self._statuses.values():
            _retired.append(self)
        else:
            self.reap(1.0, force=True)

    def kill(self) -> None:
        """End the template now. Workers it has just started end when their consumer end is stopped."""
        if self._pid == os.getpid() and self._line.fileno() >= 0 and self._process is not None:
            self.closed = True
            self._process.kill()
            self.reap(1.0, force=True)

    def reap(self, patience: float, force: bool) -> bool:
        """Whether the closed template is gone, waited for and forgotten."""
        self._process.join(patience)
        if self._process.is_alive() and force:
            self._process.kill()
            self._process.join(1.0)
        if self._process.is_alive():
            return False
        with self._lock:
            self._receive()
        self._line.close()
        self._process.close()
        return True


#: Closed templates whose workers were still at work.
_retired: list[Template] = []


def reap_retired(patience: float = 0.0, force: bool = False) -> None:
    """Forget templates that have ended since they were closed."""
    for template in list(_retired):
        if template._pid != os.getpid() or template.reap(patience, force):
            _retired.remove(template)


@contextlib.contextmanager
def _single_threaded_pools(variables: dict[str, str]) -> Iterator[list[str]]:
    """What the process inherits while it starts. Yields the variables it has to unset again."""
    resource_tracker.ensure_running()  # it unblocks signals: not while we have them blocked
    pools = dict.fromkeys(_POOL_VARIABLES, "1")
    with lent(variables | pools | _ALLOCATOR_VARIABLES) as unset:
        # Ctrl-C goes to the whole group: the template leaves it to the trainer.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield unset
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _readable(fds: list[int], timeout: float | None) -> bool:
    return bool(connection.wait(fds, timeout))
