"""Random generators at one moment: taken, put back, and written as text.

Nothing here is pickled: a saved state may come from anywhere.
"""

from __future__ import annotations

import base64
import ctypes
import random
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch

try:
    import numpy
    import numpy.random  # numpy loads it only when asked: here, not under a training loop's limits
except ImportError:
    numpy = None  # type: ignore[assignment]

_LENGTHS = struct.Struct("<II")  # of the parts of random and numpy
_RANDOM = struct.Struct("<625I?d")  # Mersenne Twister and its place, then a spare normal value
_NUMPY = struct.Struct("<i?d")  # what follows the 624 words

#: Samplers to look at: some make up whatever attribute they are asked for.
MOST_SAMPLERS = 16


def _attribute(place: Any, name: str) -> Any:
    """None where it has none, or none yet: a property may raise whatever it likes."""
    try:
        return getattr(place, name, None)
    except Exception:  # noqa: BLE001 - the user's own code, which torch would not have run
        return None


def _samplers(loader: Any) -> list[tuple[str, Any]]:
    """A loader's samplers and those within them: frameworks wrap the user's, some more than once."""
    found = [("sampler", loader.sampler), ("batch_sampler", loader.batch_sampler)]
    for name, place in found:  # grows meanwhile
        for attribute in ("sampler", "batch_sampler"):
            within = _attribute(place, attribute)
            if within is not None and not any(within is known for _, known in found):
                found.append((f"{name}.{attribute}", within))
        if len(found) >= MOST_SAMPLERS:
            break
    return found


def own_generators(loader: Any) -> Iterator[tuple[str, torch.Generator]]:
    """The generators a loader and its samplers were given, each once, by where they are found."""
    seen: set[int] = set()
    for name, place in (("loader", loader), *_samplers(loader)):
        generator = _attribute(place, "generator")
        if isinstance(generator, torch.Generator) and id(generator) not in seen:
            seen.add(id(generator))
            yield name, generator


class RngState:
    """The global generators of ``random``, numpy and torch, and a loader's own."""

    def __init__(self, states: dict[str, Any], own: dict[str, torch.Tensor]) -> None:
        self.states = states
        self.own = own

    @classmethod
    def now(cls, loader: Any = None) -> RngState:
        """As they are; without a loader the global ones alone."""
        states = {
            "random": random.getstate(),
            "numpy": _numpy_now(),
            "torch": torch.default_generator.get_state(),
        }
        own = {} if loader is None else {n: g.get_state() for n, g in own_generators(loader)}
        return cls(states, own)

    def put_back(self) -> None:
        """Set the global generators."""
        random.setstate(self.states["random"])
        if self.states["numpy"] is not None and numpy is not None:
            numpy.random.set_state(self.states["numpy"])
        torch.default_generator.set_state(self.states["torch"])

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Run under these global generators; the caller's stay as they were, unless those are the
        same: then the draws are the caller's own."""
        before = RngState.now()
        self.put_back()
        try:
            yield
        finally:
            if not before.same_global(self):
                before.put_back()

    def put_back_own(self, loader: Any) -> None:
        """Set the generators that the loader has, and had then."""
        for name, generator in own_generators(loader):
            if name in self.own:
                generator.set_state(self.own[name])

    def same_global(self, other: RngState) -> bool:
        """Whether the global generators were the same."""
        return self.text == other.text

    def to_dict(self) -> dict[str, Any]:
        """For a checkpoint, JSON included."""
        own = {name: _to_text(_tensor_bytes(state)) for name, state in self.own.items()}
        return {"global": self.text, "own": own}

    @classmethod
    def from_dict(cls, saved: Any) -> RngState:
        """What ``to_dict`` gave; ValueError, TypeError or KeyError for anything else."""
        own = {name: _tensor(_from_text(text)) for name, text in saved["own"].items()}
        return cls(cls.decode(saved["global"]).states, own)

    @cached_property
    def text(self) -> str:
        """The global generators as text."""
        _, words, spare = self.states["random"]
        of_random = _RANDOM.pack(*words, spare is not None, spare or 0.0)
        of_numpy = b""
        if self.states["numpy"] is not None:
            _, words, place, has_spare, spare = self.states["numpy"]
            of_numpy = words.tobytes() + _NUMPY.pack(place, bool(has_spare), spare)
        lengths = _LENGTHS.pack(len(of_random), len(of_numpy))
        return _to_text(lengths + of_random + of_numpy + _tensor_bytes(self.states["torch"]))

    @classmethod
    def decode(cls, text: str) -> RngState:
        """What ``text`` was; ValueError for anything else."""
        data = _from_text(text)
        try:
            of_random, of_numpy = _LENGTHS.unpack_from(data)
            middle = _LENGTHS.size + of_random
            last = middle + of_numpy
            *words, has_spare, spare = _RANDOM.unpack(data[_LENGTHS.size : middle])
            states: dict[str, Any] = {
                "random": (3, tuple(words), spare if has_spare else None),
                "numpy": _numpy_state(data[middle:last]) if of_numpy else None,
                "torch": _tensor(data[last:]),
            }
            torch.Generator().set_state(states["torch"])
        except (struct.error, RuntimeError) as error:
            raise ValueError(f"not the states of generators: {error}") from None
        return cls(states, {})


def _to_text(data: bytes) -> str:
    """With a checksum: a generator in another state would go unnoticed for ever."""
    return f"{base64.b64encode(data).decode()}:{zlib.crc32(data):08x}"


def _from_text(text: str) -> bytes:
    body, _, checksum = text.partition(":")
    data = base64.b64decode(body, validate=True)
    if checksum and checksum != f"{zlib.crc32(data):08x}":
        raise ValueError("the state of a generator was changed after it was saved")
    return data


def _tensor_bytes(state: torch.Tensor) -> bytes:
    return ctypes.string_at(state.data_ptr(), state.numel())


def _tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _numpy_now() -> Any:
    """None without numpy, and where the user chose another kind of generator."""
    state: Any = None if numpy is None else numpy.random.get_state()
    return state if state is not None and state[0] == "MT19937" else None


def _numpy_state(data: bytes) -> Any:
    if numpy is None:
        return None
    place, has_spare, spare = _NUMPY.unpack(data[-_NUMPY.size :])
    words = numpy.frombuffer(data[: -_NUMPY.size], dtype=numpy.uint32)
    return "MT19937", words, place, int(has_spare), spare
