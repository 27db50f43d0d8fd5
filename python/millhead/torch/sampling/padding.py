"""Collate samples of different lengths: padded to the longest of the batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import default_collate


def pad_collate(samples: list[Any], value: float = 0) -> tuple[Any, Any]:
    """``(batch, lengths)``: tensors and arrays padded along their first dimension.

    Tuples, lists and dicts are gone into, as ``default_collate`` does; what is no tensor or array,
    or one without dimensions, is collated as there. ``lengths`` has the shape of the batch: a
    tensor for what is padded, and nothing for the rest.

    Args:
        value: what to pad with; ``functools.partial(pad_collate, value=-100)`` for another.

    Raises:
        ValueError: tensors differ in a dimension other than their first, or samples in their parts.

        >>> from millhead.torch import pad_collate
        >>> (tokens, labels), (lengths,) = pad_collate([(torch.ones(1), 7), (torch.ones(3), 8)])
        >>> tokens.tolist(), labels.tolist(), lengths.tolist()
        ([[1.0, 0.0, 0.0], [1.0, 1.0, 1.0]], [7, 8], [1, 3])
    """
    first = samples[0]
    if isinstance(first, Mapping):
        pairs = {key: pad_collate([sample[key] for sample in samples], value) for key in first}
        batch = {key: part for key, (part, _) in pairs.items()}
        return batch, {key: known for key, (_, known) in pairs.items() if known is not None}
    if isinstance(first, (tuple, list)):
        columns = zip(*samples, strict=True)
        parts, lengths = zip(*(pad_collate(list(column), value) for column in columns), strict=True)
        named = type(first)(*parts) if hasattr(first, "_fields") else list(parts)
        return named, [known for known in lengths if known is not None]
    if getattr(first, "ndim", 0) == 0:
        return default_collate(samples), None
    return _pad([torch.as_tensor(sample) for sample in samples], value)


def _pad(tensors: list[torch.Tensor], value: float) -> tuple[torch.Tensor, torch.Tensor]:
    shapes = sorted({tuple(tensor.shape[1:]) for tensor in tensors})
    if len(shapes) > 1:
        raise ValueError(
            f"tensors of a batch differ beyond their first dimension ({shapes[0]} and {shapes[1]}): "
            "only the first is padded"
        )
    lengths = [len(tensor) for tensor in tensors]
    batch = tensors[0].new_full((len(tensors), max(lengths), *shapes[0]), value)
    for row, tensor in zip(batch, tensors, strict=True):
        row[: len(tensor)] = tensor
    return batch, torch.tensor(lengths)
