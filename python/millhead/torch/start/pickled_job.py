"""A worker's job, pickled once for all workers that start from a template.

The pickle and the large buffers in it (tensors, arrays) lie in one memfd, which the template maps
privately: its workers then share the pages until one of them writes.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import mmap
import os
import pickle
import sys
from multiprocessing import context
from typing import Any

import torch

from millhead.torch.start.machine_limits import check_room
from millhead.torch.workers import pickled_batch
from millhead.torch.workers.batch_worker import Job
from millhead.torch.workers.processes import Descriptor

#: Buffers of arrays from this size on leave the pickle stream.
_LARGE_BYTES = 2**20
#: Pieces begin at multiples of this: a cache line.
_ALIGN = 64


class NotComparableError(Exception):
    """The job holds descriptors or the like: two picklings of it cannot be compared."""


class _Pickler(pickled_batch.Pickler):
    """Keeps small buffers in the stream, and leaves shared tensors shared."""

    def takes_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        return buffer.raw().nbytes >= _LARGE_BYTES

    def takes_tensor(self, tensor: torch.Tensor) -> bool:
        return super().takes_tensor(tensor) and not tensor.is_shared()  # type: ignore[no-untyped-call]


class _NoProcess:
    """Stands for the process being started while a job is pickled only to be compared."""

    @staticmethod
    def duplicate_for_child(fd: int) -> int:
        raise NotComparableError(f"descriptor {fd}")


def _pieces(job: Job) -> list[memoryview]:
    """Where things lie, the pickle stream, the buffers, the memory of tensors."""
    pickler = _Pickler()
    pickler.dump(job)
    tensors, places = pickled_batch.place(pickler.tensors)
    head = pickle.dumps((places, len(pickler.buffers)), 5)
    return [
        memoryview(head),
        pickler.stream.getbuffer(),
        *(buffer.raw() for buffer in pickler.buffers),
        *(_bytes_of(tensor) for tensor in tensors),
    ]


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """A flat uint8 tensor's memory; keeps the tensor."""
    array = (ctypes.c_uint8 * tensor.numel()).from_address(tensor.data_ptr())
    array.owner = tensor  # type: ignore[attr-defined]
    return memoryview(array).cast("B")


def _digest(pieces: list[memoryview]) -> bytes:
    total = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        total.update(piece)
    return total.digest()


def surroundings() -> list[Any]:
    """What a new process has from the one that starts it, besides its job."""
    with contextlib.suppress(OSError):  # the directory may be gone
        return [
            sorted(os.environ.items()),
            sys.path,
            sys.argv,
            sorted(os.sched_getaffinity(0)),
            os.getpriority(os.PRIO_PROCESS, 0),
            os.getcwd(),
        ]
    return []


def digest_of(job: Job) -> bytes | None:
    """What tells whether a job would be pickled the same again; None where nothing can."""
    before = context.get_spawning_popen()
    context.set_spawning_popen(_NoProcess())  # type: ignore[arg-type]
    try:
        return _digest(_pieces(job))
    except NotComparableError:
        return None
    finally:
        context.set_spawning_popen(before)


class PickledJob:
    """A job on its way to a template. Pickle it only while a process is being started."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.digest: bytes | None = None
        self._fd = -1

    def __reduce__(self) -> Any:
        process = context.get_spawning_popen()
        descriptors = len(getattr(process, "_fds", ()))
        pieces = _pieces(self.job)
        if len(getattr(process, "_fds", ())) == descriptors:
            self.digest = _digest(pieces)
        check_room(sum(piece.nbytes for piece in pieces))
        self._fd = os.memfd_create("millhead-job")
        with open(self._fd, "wb", closefd=False) as file:
            for piece in pieces:
                file.seek(_aligned(file.tell()))
                file.write(piece)
        return MappedJob, (Descriptor(self._fd), [piece.nbytes for piece in pieces])

    def close(self) -> None:
        """Give up the memory; a template that has it keeps it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class MappedJob:
    """The same in the template's process."""

    def __init__(self, memory: Descriptor, sizes: list[int]) -> None:
        self._sizes = sizes
        self._memory = memory

    def map(self) -> None:
        length = max(os.fstat(self._memory.fd).st_size, 1)
        # Private: what a worker writes is its own. Kept for as long as the process lives.
        self._map = mmap.mmap(self._memory.fd, length, access=mmap.ACCESS_COPY)
        os.close(self._memory.fd)

    def open(self) -> Job:
        """The job: imports what it needs and runs the user's code for unpickling."""
        view = memoryview(self._map)
        pieces: list[memoryview] = []
        at = 0
        for size in self._sizes:
            at = _aligned(at)
            pieces.append(view[at : at + size])
            at += size
        places, buffer_count = pickle.loads(pieces[0])
        tensors = [_tensor_over(piece) for piece in pieces[2 + buffer_count :]]
        job: Job = pickled_batch.load(pieces[1], pieces[2 : 2 + buffer_count], places, tensors)
        return job

    def holds(self, some: bytes) -> bool:
        """Whether the pickle stream holds some bytes."""
        begin = _aligned(self._sizes[0])
        return self._map.find(some, begin, begin + self._sizes[1]) >= 0


def _tensor_over(piece: memoryview) -> torch.Tensor:
    if piece.nbytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(piece, dtype=torch.uint8)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN
