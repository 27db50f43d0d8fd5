"""Random generators at one moment: taken, put back, and written down as text.

Nothing here is pickled: a saved position may come from anywhere.
"""

from __future__ import annotations

import base64
import ctypes
import random
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import torch

try:
    import numpy
    import numpy.random  # numpy loads it only when asked: here, not under a training loop's limits
except ImportError:
    numpy = None  # type: ignore[assignment]

_RANDOM = struct.Struct("<625I?d")  # Mersenne Twister and its place, then a spare normal value
_NUMPY = struct.Struct("<i?d")  # what follows the 624 words

#: Further in than so many samplers nobody looks: some make up whatever attribute they are asked for.
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


def _sealed(data: bytes) -> str:
    """As text with a check sum: a generator in another state would go unnoticed for ever."""
    return f"{base64.b64encode(data).decode()}:{zlib.crc32(data):08x}"


def _unsealed(text: str) -> bytes:
    body, _, check = text.partition(":")
    data = base64.b64decode(body, validate=True)
    if check and check != f"{zlib.crc32(data):08x}":
        raise ValueError("the state of a generator was changed after it was saved")
    return data


def _torch_bytes(state: torch.Tensor) -> bytes:
    return ctypes.string_at(state.data_ptr(), state.numel())


def _torch_state(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _random_bytes(state: Any) -> bytes:
    _, words, spare = state
    return _RANDOM.pack(*words, spare is not None, spare or 0.0)


def _random_state(data: bytes) -> Any:
    *words, has_spare, spare = _RANDOM.unpack(data)
    return 3, tuple(words), spare if has_spare else None


def _numpy_bytes(state: Any) -> bytes:
    _, words, place, has_spare, spare = state
    return bytes(words.tobytes() + _NUMPY.pack(place, bool(has_spare), spare))


def _numpy_state(data: bytes) -> Any:
    place, has_spare, spare = _NUMPY.unpack(data[-_NUMPY.size :])
    words = numpy.frombuffer(data[: -_NUMPY.size], dtype=numpy.uint32)
    return "MT19937", words, place, int(has_spare), spare


def _numpy_now() -> Any:
    if numpy is None:
        return None
    state: Any = numpy.random.get_state()
    return state if state[0] == "MT19937" else None


class Moment:
    """The global generators of ``random``, numpy and torch, and a loader's own."""

    def __init__(self, states: dict[str, Any], own: dict[str, torch.Tensor]) -> None:
        self.states = states
        self.own = own
        self._text: dict[str, Any] | None = None

    @classmethod
    def now(cls, loader: Any = None) -> Moment:
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

    def put_back_own(self, loader: Any) -> None:
        """Set the generators that the loader has, and had then."""
        for name, generator in own_generators(loader):
            if name in self.own:
                generator.set_state(self.own[name])

    def same_global(self, other: Moment) -> bool:
        """Whether the global generators were the same."""
        return bool(self.to_text()["global"] == other.to_text()["global"])

    def to_text(self) -> dict[str, Any]:
        """For a checkpoint, JSON included."""
        if self._text is None:
            self._text = {
                "global": self.encode(),
                "own": {n: _sealed(_torch_bytes(s)) for n, s in self.own.items()},
            }
        return self._text

    @classmethod
    def from_text(cls, text: Any) -> Moment:
        """What ``to_text`` wrote; ValueError, TypeError or KeyError for anything else."""
        own = {n: _torch_state(_unsealed(s)) for n, s in text["own"].items()}
        found = cls.decode(text["global"])
        found.own = own
        return found

    def encode(self) -> str:
        """The global generators as text."""
        parts = (
            _random_bytes(self.states["random"]),
            b"" if self.states["numpy"] is None else _numpy_bytes(self.states["numpy"]),
            _torch_bytes(self.states["torch"]),
        )
        head = struct.pack("<II", len(parts[0]), len(parts[1]))
        return _sealed(head + b"".join(parts))

    @classmethod
    def decode(cls, text: str) -> Moment:
        """What ``encode`` gave; ValueError for anything else."""
        data = _unsealed(text)
        try:
            first, second = struct.unpack_from("<II", data)
            middle, last = 8 + first, 8 + first + second
            states = {
                "random": _random_state(data[8:middle]),
                "numpy": _numpy_state(data[middle:last]) if second and numpy is not None else None,
                "torch": _torch_state(data[last:]),
            }
            torch.Generator().set_state(states["torch"])
        except (struct.error, RuntimeError) as error:
            raise ValueError(f"not the states of generators: {error}") from None
        return cls(states, {})
