"""An item as bytes on the way from one process to another: pickled, with large arrays beside it.

Small items travel in the message. Large ones lie in a memfd whose descriptor travels; the receiver maps
it, and arrays are made over the mapping without a copy: writable, the loop's own, gone with the last of
them.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
from typing import Any

#: More bytes than this go through a memfd.
INLINE = 64 * 1024
_ALIGN = 64
_COUNT = struct.Struct("<Q")


def _up(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def pack(item: Any) -> tuple[bytes, int]:
    """The message, and a descriptor the caller owns and closes (-1: all is in the message)."""
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(item, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(text), *(buffer.raw() for buffer in buffers)]
    sizes = [part.nbytes for part in parts]
    head = _COUNT.pack(len(parts)) + struct.pack(f"<{len(sizes)}Q", *sizes)
    if len(head) + sum(map(_up, sizes)) <= INLINE:
        return head + b"".join(bytes(part).ljust(_up(part.nbytes), b"\0") for part in parts), -1
    return head, _into_memory(parts, sizes)


def _into_memory(parts: list[memoryview], sizes: list[int]) -> int:
    total = sum(map(_up, sizes))
    descriptor = os.memfd_create("millhead-prefetch", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, total)
        with mmap.mmap(descriptor, total) as memory:
            at = 0
            for part, size in zip(parts, sizes, strict=True):
                memory[at : at + size] = part
                at += _up(size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def unpack(message: bytes, descriptor: int) -> Any:
    """The item; the descriptor stays the caller's.

    Raises:
        ValueError: the message does not fit its memory.
    """
    (count,) = _COUNT.unpack_from(message)
    head = _COUNT.size * (1 + count)
    if len(message) < head:
        raise ValueError("a message of a prefetching process is cut off")
    sizes = struct.unpack_from(f"<{count}Q", message, _COUNT.size)
    memory = memoryview(bytearray(message[head:])) if descriptor < 0 else _mapped(descriptor)
    if sum(map(_up, sizes)) > memory.nbytes:
        raise ValueError("an item of a prefetching process does not fit its memory")
    parts, at = [], 0
    for size in sizes:
        parts.append(memory[at : at + size])
        at += _up(size)
    return pickle.loads(parts[0], buffers=parts[1:])  # by our own child


def _mapped(descriptor: int) -> memoryview:
    size = os.fstat(descriptor).st_size
    try:
        return memoryview(mmap.mmap(descriptor, size))
    except OSError:  # more mappings than a process may have: so many items are kept
        copy = bytearray(size)
        os.preadv(descriptor, [copy], 0)
        return memoryview(copy)
