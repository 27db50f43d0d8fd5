"""A template: one clean process that imports and unpickles once, and forks the workers.

Starting W spawned workers as torch does costs W interpreters, W imports of torch and W copies of
the dataset. A template costs one, and its forks share what it has loaded. It is used only where a
fork of it is as good as a new process: it has one thread, and unpickling opened no descriptor.

    trainer                       template                         worker
    Template() ---- spawn ------> unpickle the job, "ready"
    start(plan) --- plan, fds --> fork --------------------------> run(plan, job)
                <-- pid, pidfd --                                  ends
                <-- exit status - reaps it
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import multiprocessing
import os
import pickle
import select
import signal
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from multiprocessing import process as mp_process
from typing import Any

from millhead import _core
from millhead.torch._parcel import ArrivedParcel, Parcel
from millhead.torch._workers import Descriptor, Worker, describe_exit, start_process
from millhead.torch.worker import Job, WorkerPlan, prepare_to_fork, run

#: Set to 1 while the template imports: a thread pool that has run cannot be forked.
_POOL_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_MESSAGE_BYTES = 2**16


class UnusableError(Exception):
    """Why workers cannot be started from a template."""


class TemplateWorker(Worker):
    """A handle to a worker that a template forked: not our child, so others wait for it."""

    def __init__(self, template: Template, pid: int, pidfd: int) -> None:
        super().__init__(pid, pidfd)
        self._template = template

    @property
    def exitcode(self) -> int | None:
        """None while it runs, or when its template cannot tell; negative: the signal."""
        return self._template.exit_status(self.pid)

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return not self.ended()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the process to end."""
        if self._pidfd is None:
            return
        if _readable([self._pidfd], timeout):
            self._template.await_status(self.pid)

    def send_signal(self, number: int) -> None:
        """Send the process a signal."""
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)


class Template:
    """The trainer's side."""

    def __init__(self, job: Job) -> None:
        began = time.perf_counter()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._statuses: dict[int, int] = {}
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parcel = Parcel(job)
        try:
            with theirs:
                self._start(parcel, theirs)
            self._await_ready()
        except BaseException:
            self.close()
            raise
        finally:
            parcel.close()
        #: Tells whether the same job would be pickled the same again.
        self.digest = parcel.digest
        self.job_bytes = parcel.bytes
        self.seconds = time.perf_counter() - began

    @property
    def pid(self) -> int | None:
        """The template's process."""
        process = getattr(self, "_process", None)
        return None if process is None else process.pid

    def ended(self) -> str | None:
        """How the template ended; None while it lives."""
        if self._process.is_alive():
            return None
        return describe_exit(self._process.exitcode)

    def _start(self, parcel: Parcel, theirs: socket.socket) -> None:
        trainer = _core.process_open(os.getpid())
        try:
            with _single_threaded_pools() as changed:
                process = multiprocessing.get_context("spawn").Process(
                    target=_serve,
                    args=(parcel, Descriptor(theirs.fileno()), Descriptor(trainer), changed),
                    name="millhead-template",
                )
                process.daemon = False  # a daemon may have no children
                start_process(process)
                self._process = process
        except (MemoryError, OSError):
            raise
        except Exception as error:
            raise UnusableError(f"pickling failed: {error!r}") from error
        finally:
            os.close(trainer)

    def _await_ready(self) -> None:
        while not _readable([self._line.fileno(), self._process.sentinel], 0.1):
            pass
        message, _ = self._receive(0)
        if message is None:
            self._process.join(1.0)
            raise UnusableError(f"it {describe_exit(self._process.exitcode)} while unpickling")
        if message[1] is not None:
            raise UnusableError(message[1])

    def start(self, plans: list[WorkerPlan]) -> list[Worker]:
        """Fork a worker for each plan, in order."""
        with self._lock:
            for plan in plans:
                fds = [descriptor.fd for descriptor in plan.descriptors]
                small = dataclasses.replace(plan, descriptors=())
                self._send(pickle.dumps(("start", small)), fds)
            workers: list[Worker] = []
            while len(workers) < len(plans):
                workers.append(self._started(workers))
            return workers

    def _started(self, before: list[Worker]) -> Worker:
        while not _readable([self._line.fileno(), self._process.sentinel], 0.1):
            pass
        message, fds = self._receive(0)
        if message is not None and message[0] == "started":
            return TemplateWorker(self, message[1], fds[0])
        for worker in before:
            worker.kill()
            worker.close()
        if message is None:
            raise UnusableError("it ended while starting workers")
        raise UnusableError(str(message[1]))

    def _send(self, data: bytes, fds: list[int]) -> None:
        try:
            socket.send_fds(self._line, [data], fds)
        except OSError as error:
            raise UnusableError(f"it is gone ({error})") from error

    def _receive(self, timeout: float) -> tuple[Any, list[int]]:
        """The next message that is not an exit status; those are noted. (None, []): none came."""
        deadline = time.monotonic() + timeout
        while _readable([self._line.fileno()], max(0.0, deadline - time.monotonic())):
            try:
                data, fds, _, _ = socket.recv_fds(self._line, _MESSAGE_BYTES, 1)
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
        if self._pid == os.getpid() and pid not in self._statuses and self._line.fileno() >= 0:
            with self._lock:
                self._receive(0)
        return self._statuses.get(pid)

    def await_status(self, pid: int) -> None:
        """Wait a moment for the exit status of a worker that has ended."""
        deadline = time.monotonic() + 1.0
        while self.exit_status(pid) is None and time.monotonic() < deadline:
            if self._line.fileno() < 0 or not self._process.is_alive():
                return
            _readable([self._line.fileno()], 0.05)

    def close(self) -> None:
        """End the template. Its workers end by themselves when they are told to."""
        if self._pid != os.getpid() or self._line.fileno() < 0:
            return
        process = getattr(self, "_process", None)
        with contextlib.suppress(OSError):
            self._line.send(pickle.dumps(("end",)))
        self._line.close()
        if process is None:
            return
        process.join(1.0)
        if process.is_alive():
            process.kill()
            process.join(1.0)
        process.close()


