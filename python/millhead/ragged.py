"""A field whose samples have shapes of their own: all values in one array, one sample behind the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["Ragged"]


class Ragged:
    """A batch of arrays of different shapes, without padding.

    ``ragged[i]`` is sample i, a view in its own shape. Arrays are those that the loader's ``output``
    says; with ``"jax"`` only ``values`` are, the places are NumPy's.

    Attributes:
        values: all values, in one dimension.
        offsets: where each sample begins in ``values``; one more for the end of the last.
        shapes: the shape of each sample, a row each.
    """

    __slots__ = ("offsets", "shapes", "values")

    def __init__(self, values: Any, offsets: Any, shapes: Any) -> None:
        self.values = values
        self.offsets = offsets
        self.shapes = shapes

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, index: int) -> Any:
        """Sample ``index``, a view.

        Raises:
            IndexError: there is no such sample.
        """
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"no sample {index}: there are {count}")
        index %= count
        start, end = int(self.offsets[index]), int(self.offsets[index + 1])
        return self.values[start:end].reshape(tuple(self.shapes[index].tolist()))

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return f"Ragged({len(self)} samples of {self.values.dtype}, {len(self.values)} values)"

    def padded(self, value: Any = 0) -> Any:
        """One array with room for the largest sample each, filled up with ``value``."""
        shapes = self.shapes.tolist()
        largest = [max(lengths) for lengths in zip(*shapes, strict=True)]
        size = (len(self), *largest)
        if hasattr(self.values, "new_full"):
            whole, samples = self.values.new_full(size, value), self
        else:
            import numpy

            whole = numpy.full(size, value, self.values.dtype)
            samples = Ragged(numpy.asarray(self.values), self.offsets, self.shapes)
        for index, sample in enumerate(samples):
            whole[(index, *(slice(length) for length in sample.shape))] = sample
        if type(self.values).__module__.startswith("jax"):
            return self.values.__array_namespace__().asarray(whole)
        return whole

    def nested(self) -> Any:
        """A nested tensor of torch's, in its jagged layout.

        Raises:
            TypeError: the arrays are not torch's.
            ValueError: samples differ in more than their first dimension.
        """
        import torch

        if not isinstance(self.values, torch.Tensor):
            raise TypeError("nested() is torch's: give the loader output='torch'")
        rest = self.shapes[:1, 1:]
        if bool((self.shapes[:, 1:] != rest).any()):
            raise ValueError("nested() needs samples that differ in their first dimension only")
        row = int(rest.prod()) if len(rest) else 1
        values = self.values.reshape(-1, *(rest[0].tolist() if len(rest) else ()))
        offsets = self.offsets if row == 1 else self.offsets // max(row, 1)
        return torch.nested.nested_tensor_from_jagged(values, offsets)

    def to(self, *arguments: Any, **keywords: Any) -> Ragged:
        """The same with ``values.to(...)``, for a device or another type."""
        return Ragged(self.values.to(*arguments, **keywords), self.offsets, self.shapes)

    def pin_memory(self) -> Ragged:
        """The same in pinned memory, for torch's loader and Lightning."""
        return Ragged(self.values.pin_memory(), self.offsets, self.shapes)
