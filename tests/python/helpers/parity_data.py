"""Iterable datasets, and rows that are in memory already, for both loaders.

Everything is importable, so that it also works in workers started by spawn and forkserver.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    ChainDataset,
    IterableDataset,
    Subset,
    TensorDataset,
    get_worker_info,
)

from helpers.parity_cases import RAISERS, SAMPLES, Items, draw_all

# ---- iterable datasets ---------------------------------------------------------------------------

#: Which numbers worker ``id`` of ``count`` yields of ``length``.
SHARES: dict[str, Callable[[int, int, int], range]] = {
    "replica": lambda length, id, count: range(length),
    "every nth": lambda length, id, count: range(id, length, count),
    "in blocks": lambda length, id, count: _block(length, id, count),
    "uneven": lambda length, id, count: range([length, length // 3, 0][id % 3]),
    "uneven backwards": lambda length, id, count: range([0, length // 3, length][id % 3]),
    "last worker only": lambda length, id, count: range(length if id == count - 1 else 0),
}


def _block(length: int, id: int, count: int) -> range:
    """The example of torch's documentation."""
    size = math.ceil(length / count)
    return range(id * size, min((id + 1) * size, length))


@dataclass
class Stream(IterableDataset[Any]):
    """An iterable dataset of ``SAMPLES[kind]``; ``share`` says what each worker yields of it."""

    kind: str
    length: int
    share: str = "every nth"
    draws: bool = True
    errors: tuple[tuple[int, str], ...] = ()

    def numbers(self) -> range:
        """What this process yields."""
        info = get_worker_info()
        id, count = (0, 1) if info is None else (info.id, info.num_workers)
        return SHARES[self.share](self.length, id, count)

    def sample(self, number: int) -> Any:
        """One sample, or the exception in its place."""
        for at, name in self.errors:
            if at == number:
                raise RAISERS[name](number)
        sample = SAMPLES[self.kind](number)
        return (sample, *draw_all()) if self.draws else sample

    def __iter__(self) -> Iterator[Any]:
        for number in self.numbers():
            yield self.sample(number)


class GoesOn(Stream):
    """Its iterator gives the next sample after an exception; a generator would have ended."""

    def __iter__(self) -> Iterator[Any]:
        return map(self.sample, self.numbers())


class SaysItsLength(Stream):
    """With a length, which is that of one replica."""

    def __len__(self) -> int:
        return self.length


