"""Randomness that belongs to a position: what ``dispatch="sample"`` seeds generators with.

Before each sample the global generators are seeded from (base seed, epoch, position of the sample),
before a batch is collated from (base seed, epoch, number of the batch). So a sample draws the same
numbers whoever loads it. The formulas below are never to change: results depend on them.
"""

from __future__ import annotations

import _random
import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

NAMES = ("random", "numpy", "torch")

_MASK = 2**64 - 1


def mix(number: int) -> int:
    """64 bits that look unrelated to those of any other number: SplitMix64's output function."""
    bits = (number + 0x9E3779B97F4A7C15) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return bits ^ (bits >> 31)


def epoch_key(base_seed: int, epoch: int) -> int:
    """What all keys of an epoch are made from."""
    return mix(mix(base_seed) + epoch)


def sample_key(epoch: int, position: int) -> int:
    """The key of a sample; ``epoch`` is an :func:`epoch_key`."""
    return mix(epoch + position)


def batch_key(epoch: int, number: int) -> int:
    """The key of a batch's collation: of another sequence than the samples' keys."""
    return mix(mix(epoch) + number)


def check_names(rng: Any) -> tuple[str, ...]:
    """The generators of ``rng=``. Raises ValueError for anything but a sequence of known names."""
    names = () if isinstance(rng, str) or not isinstance(rng, Sequence) else tuple(rng)
    if rng not in ((), []) and (not names or any(name not in NAMES for name in names)):
        raise ValueError(f"rng should name some of {NAMES}, but got {rng!r}")
    return names


class Generators:
    """Global generators, to be seeded thousands of times a second.

    Only those of the CPU: an accelerator's generators belong to the trainer. A generator of a
    library that is not installed is left out.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._torch: Callable[[int], Any] | None = None
        self._random: Any = None
        self._numpy: Any = None
        if "torch" in names:
            # torch.manual_seed would also speak to every accelerator, for half a millisecond
            self._torch = torch.default_generator.manual_seed
        if "random" in names:
            self._random = random._inst
        if "numpy" in names:
            with contextlib.suppress(ImportError):
                import numpy.random

                self._numpy = numpy.random

    def seed(self, key: int) -> None:
        """Seed all of them from a key. Torch and numpy take 32 bits: each its own half, because
        the same half would give both the same sequence."""
        if self._torch is not None:
            self._torch(key)  # the low half counts
        if self._random is not None:
            # What random.seed(key) does with a number, without its questions
            _random.Random.seed(self._random, key)
            self._random.gauss_next = None
        if self._numpy is not None:
            self._numpy.seed(key >> 32)

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[None]:
        """Leaves the generators as they were."""
        kept: list[tuple[Callable[[Any], Any], Any]] = []
        if self._torch is not None:
            kept.append((torch.default_generator.set_state, torch.default_generator.get_state()))
        if self._random is not None:
            kept.append((random.setstate, random.getstate()))
        if self._numpy is not None:
            kept.append((self._numpy.set_state, self._numpy.get_state(legacy=False)))
        try:
            yield
        finally:
            for restore, state in kept:
                restore(state)
