"""A file that is read past the page cache, so that every read waits for the disk."""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from pathlib import Path

PIECE = 256 * 1024
PIECES = 256
#: A disk, where /tmp may be memory; MILLHEAD_TRUTH_DATA names another place.
DIRECTORY = Path(os.environ.get("MILLHEAD_TRUTH_DATA", "/var/tmp"))
FILE = DIRECTORY / f"millhead-truth-{os.getuid()}.bin"

_buffer = mmap.mmap(-1, PIECE)  # aligned, as reads past the cache need it


def make() -> None:
    """Write the file, unless it is there."""
    if FILE.exists() and FILE.stat().st_size == PIECE * PIECES:
        return
    with tempfile.NamedTemporaryFile(dir=DIRECTORY, delete=False) as file:
        for _ in range(PIECES):
            file.write(os.urandom(PIECE))
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, FILE)


def read(first: int, pieces: int) -> None:
    """Read some pieces, as a dataset of files does: open, read, close."""
    descriptor = os.open(FILE, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    try:
        for piece in range(first, first + pieces):
            os.preadv(descriptor, [_buffer], piece * 7 % PIECES * PIECE)
    finally:
        os.close(descriptor)


def seconds_to_read() -> float:
    """What a piece takes on this disk when nobody else wants it: the best of some tries."""
    make()
    tries = []
    for number in range(16):
        began = time.perf_counter()
        read(16 * number, 16)
        tries.append((time.perf_counter() - began) / 16)
    return min(tries)
