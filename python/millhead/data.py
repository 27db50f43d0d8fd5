"""Datasets that come with millhead: :class:`Dummy`, whose every cost is known beforehand."""

from __future__ import annotations

import hashlib
import math
import os
import random
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Dummy"]

#: How a latency may be spread, and the numbers (seconds, but for sigma) that describe it.
LATENCIES: dict[str, tuple[str, ...]] = {
    "constant": ("seconds",),
    "uniform": ("least", "most"),
    "exponential": ("mean",),
    "lognormal": ("median", "sigma"),
}


@dataclass(eq=False)
class Dummy:
    """A map-style dataset that costs what it is told to, for measuring loaders.

    >>> from millhead.data import Dummy
    >>> Dummy(length=10, shape=(2,), latency=("uniform", 0.0, 0.001))[3]
    array([3., 3.], dtype=float32)

    A sample is filled with its index. What it costs depends on ``seed`` and the index alone: not
    on the process that loads it, and no global generator is touched. CPU seconds are measured on
    the thread's own clock, so they are the same on a busy machine.

    Attributes:
        length: number of samples.
        shape: of a sample's array; a list of shapes makes a tuple of arrays, a mapping a dictionary.
        dtype: of all arrays, by numpy's name.
        latency: seconds of waiting without CPU, as for a remote store: a number, or
            ``("uniform", least, most)``, ``("exponential", mean)``, ``("lognormal", median, sigma)``.
        tail: ``(probability, seconds)``: few samples that wait this much longer.
        python_cpu: CPU seconds of interpreted Python.
        native_cpu: CPU seconds inside native code, which runs no Python meanwhile.
        read: bytes read from a file, for each sample from a place of its own.
        file: that file; made where missing. None: a temporary one, gone with the dataset.
        cold: drop what is read from the page cache first, so that the disk is asked. (Filesystems
            that live in memory cannot forget: choose a ``file`` on a disk.)
        failure_rate: share of samples that raise ValueError, whenever they are asked for.
        growth: bytes that stay allocated for each sample loaded.
        collate_cpu: CPU seconds of Python a batch, in :meth:`collate`.
        seed: another seed has its costs at other samples.
        tensors: torch tensors instead of numpy arrays.
    """

    length: int = 1000
    shape: Any = (3, 32, 32)
    dtype: str = "float32"
    latency: float | tuple[Any, ...] = 0.0
    tail: tuple[float, float] = (0.0, 0.0)
    python_cpu: float = 0.0
    native_cpu: float = 0.0
    read: int = 0
    file: str | None = None
    cold: bool = False
    failure_rate: float = 0.0
    growth: int = 0
    collate_cpu: float = 0.0
    seed: int = 0
    tensors: bool = False
    _kept: list[bytes] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        _check_latency(self.latency)
        for name in ("length", "python_cpu", "native_cpu", "read", "growth", "collate_cpu"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} should be 0 or more, got {getattr(self, name)!r}")
        for name, share in (("failure_rate", self.failure_rate), ("tail", self.tail[0])):
            if not 0 <= share <= 1:
                raise ValueError(f"{name} should be a probability of 0 to 1, got {share!r}")
        np.dtype(self.dtype)
        if self.read:
            self._make_file()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.length:
            raise IndexError(f"index {index} is outside of {self.length} samples")
        fails, seconds = self._fate(index)
        if fails:
            raise ValueError(f"dummy sample {index} cannot be loaded (failure_rate)")
        if seconds:
            time.sleep(seconds)
        if self.read:
            self._read(index)
        burn_python(self.python_cpu)
        burn_native(self.native_cpu)
        if self.growth:
            self._kept.append(b"\x01" * self.growth)
        return self._leaves(lambda shape: self._leaf(shape, index))

    def collate(self, samples: Sequence[Any]) -> Any:
        """A batch of samples: torch's default where torch is in use, else stacked arrays."""
        burn_python(self.collate_cpu)
        if "torch" in sys.modules:
            from torch.utils.data import default_collate

            return default_collate(list(samples))
        if isinstance(self.shape, Mapping):
            return {name: np.stack([sample[name] for sample in samples]) for name in self.shape}
        if _is_shape(self.shape):
            return np.stack(samples)
        return tuple(np.stack(leaf) for leaf in zip(*samples, strict=True))

    def _fate(self, index: int) -> tuple[bool, float]:
        """Whether a sample fails, and how long it waits; drawn alike whatever is switched on."""
        kind, numbers = _spread(self.latency)
        if kind == "constant" and not self.failure_rate and not self.tail[0]:
            return False, numbers[0]
        draw = random.Random(self.seed << 64 | int(index))
        fails = draw.random() < self.failure_rate
        seconds = self.tail[1] if draw.random() < self.tail[0] else 0.0
        if kind == "constant":
            seconds += numbers[0]
        elif kind == "uniform":
            seconds += draw.uniform(*numbers)
        elif kind == "exponential":
            seconds += draw.expovariate(1 / numbers[0]) if numbers[0] else 0.0
        else:
            seconds += numbers[0] * math.exp(draw.gauss(0.0, numbers[1]))
        return fails, seconds

    def _leaves(self, make: Callable[[tuple[int, ...]], Any]) -> Any:
        if isinstance(self.shape, Mapping):
            return {name: make(shape) for name, shape in self.shape.items()}
        if _is_shape(self.shape):
            return make(tuple(self.shape))
        return tuple(make(shape) for shape in self.shape)

    def _leaf(self, shape: tuple[int, ...], index: int) -> Any:
        array = np.empty(shape, self.dtype)
        array[...] = np.array(index).astype(self.dtype)  # a small dtype wraps, it does not raise
        if not self.tensors:
            return array
        import torch

        return torch.from_numpy(array)

    def _make_file(self) -> None:
        """Sees to it that there are as many bytes as all samples read."""
        size = self.read * self.length
        if self.file is None:
            descriptor, self.file = tempfile.mkstemp(prefix="millhead-dummy-")
            weakref.finalize(self, _remove, self.file, os.getpid())
        else:
            descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with open(descriptor, "r+b", buffering=0) as file:
            have = file.seek(0, os.SEEK_END)
            block = os.urandom(1 << 20)  # nothing a filesystem could compress
            while have < size:
                have += file.write(block[: size - have])
            os.fsync(descriptor)  # pages that are not yet on the disk cannot be dropped

    def _read(self, index: int) -> None:
        """Reads the sample's bytes, as a dataset of files does: open, read, close."""
        assert self.file is not None
        descriptor = os.open(self.file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            offset = self.read * index
            if self.cold:
                # the whole file: the kernel caches it in pieces larger than a sample and drops
                # only whole ones
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                # no reading ahead: the neighbours' bytes would be warm
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            if len(os.pread(descriptor, self.read, offset)) != self.read:
                raise OSError(f"{self.file} is shorter than {self.read * self.length} bytes")
        finally:
            os.close(descriptor)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": []}  # what grew stays where it grew


def burn_python(seconds: float) -> None:
    """Spend CPU seconds of this thread in the interpreter."""
    if seconds <= 0:
        return
    end = time.thread_time() + seconds
    number = 1
    while time.thread_time() < end:
        for _ in range(100):  # a few microseconds between looks at the clock
            number = (number * 1103515245 + 12345) & 0x7FFFFFFF


def burn_native(seconds: float) -> None:
    """Spend CPU seconds of this thread inside native calls, nearly all of it in the first one."""
    global _native_rate
    if seconds <= 0:
        return
    began = time.thread_time()
    if not _native_rate:
        _native_rate = _derive(2000) or 1e6
    while (left := seconds - (time.thread_time() - began)) > 20e-6:
        rounds = int(left * _native_rate)
        rate = _derive(max(rounds, 1))
        if rounds > 1000:  # a short call says little about the speed
            _native_rate = rate


#: Rounds of key derivation a CPU second, as last seen in this process.
_native_rate = 0.0


def _derive(rounds: int) -> float:
    """Hashes in one native call, which needs next to no memory; its rounds a second."""
    began = time.thread_time()
    hashlib.pbkdf2_hmac("sha256", b"mill", b"head", rounds)
    took = time.thread_time() - began
    return rounds / took if took > 0 else 0.0


def _is_shape(shape: Any) -> bool:
    """Whether it is one shape and not several."""
    return all(isinstance(size, int) for size in shape)


def _spread(latency: float | tuple[Any, ...]) -> tuple[str, tuple[float, ...]]:
    if isinstance(latency, int | float):
        return "constant", (latency,)
    return latency[0], tuple(latency[1:])


def _check_latency(latency: float | tuple[Any, ...]) -> None:
    kind, numbers = _spread(latency)
    if kind not in LATENCIES:
        raise ValueError(f"latency {kind!r} is unknown: one of {', '.join(LATENCIES)}")
    if len(numbers) != len(LATENCIES[kind]) or not all(number >= 0 for number in numbers):
        wanted = ", ".join(LATENCIES[kind])
        raise ValueError(f"latency {kind!r} takes ({wanted}), each 0 or more, got {numbers!r}")


def _remove(file: str, owner: int) -> None:
    """Deletes a temporary file, unless this is a worker that inherited its dataset."""
    if os.getpid() == owner and os.path.exists(file):
        os.unlink(file)
