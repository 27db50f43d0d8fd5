"""Writing events: lines that never mix, whichever processes write them (docs/events.md).

Nothing here raises into the loop that is watched. What cannot be written is reported once and counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import warnings
from typing import Any

from millhead import Advice
from millhead._rank_info import rank_info

SCHEMA, VERSION = "millhead-events", 1

#: A line's most bytes with its newline, and a write's: the kernel keeps such a one together.
LINE_BYTES, WRITE_BYTES = 4000, 65536
#: Where a log stops growing, on a disk and in memory.
DISK_LIMIT, MEMORY_LIMIT = 2 << 30, 64 << 20
#: After this many writes the size is looked at.
_WRITES_A_LOOK = 256


def _quoted(text: str, limit: int = 1000) -> str:
    """A string as JSON, cut where it is long; no more bytes than six times ``limit``."""
    return json.dumps(text if len(text) <= limit else text[: limit - 3] + "...")


def _value(value: Any, limit: int) -> str:
    if type(value) is int:  # most are: json would take ten times as long
        return str(value)
    if isinstance(value, str):
        return _quoted(value, limit)
    # JSON has no infinities and no NaN
    if isinstance(value, float) and not -1e308 <= value <= 1e308:
        return "null"
    return json.dumps(value, default=lambda other: str(other)[:limit])


def line(event: str, t: int | None = None, **fields: Any) -> str:
    """An event as a line; ``t`` None: now. Keys that are None are left out."""
    t = time.monotonic_ns() if t is None else t
    limit = 500
    while True:
        parts = [f'"{key}":{_value(v, limit)}' for key, v in fields.items() if v is not None]
        text = ",".join([f'{{"event":{_quoted(event, 64)},"t":{t}', *parts]) + "}\n"
        if len(text) <= LINE_BYTES:
            return text
        if limit < 16:  # many keys rather than long strings
            return f'{{"event":{_quoted(event, 64)},"t":{t},"cut":true}}\n'
        limit //= 4


def rank_file(name: str, rank: int) -> str:
    """The name of a rank's file: ``events.jsonl`` is rank 0's, ``events.rank3.jsonl`` rank 3's."""
    stem, dot, suffix = name.rpartition(".")
    return name if rank == 0 else f"{stem}.rank{rank}{dot}{suffix}"


def header() -> str:
    """The first line of a file."""
    from millhead import _environment  # not in every import of millhead.torch

    here = rank_info()
    return line(
        "header",
        schema=SCHEMA,
        version=VERSION,
        unix=time.time(),
        pid=os.getpid(),
        host=here.host,
        rank=here.rank,
        world=here.world,
        boot=_environment.boot_id(),
    )


class EventLog:
    """A file of events that any number of processes append to.

    ``where``: the file, a directory for ``events.jsonl`` (or this rank's), or None for memory that
    only this process and those it starts can reach, by :attr:`path`. The file is opened, and made
    with its header where it is not there, when the first event is written.

        >>> log = EventLog(None)
        >>> log.event("phase", name="forward", ns=1200, step=0)
        >>> len(open(log.path).readlines())
        2
        >>> log.close()
    """

    def __init__(self, where: str | os.PathLike[str] | None, limit: int | None = None) -> None:
        self._memory = -1
        if where is None:
            self._memory = os.memfd_create("millhead-events", os.MFD_CLOEXEC)
            where = f"/proc/{os.getpid()}/fd/{self._memory}"
            limit = limit or MEMORY_LIMIT
            os.write(self._memory, header().encode())
        elif os.path.isdir(where):
            where = os.path.join(where, rank_file("events.jsonl", rank_info().rank))
        self.path = os.path.abspath(where)
        #: Lines that could not be written.
        self.lost = 0
        #: Whether this process made the file.
        self.made = self._memory >= 0
        self._limit = limit or DISK_LIMIT
        self._writes = 0
        self._fd = -1
        self._pid = 0
        self._closed = self._broken = False

    def event(self, event: str, t: int | None = None, **fields: Any) -> None:
        """Write one event; ``t`` None: it is now."""
        self.write(line(event, t, **fields))

    def write(self, lines: bytes | str) -> None:
        """Write whole lines, as one where they are not very many."""
        data = lines if isinstance(lines, bytes) else lines.encode()
        if (self._pid != os.getpid() or self._fd < 0) and not self.touch():
            self.lost += data.count(b"\n")
            return
        try:
            self._writes += 1
            if self._writes % _WRITES_A_LOOK == 0 and os.fstat(self._fd).st_size > self._limit:
                raise OSError(f"it has {self._limit >> 20} MiB already")
            for piece in (data,) if len(data) <= WRITE_BYTES else _pieces(data):
                if os.write(self._fd, piece) < len(piece):
                    self._end_line()
        except OSError as error:
            self._give_up(error, data.count(b"\n"))

    def touch(self) -> bool:
        """Open the file, which makes it where it is not there; False where it cannot be written."""
        if self._fd >= 0 and self._pid == os.getpid():
            return True
        if self._closed or self._broken:
            return False
        try:
            self._open()
        except OSError as error:
            self._give_up(error, 0)
        return not self._broken

    def _end_line(self) -> None:
        """The disk is full in the midst of a line: end it, so that the next one is whole."""
        with contextlib.suppress(OSError):
            os.write(self._fd, b"\n")
        raise OSError("the disk is full")

    def _open(self) -> None:
        # After a fork the number may be another file's by now: it is forgotten, not closed.
        self._fd = -1
        if self._memory < 0:
            self.made = make_file(self.path, header()) or self.made
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._pid = os.getpid()

    def _give_up(self, error: OSError, lines: int) -> None:
        self._broken = True
        self.lost += lines
        if self._fd >= 0 and self._pid == os.getpid():
            os.close(self._fd)
        self._fd = -1
        why = error.strerror or str(error)
        with contextlib.suppress(Advice):  # where warnings are errors, the loop matters more
            warnings.warn(
                f"millhead: events are lost from here on: {why} ({self.path}): give another "
                "directory",
                Advice,
                stacklevel=4,
            )

    def close(self) -> None:
        """Close the file. Later events are dropped."""
        if self._closed:
            return
        self._closed = True
        for fd in (self._fd, self._memory) if self._pid == os.getpid() else (self._memory,):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._fd = self._memory = -1

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()


def _pieces(data: bytes) -> list[bytes]:
    """Whole lines together, at most :data:`WRITE_BYTES` of them."""
    pieces = []
    while len(data) > WRITE_BYTES:
        end = data.rfind(b"\n", 0, WRITE_BYTES) + 1
        pieces.append(data[:end])
        data = data[end:]
    return [*pieces, data]


def make_file(path: str, first_line: str) -> bool:
    """Make the file with its first line in it; False where it is there already.

    It gets its name when the line is in: nobody else's can come before.
    """
    if os.path.exists(path):
        return False
    unnamed = f"{path}.{os.getpid()}.new"
    fd = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, first_line.encode())
        os.link(unnamed, path)
    except FileExistsError:
        return False
    except PermissionError:  # a file system without hard links
        os.rename(unnamed, path)
        return True
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(unnamed)
    return True
