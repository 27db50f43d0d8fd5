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
from collections.abc import Iterator
from multiprocessing import process as mp_process
from multiprocessing import resource_tracker, util
from typing import Any

from millhead import _core
from millhead.torch._native_pools import lent
from millhead.torch._parcel import ArrivedParcel, Parcel, surroundings
from millhead.torch._private_generators import seeded_by_system
from millhead.torch._stats import SAY_AFTER_S, advise
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


#: Files that may be open when a template forks: they have no position, or only their memory counts.
_HARMLESS = ("/dev/shm/", "/memfd:", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")


class UnusableError(Exception):
    """Why workers cannot be started from a template."""


class UnpicklableError(UnusableError):
    """Nor in any other way that pickles what they need."""


def one_line(error: BaseException) -> str:
    """An exception of the user's in a line of reasonable length."""
    text = str(error).strip().split("\n", 1)[0]
    text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= 200 else text[:200] + "..."


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
        """Whether the process runs."""
        return not self.ended()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the process to end."""
        if self._pidfd is None:
            return
        if _readable([self._pidfd], timeout):
            self._template.await_status(self._pid)

    def send_signal(self, number: int) -> None:
        """Send the process a signal."""
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)


class Template:
    """The trainer's side."""

    def __init__(self, job: Job, timeout: float) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._statuses: dict[int, int | None] = {}  # by pid; None: still running
        self._process: Any = None
        self.closed = False
        #: What it has from this process, besides its job.
        self.surroundings = surroundings()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parcel = Parcel(job)
        try:
            with theirs:
                self._start(parcel, theirs)
            self._await_ready(timeout)
        except BaseException:
            self.close()
            raise
        finally:
            parcel.close()
        #: Tells whether the same job would be pickled the same again; None: it cannot be told.
        self.digest = parcel.digest

    @property
    def pid(self) -> int:
        """The template's process."""
        return int(self._process.pid)

    def ended(self) -> str | None:
        """How the template ended; None while it lives."""
        if self._process.is_alive():
            return None
        return describe_exit(self._process.exitcode)

    def _start(self, parcel: Parcel, theirs: socket.socket) -> None:
        trainer = _core.process_open(os.getpid())
        try:
            with _single_threaded_pools() as unset:
                process = multiprocessing.get_context("spawn").Process(
                    target=_serve,
                    args=(parcel, Descriptor(theirs.fileno()), Descriptor(trainer), unset),
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
        if message[1] is not None:
            raise UnusableError(message[1])

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

    def _ask_for(self, plan: WorkerPlan) -> None:
        fds = [descriptor.fd for descriptor in plan.descriptors]
        # In memory of its own: states that a resumed dataset goes on from are too long for a message.
        with os.fdopen(os.memfd_create("millhead-plan"), "wb") as memory:
            memory.write(pickle.dumps(dataclasses.replace(plan, descriptors=())))
            memory.flush()
            socket.send_fds(self._line, [pickle.dumps(("start",))], [*fds, memory.fileno()])

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
        """The next answer that is there; exit statuses are noted on the way."""
        while self._line.fileno() >= 0 and _readable([self._line.fileno()], 0):
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
            self._line.send(pickle.dumps(("end",)))
        if self._process.is_alive() and None in self._statuses.values():
            _retired.append(self)
        else:
            self.reap(1.0, force=True)

    def kill(self) -> None:
        """End the template now. Workers it has just started end when their channel is stopped."""
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
def _single_threaded_pools() -> Iterator[list[str]]:
    """What the process inherits while it starts. Yields the variables it has to unset again."""
    resource_tracker.ensure_running()  # it unblocks signals: not while we have them blocked
    with lent(dict.fromkeys(_POOL_VARIABLES, "1")) as unset:
        # Ctrl-C goes to the whole group: the template leaves it to the trainer.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield unset
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _readable(fds: list[int], timeout: float | None) -> bool:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if timeout is None else max(0, round(timeout * 1000))))


