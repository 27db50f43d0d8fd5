"""Turns batches and generator states into plain values that compare with ``==``.

``describe`` keeps everything a user could notice: container types, key order, dtypes, shapes,
strides and the bytes of every value (so NaN equals itself and -0.0 differs from 0.0).
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _digest(data: bytes) -> str:
    """Short data is kept readable, long data is hashed."""
    return data.hex() if len(data) <= 32 else hashlib.blake2b(data, digest_size=12).hexdigest()


def _tensor_bytes(tensor: torch.Tensor) -> bytes:
    if tensor.numel() == 0 or tensor.is_meta:
        return b""
    if tensor.is_quantized:
        return f"{tensor.qscheme()} {tensor.int_repr().tolist()} {tensor.dequantize()}".encode()
    flat = tensor.detach().resolve_conj().resolve_neg().as_subclass(torch.Tensor).reshape(-1)
    flat = flat.clone(memory_format=torch.contiguous_format)  # a single element may have any stride
    return flat.view(torch.uint8).numpy().tobytes()


def _describe_tensor(tensor: torch.Tensor, strides: bool) -> tuple[Any, ...]:
    head: tuple[Any, ...] = (
        _type_name(tensor),
        str(tensor.dtype),
        str(tensor.layout),
        str(tensor.device),
    )
    if tensor.is_nested:
        return (*head, *(_describe_tensor(part, strides) for part in tensor.unbind()))
    head += (tuple(tensor.shape),)
    if tensor.layout is not torch.strided:
        dense = tensor.detach().to_dense()
        return (*head, tensor.requires_grad, _digest(_tensor_bytes(dense)))
    bits = (tensor.requires_grad, tensor.is_conj(), tensor.is_neg(), tensor.is_inference())
    layout = tuple(tensor.stride()) if strides else ()
    return (*head, layout, *bits, _digest(_tensor_bytes(tensor)))


def describe(value: Any, *, strides: bool = True) -> tuple[Any, ...]:
    """A nested tuple that is equal for two values exactly when a user cannot tell them apart.

    ``strides=False`` forgives differing memory layouts of tensors with equal values.
    """
    name = _type_name(value)
    if isinstance(value, torch.Tensor):
        return _describe_tensor(value, strides)
    if isinstance(value, np.ndarray):
        data = repr(value.tolist()).encode() if value.dtype.hasobject else value.tobytes()
        return (name, value.dtype.str, value.shape, _digest(data))
    if isinstance(value, np.generic):
        return (name, value.dtype.str, _digest(value.tobytes()))
    if isinstance(value, float):
        return (name, struct.pack("<d", value).hex())
    if isinstance(value, str | bytes | int | complex) or value is None:
        return (name, repr(value))
    if isinstance(value, Mapping):
        return (name, *((repr(key), describe(value[key], strides=strides)) for key in value))
    if isinstance(value, set | frozenset):
        return (name, *sorted(repr(item) for item in value))
    if isinstance(value, Sequence):
        return (name, *(describe(item, strides=strides) for item in value))
    if hasattr(value, "__dict__"):
        return (name, describe(vars(value), strides=strides))
    return (name, repr(value))


def describe_error(error: BaseException) -> tuple[str, str]:
    """An exception's class and the first line of its text.

    The first line is what torch promises ("Caught ValueError in DataLoader worker process 1.", or
    the user's own text with 0 workers); what follows it may differ, as a traceback does.
    """
    lines = str(error).splitlines()
    return _type_name(error), lines[0] if lines else ""


def rng_states(generators: Iterable[torch.Generator | None] = ()) -> dict[str, str]:
    """Digests of the three global generators and of the given ones."""
    states = {
        "random": hashlib.blake2b(repr(random.getstate()).encode(), digest_size=8).hexdigest(),
        "numpy": hashlib.blake2b(
            repr([np.asarray(part).tolist() for part in np.random.get_state()]).encode(),
            digest_size=8,
        ).hexdigest(),
        "torch": _state_digest(torch.get_rng_state()),
    }
    for number, generator in enumerate(generators):
        if generator is not None:
            states[f"generator {number}"] = _state_digest(generator.get_state())
    return states


def _state_digest(state: torch.Tensor) -> str:
    return hashlib.blake2b(state.numpy().tobytes(), digest_size=8).hexdigest()


def seed_everything(seed: int) -> None:
    """Sets the three global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def difference(left: Any, right: Any, path: str = "") -> str:
    """Where two described values first differ, in a line; empty when they are equal."""
    if left == right:
        return ""
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        for number, (one, other) in enumerate(zip(left, right, strict=True)):
            found = difference(one, other, f"{path}[{number}]")
            if found:
                return found
    return f"{path or 'value'}: {str(left)[:160]} != {str(right)[:160]}"