class Unopenable(Stream):
    """Raises in ``__iter__``; the first worker's opens all the same."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        if info is None or info.id > 0:
            raise OSError(2, "no such stream")
        return iter(super().__iter__())


class DrawsWhenOpened(Stream):
    """Draws in ``__iter__`` itself and gives as many samples as it drew."""

    def __iter__(self) -> Iterator[Any]:
        keep = 0.5 + draw_all()[0] / 2
        numbers = self.numbers()
        return iter([self.sample(number) for number in numbers[: int(len(numbers) * keep)]])


STREAMS: dict[str, type[Stream]] = {
    "stream": Stream,
    "stream that goes on": GoesOn,
    "stream with length": SaysItsLength,
    "stream that cannot be opened": Unopenable,
    "stream that draws when opened": DrawsWhenOpened,
}


def chained(dataset: Stream) -> ChainDataset:
    """The dataset and a shorter one of the same kind, one after the other."""
    rest = Stream(dataset.kind, dataset.length // 2 + 1, "replica", dataset.draws)
    return ChainDataset([dataset, rest])


# ---- datasets with __getitems__ --------------------------------------------------------------------


class ManyRefused(Items):
    """Says that it does not fetch whole batches after all."""

    __getitems__ = None


class ManyAsIterator(Items):
    """Fetches a whole batch at a time and returns an iterator, which torch cannot collate."""

    def __getitems__(self, indices: Sequence[Any]) -> Iterator[Any]:
        return iter([self[index] for index in indices])


class ManyFewer(Items):
    """Leaves samples out, all but one."""

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        numbers = list(indices)
        return [self[index] for index in numbers if int(index) % 3 or index == numbers[0]]


class ManyMore(Items):
    """Gives every sample twice, the second ones with the first ones."""

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        return [self[index] for index in indices for _ in range(2)]


MANY: dict[str, type[Items]] = {
    "many refused": ManyRefused,
    "many as iterator": ManyAsIterator,
    "many, but fewer": ManyFewer,
    "many, and more": ManyMore,
}


# ---- rows in memory ----------------------------------------------------------------------------------


def base_rows(length: int, *shape: int) -> torch.Tensor:
    """Numbers, all different, in ``length`` rows of that shape."""
    return (torch.arange(length * math.prod(shape)) * 7 + 3).reshape(length, *shape)


def _of(dtype: str) -> Callable[[int], torch.Tensor]:
    def rows(length: int) -> torch.Tensor:
        numbers = base_rows(length, 2, 3)
        return (numbers % 2 if dtype == "bool" else numbers).to(getattr(torch, dtype))

    return rows


TENSOR_DTYPES = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "bool"),
)

#: Tensors as datasets or as columns of a TensorDataset, by what is special about them.
TENSOR_ROWS: dict[str, Callable[[int], torch.Tensor]] = {
    "vector": lambda n: base_rows(n),
    "float vector": lambda n: base_rows(n) / 3,
    "matrix": lambda n: base_rows(n, 3).float(),
    "three dimensions": lambda n: base_rows(n, 2, 3),
    "five dimensions": lambda n: base_rows(n, 2, 1, 3, 2).int(),
    "large rows": lambda n: base_rows(n, 128, 256).float(),
    "zero-size rows": lambda n: torch.zeros(n, 0, 2),
    "every second row": lambda n: base_rows(2 * n, 3)[::2],
    "some columns": lambda n: base_rows(n, 6)[:, 1:4],
    "every second column": lambda n: base_rows(n, 6)[:, ::2],
    "transposed": lambda n: base_rows(3, n).t(),
    "transposed inside": lambda n: base_rows(n, 2, 3).transpose(1, 2),
    "expanded": lambda n: base_rows(1, 3).expand(n, 3),
    "expanded inside": lambda n: base_rows(n, 1).expand(n, 3),
    "channels last": lambda n: (
        base_rows(n, 3, 4, 5).float().contiguous(memory_format=torch.channels_last)
    ),
    "last rows": lambda n: base_rows(n + 4, 3)[4:],
    "float8": lambda n: base_rows(n, 3).remainder(100).float().to(torch.float8_e4m3fn),
    **{dtype: _of(dtype) for dtype in TENSOR_DTYPES},
}

#: Tensors that torch's workers cannot send, or send as something else.
LOCAL_ROWS: dict[str, Callable[[int], torch.Tensor]] = {
    "requires grad": lambda n: base_rows(n, 3).float().requires_grad_(),
    "conj": lambda n: base_rows(n, 3).to(torch.complex64).mul(1 + 2j).conj(),
    "neg": lambda n: base_rows(n, 3).to(torch.complex64).mul(1 + 2j).conj().imag,
    "sparse": lambda n: base_rows(n, 3).float().to_sparse(),
}


def _array(length: int, *shape: int) -> np.ndarray[Any, Any]:
    return base_rows(length, *shape).numpy()


def _read_only(length: int) -> np.ndarray[Any, Any]:
    array = _array(length, 3).astype(np.float32)
    array.flags.writeable = False
    return array


def _records(length: int) -> np.ndarray[Any, Any]:
    return np.array([(number, 0.5) for number in range(length)], dtype=[("a", "i4"), ("b", "f4")])


ARRAY_DTYPES = (
    *(f"{sign}{size}" for sign in "iu" for size in (1, 2, 4, 8)),
    *("f2", "f4", "f8", "c8", "c16", "?"),
)

#: Arrays as datasets, by what is special about them.
ARRAY_ROWS: dict[str, Callable[[int], np.ndarray[Any, Any]]] = {
    "vector": lambda n: _array(n),
    "float vector": lambda n: _array(n).astype(np.float32) / 3,
    "matrix": lambda n: _array(n, 3).astype(np.float32),
    "five dimensions": lambda n: _array(n, 2, 1, 3, 2).astype(np.int32),
    "large rows": lambda n: _array(n, 128, 256).astype(np.float32),
    "zero-size rows": lambda n: np.zeros((n, 0, 2)),
    "fortran": lambda n: np.asfortranarray(_array(n, 3)),
    "transposed": lambda n: _array(3, n).T,
    "every second row": lambda n: _array(2 * n, 3)[::2],
    "every second column": lambda n: _array(n, 6)[:, ::2],
    "rows backwards": lambda n: _array(n, 3)[::-1],
    "columns backwards": lambda n: _array(n, 3)[:, ::-1],
    "broadcast": lambda n: np.broadcast_to(_array(1, 3), (n, 3)),
    "read-only": _read_only,
    "big-endian": lambda n: _array(n, 3).astype(">f4"),
    "big-endian vector": lambda n: _array(n).astype(">i8"),
    "object": lambda n: _array(n, 2).astype(object),
    "records": _records,
    "column of records": lambda n: np.zeros((n, 2), dtype="i1,f8")["f1"] + _array(n, 2),
    "str": lambda n: _array(n, 2).astype("U8"),
    "datetime": lambda n: _array(n, 2).astype("datetime64[s]"),
    "longdouble": lambda n: _array(n, 2).astype(np.longdouble),
    "matrix subclass": lambda n: _array(n, 3).view(np.matrix),
    "masked": lambda n: np.ma.masked_array(_array(n, 3)),
    **{dtype: lambda n, dtype=dtype: _array(n, 3).astype(dtype) for dtype in ARRAY_DTYPES},
}


def tensor_dataset(kind: str, length: int) -> TensorDataset:
    """Rows of one kind, and a label for each."""
    rows = LOCAL_ROWS | TENSOR_ROWS
    return TensorDataset(rows[kind](length), torch.arange(length) % 10)


def shuffled_subset(dataset: Any, indices: str) -> Subset[Any]:
    """Two thirds of a dataset in another order, by indices of some type."""
    length = len(dataset)
    chosen = [number * 5 % length for number in range(length * 2 // 3)] if length else []
    types: dict[str, Callable[[list[int]], Any]] = {
        "list": list,
        "tensor": lambda numbers: torch.tensor(numbers, dtype=torch.int64),
        "array": lambda numbers: np.array(numbers, dtype=np.int64),
        "tuple": tuple,
        "negative": lambda numbers: [number - length for number in numbers],
    }
    return Subset(dataset, types[indices](chosen))


SUBSETS = ("list", "tensor", "array", "tuple", "negative")
