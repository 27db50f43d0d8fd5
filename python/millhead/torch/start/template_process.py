"""A template's own process: unpickles the job once, forks the workers and reports how they end."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import select
import signal
import socket
from multiprocessing import process as mp_process
from multiprocessing import util
from typing import Any

from millhead import _core
from millhead.torch.start.pickled_job import MappedJob
from millhead.torch.start.private_generators import seeded_by_system
from millhead.torch.workers.batch_worker import Job, WorkerPlan, prepare_to_fork, run
from millhead.torch.workers.processes import Descriptor

MESSAGE_BYTES = 2**16
#: What the trainer sends, with descriptors, to have a worker started; anything else: no more.
START = b"start"

#: Files that may be open when a template forks: they have no position, or only their memory counts.
_HARMLESS = ("/dev/shm/", "/memfd:", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")


def one_line(error: BaseException) -> str:
    """An exception of the user's in a line of reasonable length."""
    text = str(error).strip().split("\n", 1)[0]
    text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text if len(text) <= 200 else text[:200] + "..."


def worker_name(plan: WorkerPlan) -> str:
    return f"millhead-worker-{plan.number}"


def serve(pickled: MappedJob, line_end: Descriptor, trainer: Descriptor, unset: list[str]) -> None:
    """The life of the process. ``unset``: environment variables that were for its start only."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    line = socket.socket(fileno=line_end.fd)
    parent = multiprocessing.parent_process()
    assert parent is not None
    inherited = {0, 1, 2, *pickle.loads(line.recv(MESSAGE_BYTES)), parent.sentinel}
    before = _open_files()
    _core.exit_with(trainer.fd)  # a thread, asleep in the kernel whenever we fork
    pickled.map()
    ours = {fd: file for fd, file in _open_files().items() if before.get(fd) != file}
    known = {fd: file for fd, file in before.items() if fd in inherited} | ours
    job, reason = _unpickle(pickled, known)
    for name in unset:
        os.environ.pop(name, None)
    prepare_to_fork()
    gc.collect()
    gc.freeze()  # the collector must not touch, and so copy, what the workers share
    line.send(pickle.dumps(("ready", reason, job is not None)))
    if job is not None and reason is None:
        _Server(job, line).run()
    elif job is not None and _become_worker(job, line):
        return  # to multiprocessing, as from any worker
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


def _unpickle(
    pickled: MappedJob, known: dict[int, tuple[int, int]]
) -> tuple[Job | None, str | None]:
    """The job, and why it must not be forked if so: files that are open besides the known ones
    (the main module may have opened some too), threads, or generators that forks would share."""
    try:
        job = pickled.open()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the trainer decides
        return None, f"unpickling it raised {one_line(error)}"
    names = {_name(fd) for fd, file in _open_files().items() if known.get(fd) != file}
    harmful = sorted(name for name in names if not name.startswith(_HARMLESS))
    if harmful:
        return job, f"importing or unpickling it opens {', '.join(harmful)}"
    threads = len(os.listdir("/proc/self/task")) - 2  # this one, and the one that watches
    if threads > 0:
        return job, f"importing or unpickling it leaves {threads} more thread(s) running"
    generator = seeded_by_system(vars(job), pickled.holds)
    if generator is not None:
        return job, f"every worker seeds {generator} anew, importing or unpickling it"
    return job, None


def _name(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return f"descriptor {fd}"


def _unpack(fds: list[int]) -> WorkerPlan:
    """The plan that the last of the received descriptors holds, with the others; takes that one."""
    with os.fdopen(fds.pop(), "rb") as memory:
        memory.seek(0)
        plan: WorkerPlan = pickle.load(memory)
    plan.descriptors = tuple(Descriptor(fd) for fd in fds)
    return plan


def _become_worker(job: Job, line: socket.socket) -> bool:
    """Be one worker, as none may be forked: a whole worker's life, if the trainer wants it."""
    data, fds, _, _ = socket.recv_fds(line, MESSAGE_BYTES, 8)
    line.close()
    if data != START:
        return False
    plan = _unpack(fds)
    process = multiprocessing.current_process()
    process.name = worker_name(plan)
    process._config["daemon"] = True  # type: ignore[attr-defined]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run(plan, job, watched=True)
    return True


class _Server:
    def __init__(self, job: Job, line: socket.socket) -> None:
        self.job = job
        self.line = line
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
                poll.register(self.line.fileno(), select.POLLIN)
            for fd, _ in poll.poll():
                if fd in self.children:
                    self.reap(fd)
                else:
                    serving = self.serve()

    def serve(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self.line, MESSAGE_BYTES, 8)
        if data != START:
            return False
        try:
            pid, pidfd = self.fork(_unpack(fds))
            socket.send_fds(self.line, [pickle.dumps(("started", pid))], [pidfd])
        except Exception as error:  # noqa: BLE001 - the trainer's to know
            text = f"starting a worker raised {one_line(error)}"
            self.line.send(pickle.dumps(("failed", text)))
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def fork(self, plan: WorkerPlan) -> tuple[int, int]:
        process = multiprocessing.get_context("fork").Process(target=self.work, args=(plan,))
        process.daemon = True
        process.start()
        assert process.pid is not None
        pidfd = _core.process_open(process.pid)
        self.children[pidfd] = process
        return process.pid, pidfd

    def work(self, plan: WorkerPlan) -> None:
        self.line.close()
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
            self.line.send(pickle.dumps(("exit", process.pid, process.exitcode)))
        process.close()
        os.close(pidfd)
