"""Which functions a worker, or the loop, spends its time in: looks at the stack every few milliseconds.

The clocks are C's (``src/observe/ticks.h``): one of CPU time, and one that ticks while the thread is blocked.
They have :meth:`HotCode.look` called in the main thread, between two instructions of the program, with the
time that the look stands for. So waiting counts as computing does, and nothing is interrupted.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import linecache
import os
import signal
import sys
import sysconfig
import threading
import time
from types import FrameType

from millhead import _core
from millhead.watching import event_files

#: As `src/observe/ticks.h` numbers them.
STAGES = {1: "fetch", 2: "collate", 3: "loop", 4: "train", 5: "thread"}
LOOP, TRAIN = 3, 4
#: Not a stage of the main thread: what another thread of Python's does while the loop works.
_THREAD = 5
#: Modules that only wait or pass calls on: who called them is what to name.
PLUMBING = frozenset(
    [
        "threading",
        "asyncio",
        "concurrent",
        "selectors",
        "socket",
        "ssl",
        "http",
        "urllib3",
        "urllib",
        "queue",
        "multiprocessing",
        "contextlib",
        "functools",
        "importlib",
        "_weakrefset",
        "abc",
        "typing",
        "codecs",
        "encodings",
    ]
)
#: Of them, those that wait for a network or for another program: no device does.
IO = frozenset(["socket", "ssl", "http", "urllib3", "subprocess", "sqlite3", "smtplib", "ftplib"])
#: Ours, around what is watched.
_OURS = ("millhead.watching", "millhead.torch")
#: A thread that computed for less between two writes is idle.
_THREAD_LEAST_NS = 10_000_000
#: Frames looked at, from the innermost out.
DEEPEST = 40
#: Between two writes: soon at first, for workers that live a second.
FIRST_WRITE_S, LATER_WRITE_S = 0.2, 2.0
#: Functions reported in one write.
MOST_TOLD = 24

#: Stage, function, file and line of the user's code, whether it waits for a network or a program.
_Key = tuple[int, str, str, int, bool]


class HotCode:
    """What was seen on the stack since it was last written."""

    def __init__(self) -> None:
        self._seen: dict[_Key, int] = {}
        self._threads: dict[int, int] = {}  # CPU time of each when it was last looked at
        self._pause = FIRST_WRITE_S
        self._due = time.monotonic() + FIRST_WRITE_S

    def look(self, stage: int, ns: int, blocked: bool) -> None:
        """Note where the caller is; it stands for so much time, which it computed or was blocked."""
        frame: FrameType | None = sys._getframe(1)
        named = own = None
        io = False
        for _ in range(DEEPEST):
            if frame is None or (named is not None and own is not None):
                break
            if named is None:
                io = io or _top_module(frame) in IO
                named = None if _is_plumbing(frame) else frame
            if own is None and _is_own(frame.f_code.co_filename):
                own = frame
            frame = frame.f_back
        if named is None or named.f_globals.get("__name__", "").startswith(_OURS):
            return  # the moment before or after the program's own code
        file, line = (own.f_code.co_filename, own.f_lineno) if own is not None else ("", 0)
        if blocked and stage == LOOP and sleeping_trains and not io:
            stage = TRAIN  # the loop waits for its device
        self._add((stage, _name(named), file, line, io), ns)

    def _count_threads(self) -> None:
        """What other threads of Python's computed since the last time: they need the interpreter's
        lock, as the loop does."""
        mine, busy = threading.main_thread(), self._threads
        self._threads = {}
        for thread in threading.enumerate():
            if thread is mine or thread.ident is None or isinstance(thread, threading._DummyThread):
                continue
            with contextlib.suppress(OSError):  # it has just ended
                cpu = time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident))
                self._threads[thread.ident] = cpu
                spent = cpu - busy.get(thread.ident, cpu)
                if spent >= _THREAD_LEAST_NS:
                    target = getattr(thread, "_target", None)  # gone when it has ended
                    name = getattr(target, "__qualname__", thread.name)
                    self._add((_THREAD, name, "", 0, False), spent)

    def _add(self, key: _Key, ns: int) -> None:
        self._seen[key] = self._seen.get(key, 0) + ns

    def lines(self, loader: int, worker: int, at_once: bool = False) -> str:
        """Events, where they are due; mostly none."""
        now = time.monotonic()
        if not self._seen or (now < self._due and not at_once):
            return ""
        if worker < 0:
            self._count_threads()
        self._pause = min(2 * self._pause, LATER_WRITE_S)
        self._due = now + self._pause
        seen, self._seen = self._seen, {}
        most = sorted(seen.items(), key=lambda item: -item[1])[:MOST_TOLD]
        return "".join(
            event_files.line(
                "hot",
                loader=loader,
                worker=worker,
                stage=STAGES[stage],
                name=name[-120:],
                place=f"{os.path.basename(file)}:{line}" if file else None,
                code=linecache.getline(file, line).strip()[:100] if file else None,
                io=io or None,
                ns=ns,
            )
            for (stage, name, file, line, io), ns in most
        )


#: Whether time that the loop sleeps counts as training: hooks see when this step trains.
sleeping_trains = False

_process: tuple[int, HotCode] | None = None
#: Loops that are watched now, in this process.
_loops = 0


def start() -> HotCode | None:
    """Have this process's main thread looked at; None where that is not the caller's."""
    global _process, _loops
    if threading.current_thread() is not threading.main_thread():
        return None
    if _process is None or _process[0] != os.getpid():
        _process, _loops = (os.getpid(), HotCode()), 0
        atexit.unregister(_core.ticks_stop)
        atexit.register(_core.ticks_stop)
    hot = _process[1]
    return hot if start_probe() and _core.ticks_start(hot.look) else None


def start_probe() -> bool:
    """Have it asked whether Python or native code keeps the main thread busy. False in another
    thread, and where the program uses the signal."""
    in_main = threading.current_thread() is threading.main_thread()
    known = (signal.SIG_DFL, _core.probe_answer)
    if not in_main or signal.getsignal(_core.PROBE_SIGNAL) not in known:
        return False
    signal.signal(_core.PROBE_SIGNAL, _core.probe_answer)
    atexit.unregister(_core.probe_stop)
    atexit.register(_core.probe_stop)  # then Python resets its handlers: the signal would kill
    return _core.probe_start()


def start_loop() -> HotCode | None:
    """The same for a loop, until ``end_loop``."""
    global _loops
    hot = start()
    if hot is not None:
        _loops += 1
    return hot


def end_loop(hot: HotCode | None) -> None:
    """A loop that ``start_loop`` gave this is over; after the last one nobody is looked at."""
    global _loops
    if _process is None or _process != (os.getpid(), hot):
        return
    _loops = max(0, _loops - 1)
    if _loops == 0 and threading.current_thread() is threading.main_thread():
        _core.ticks_stop()
        _core.probe_pause()


def _is_plumbing(frame: FrameType) -> bool:
    if frame.f_code.co_filename.startswith("<"):  # importlib's own, and what was compiled from text
        return True
    return _top_module(frame) in PLUMBING


def _top_module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def users_line() -> str | None:
    """The innermost line of the user's code on the stack, "train.py:31"; None: there is none."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(DEEPEST):
        if frame is None:
            return None
        if _is_own(frame.f_code.co_filename):
            return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return None


@functools.cache
def _libraries() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return (
        *{os.path.join(paths[name], "") for name in ("stdlib", "platstdlib", "purelib", "platlib")},
        os.path.join(os.path.dirname(os.path.dirname(__file__)), ""),
    )


@functools.lru_cache(maxsize=4096)
def _is_own(file: str) -> bool:
    """Whether it is the user's: neither Python's, nor an installed package's, nor ours."""
    return not file.startswith(("<", *_libraries())) and "site-packages" not in file


def _name(frame: FrameType) -> str:
    """``PIL.ImageFile.ImageFile.load``; what is inside a function is that function's."""
    function = frame.f_code.co_qualname.partition(".<locals>.<")[0].replace(".<locals>", "")
    module = frame.f_globals.get("__name__", "")
    return function if module in ("__main__", "__mp_main__", "") else f"{module}.{function}"