# --- the template's own process ---


def _serve(parcel: ArrivedParcel, line: Descriptor, trainer: Descriptor, unset: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    talk = socket.socket(fileno=line.fd)
    inherited = {0, 1, 2, *pickle.loads(talk.recv(_MESSAGE_BYTES)), _sentinel()}
    before = _open_files()
    _core.exit_with(trainer.fd)  # a thread, asleep in the kernel whenever we fork
    parcel.map()
    ours = {fd: file for fd, file in _open_files().items() if before.get(fd) != file}
    known = {fd: file for fd, file in before.items() if fd in inherited} | ours
    job, reason = _open(parcel, known)
    for name in unset:
        os.environ.pop(name, None)
    prepare_to_fork()
    gc.collect()
    gc.freeze()  # the collector must not touch, and so copy, what the workers share
    talk.send(pickle.dumps(("ready", reason)))
    if job is not None and reason is None:
        _Server(job, talk).run()
    util._flush_std_streams()  # type: ignore[attr-defined]
    os._exit(0)  # not by way of multiprocessing, which would end the workers


def _open_files() -> dict[int, tuple[int, int]]:
    """The descriptors of this process, and what tells whether one is still the same file."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # listdir's own
            status = os.fstat(int(name))
            found[int(name)] = (status.st_dev, status.st_ino)
    return found


def _sentinel() -> int:
    """Multiprocessing's own descriptor, by which it knows whether the trainer lives."""
    trainer = multiprocessing.parent_process()
    return -1 if trainer is None else trainer.sentinel


def _open(
    parcel: ArrivedParcel, known: dict[int, tuple[int, int]]
) -> tuple[Job | None, str | None]:
    """The job, and why it must not be forked if so: files that are open besides the known ones
    (the main module may have opened some too), threads, or generators that forks would share."""
    try:
        job = parcel.open()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the trainer decides
        return None, f"unpickling it raised {one_line(error)}"
    names = {_name(fd) for fd, file in _open_files().items() if known.get(fd) != file}
    harmful = sorted(name for name in names if not name.startswith(_HARMLESS))
    if harmful:
        return job, f"importing or unpickling it opens {', '.join(harmful)}"
    threads = len(os.listdir("/proc/self/task")) - 2  # this one, and the one that watches
    if threads > 0:
        return job, f"importing or unpickling it leaves {threads} more thread(s) running"
    generator = seeded_by_system(vars(job), parcel.holds)
    if generator is not None:
        return job, f"every worker seeds {generator} anew, importing or unpickling it"
    return job, None


def _name(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return f"descriptor {fd}"


class _Server:
    def __init__(self, job: Job, talk: socket.socket) -> None:
        self.job = job
        self.talk = talk
        self.trainer = multiprocessing.parent_process()
        self.children: dict[int, Any] = {}  # by pidfd

    def run(self) -> None:
        """Serve until the trainer says it is enough and the last worker has ended."""
        serving = True
        while serving or self.children:
            poll = select.poll()
            for fd in self.children:
                poll.register(fd, select.POLLIN)
            if serving:
                poll.register(self.talk.fileno(), select.POLLIN)
            for fd, _ in poll.poll():
                if fd in self.children:
                    self.reap(fd)
                else:
                    serving = self.serve()

    def serve(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self.talk, _MESSAGE_BYTES, 8)
        if not data:
            return False
        message = pickle.loads(data)
        if message[0] != "start":
            return False
        try:
            with os.fdopen(fds.pop(), "rb") as memory:
                memory.seek(0)
                plan = pickle.load(memory)
            pid, pidfd = self.fork(plan, fds)
            socket.send_fds(self.talk, [pickle.dumps(("started", pid))], [pidfd])
        except Exception as error:  # noqa: BLE001 - the trainer's to know
            text = f"starting a worker raised {one_line(error)}"
            self.talk.send(pickle.dumps(("failed", text)))
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