@contextlib.contextmanager
def _single_threaded_pools() -> Iterator[dict[str, None]]:
    """What the process inherits while it starts. Yields the variables it has to unset again."""
    changed = {name: None for name in _POOL_VARIABLES if name not in os.environ}
    os.environ.update(dict.fromkeys(changed, "1"))
    # Ctrl-C goes to the whole group: the template leaves it to the trainer.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield changed
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name in changed:
            os.environ.pop(name, None)


def _readable(fds: list[int], timeout: float | None) -> bool:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if timeout is None else max(0, round(timeout * 1000))))


# --- the template's own process ---


def _serve(
    parcel: ArrivedParcel, line: Descriptor, trainer: Descriptor, unset: dict[str, None]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _core.exit_with(trainer.fd)  # a thread, asleep in the kernel whenever we fork
    with socket.socket(fileno=line.fd) as talk:
        job, reason = _open(parcel)
        for name in unset:
            os.environ.pop(name, None)
        prepare_to_fork()
        gc.collect()
        gc.freeze()  # the collector must not touch, and so copy, what the workers share
        talk.send(pickle.dumps(("ready", reason)))
        if job is not None and reason is None:
            _Server(job, talk).run()


def _open(parcel: ArrivedParcel) -> tuple[Job | None, str | None]:
    """The job, and why it must not be forked if so."""
    before = set(os.listdir("/proc/self/fd"))
    try:
        job = parcel.open()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the trainer decides
        traceback.clear_frames(error.__traceback__)
        return None, f"unpickling raised {error!r}"
    opened = set(os.listdir("/proc/self/fd")) - before
    opened = {fd for fd in opened if os.path.lexists(f"/proc/self/fd/{fd}")}  # not listdir's own
    threads = len(os.listdir("/proc/self/task")) - 1  # the watcher
    if opened:
        names = ", ".join(sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in opened))
        return job, f"unpickling opened {names}"
    if threads > 1:
        return job, f"unpickling started {threads - 1} thread(s)"
    return job, None


class _Server:
    def __init__(self, job: Job, talk: socket.socket) -> None:
        self.job = job
        self.talk = talk
        self.trainer = multiprocessing.parent_process()
        self.children: dict[int, Any] = {}  # by pidfd

    def run(self) -> None:
        """Serve until the trainer says it is enough."""
        while True:
            poll = select.poll()
            for fd in (self.talk.fileno(), *self.children):
                poll.register(fd, select.POLLIN)
            for fd, _ in poll.poll():
                if fd in self.children:
                    self.reap(fd)
                elif not self.serve():
                    return

    def serve(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self.talk, _MESSAGE_BYTES, 8)
        if not data:
            return False
        message = pickle.loads(data)
        if message[0] != "start":
            return False
        try:
            pid, pidfd = self.fork(message[1], fds)
            socket.send_fds(self.talk, [pickle.dumps(("started", pid))], [pidfd])
        except Exception as error:  # noqa: BLE001 - the trainer's to know
            self.talk.send(pickle.dumps(("failed", f"starting a worker raised {error!r}")))
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def fork(self, plan: WorkerPlan, fds: list[int]) -> tuple[int, int]:
        plan.descriptors = tuple(Descriptor(fd) for fd in fds)
        process = multiprocessing.get_context("fork").Process(target=self.work, args=(plan,))
        process.daemon = True
        process.start()
        assert process.pid is not None
        pidfd = _core.process_open(process.pid)
        self.children[pidfd] = process
        return process.pid, pidfd

    def work(self, plan: WorkerPlan) -> None:
        """A worker's life, in its process."""
        self.talk.close()
        for fd in self.children:
            os.close(fd)
        # As in a worker the trainer started itself: it is the parent that counts.
        mp_process._parent_process = self.trainer  # type: ignore[attr-defined]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run(plan, self.job)

    def reap(self, pidfd: int) -> None:
        process = self.children.pop(pidfd)
        process.join()
        with contextlib.suppress(OSError):  # the trainer may be gone
            self.talk.send(pickle.dumps(("exit", process.pid, process.exitcode)))
        process.close()
        os.close(pidfd)
