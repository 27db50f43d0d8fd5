"""What ``subset=`` and ``weights=`` of a loader mean: which samples an epoch is made of."""

from __future__ import annotations

import hashlib
import operator
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, SupportsFloat, TypeAlias

from millhead import _core

#: Numbers of samples, a slice of them, or a part of all: 0.1, or (0.1, seed).
Subset: TypeAlias = Iterable[int] | slice | float | tuple[float, int]


@dataclass(frozen=True)
class SampleChoice:
    """As the core takes it; None: all samples, each once."""

    numbers: array[int] | None
    weights: array[float] | None

    @classmethod
    def of(
        cls, subset: Subset | None, weights: Iterable[SupportsFloat] | None, count: int
    ) -> SampleChoice:
        """What the arguments choose of ``count`` samples.

        Raises:
            TypeError, ValueError: an argument makes no sense.
        """
        return cls(
            None if subset is None else _numbers(subset, count),
            None if weights is None else array("d", map(float, weights)),
        )

    def identity(self) -> str | None:
        """A short text that differs where the choice does; None: all samples."""
        if self.numbers is None and self.weights is None:
            return None
        digest = hashlib.sha256()
        for values in (self.numbers, self.weights):
            digest.update(b"-" if values is None else values.tobytes())
        return digest.hexdigest()[:16]


def _numbers(subset: Subset, count: int) -> array[int]:
    if isinstance(subset, slice):
        return array("Q", range(*subset.indices(count)))
    if isinstance(subset, float):
        return _part(subset, 0, count)
    if isinstance(subset, tuple) and len(subset) == 2 and isinstance(subset[0], float):
        return _part(subset[0], operator.index(subset[1]), count)
    if isinstance(subset, (str, bytes)) or not isinstance(subset, Iterable):
        raise TypeError(
            "subset should be numbers of samples, a slice, a part like 0.1, or (part, seed), but "
            f"got {subset!r}"
        )
    return array("Q", [_from_the_front(number, count) for number in subset])


def _from_the_front(number: Any, count: int) -> int:
    index = operator.index(number)
    if not -count <= index < count:
        raise ValueError(f"the subset has number {index}, and there are {count} samples")
    return index % count


def _part(part: float, seed: int, count: int) -> array[int]:
    """The samples that a full shuffle begins with, in the order of the data."""
    if not 0 < part <= 1:
        raise ValueError(f"a part of the samples should be above 0 and at most 1, but got {part!r}")
    shuffled = _core.Order("keyed", "uneven", count, 0, 1, 0, seed, 0)
    return array("Q", sorted(shuffled[nth] for nth in range(max(1, round(part * count)))))
