"""Batches of the native pipeline as dicts of torch tensors, NumPy or JAX arrays."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from millhead import _core
from millhead._data_options import PLAIN, DataOptions
from millhead.ragged import Ragged

#: What ``data=`` may be.
Data = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

#: The field that holds the samples' numbers, when it is named.
INDEX = "_index"

_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex"}


class Field(NamedTuple):
    """One field of every sample."""

    dtype: str
    #: Of one sample; of a ragged field the largest that one may have.
    shape: tuple[int, ...]
    ragged: bool = False


def _smallest(core: _core.Dataset) -> str:
    """The field of the fewest bytes a sample."""

    def size(field: tuple[Any, ...]) -> tuple[bool, int]:
        _, _, bits, shape, ragged = field
        return bool(ragged), math.prod(shape) * bits

    name: str = min(core.fields, key=size)[0]
    return name


class Opened:
    """A dataset of the core, and how what it reads becomes a dict.

    Raises:
        ValueError: a field or an output nobody knows.
        FileNotFoundError, OSError, millhead.Error: the data cannot be read, by path.
    """

    def __init__(
        self,
        data: Data,
        fields: Iterable[str] | None,
        output: str | None,
        options: DataOptions = PLAIN,
    ) -> None:
        paths = [data] if isinstance(data, str | os.PathLike) else list(data)
        names = None if fields is None else _names(fields)
        wanted = None if names is None else [name for name in names if name != INDEX]
        self.core = _open(paths, wanted or (), options)
        if wanted == []:  # numbers alone: what takes least is read beside them, and dropped
            self.core = _open(paths, [_smallest(self.core)], options)
        #: What batches hold: "torch", "numpy" or "jax".
        self.kind = _kind(output)
        self.convert = _converter(self.kind)
        places = {name: at for at, (name, *_) in enumerate(self.core.fields)}
        #: Names in the order of a batch, and where the core has them; the numbers come last.
        self.places = [
            (name, len(places) if name == INDEX else places[name])
            for name in (places if names is None else names)
        ]

    def fields(self) -> dict[str, Field]:
        """Type and shape of each field of a sample, ``_index`` too if it was named."""
        known = [
            Field("bool" if code == 6 else f"{_KINDS[code]}{bits}", shape, bool(ragged))
            for _, code, bits, shape, ragged in self.core.fields
        ]
        known.append(Field("int64", ()))
        return {name: known[at] for name, at in self.places}

    def summary(self) -> str:
        """The fields in a few words: "image uint8 (467, 623, 3) ragged, label int64"."""
        return ", ".join(
            " ".join(
                [name, field.dtype, *([str(field.shape)] if field.shape else [])]
                + ["ragged"] * field.ragged
            )
            for name, field in self.fields().items()
        )

    def batch(self, arrays: tuple[_core.NativeField, ...]) -> dict[str, Any]:
        """What the core read, by name."""
        return {name: self._field(arrays[at]) for name, at in self.places}

    def _field(self, array: _core.NativeField) -> Any:
        if not isinstance(array, tuple):
            return self.convert(array)
        # Where samples begin is for the host; JAX's numbers have 32 bits unless it is told otherwise.
        place = _as_numpy if self.kind == "jax" else self.convert
        return Ragged(self.convert(array[0]), *(place(part) for part in array[1:]))


def _open(
    paths: Sequence[str | os.PathLike[str]], fields: Sequence[str], options: DataOptions
) -> _core.Dataset:
    names = [os.fsencode(path) for path in paths]
    return _core.Dataset(names, [os.fsencode(field) for field in fields], **options.texts())


def _names(fields: Iterable[str]) -> list[str]:
    if isinstance(fields, str):
        raise TypeError(f"fields should be a list of names, but got {fields!r}")
    return list(dict.fromkeys(fields))


def _kind(output: str | None) -> str:
    """Whose arrays are delivered: those asked for; torch's where it can be imported, else NumPy's.

    Raises:
        ValueError: an output nobody knows.
        ImportError: what was asked for cannot be imported.
    """
    if output not in (None, "torch", "numpy", "jax"):
        raise ValueError(f"output should be 'torch', 'numpy', 'jax' or None, but got {output!r}")
    if output is not None:
        importlib.import_module(output)
        return output
    try:
        importlib.import_module("torch")
    except ImportError:
        return "numpy"
    return "torch"


def bind_dlpack() -> None:
    """Make known to the core how torch makes a tensor over memory of ours."""
    import torch
    from torch.utils.dlpack import from_dlpack

    # Since torch 2.10. An older torch is served through what every tensor has: slower by a microsecond
    # for each tensor of a batch.
    table = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    _core.bind_dlpack(table, from_dlpack)


def _as_numpy(array: _core.NativeArray) -> Any:
    import numpy

    return numpy.asarray(array)


def _converter(kind: str) -> Callable[[_core.NativeArray], Any]:
    """What makes an array of that kind, over the same memory."""
    if kind == "torch":
        bind_dlpack()
        return _core.tensor_over
    if kind == "jax":
        from_dlpack: Callable[[_core.NativeArray], Any] = importlib.import_module(
            "jax.dlpack"
        ).from_dlpack
        return from_dlpack
    return _as_numpy
