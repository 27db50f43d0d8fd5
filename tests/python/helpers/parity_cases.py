"""Datasets, samples, samplers, collate and init functions that tests hand to both loaders.

Everything is importable, so that it also works in workers started by spawn and forkserver.
"""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import enum
import fractions
import random
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch.utils.data import (
    ConcatDataset,
    Dataset,
    Sampler,
    Subset,
    default_collate,
    get_worker_info,
)

# ---- samples -----------------------------------------------------------------------------------


class Point(NamedTuple):
    x: Any
    y: Any


class Nested(NamedTuple):
    point: Point
    rest: Any


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 5


class Name(str):
    """A str that is not exactly str."""


class Words(list[Any]):
    """A list that is not exactly list."""

    label = "words"


class Frozen(Mapping[str, Any]):
    """A mapping that can be neither copied into nor built from a dict."""

    def __init__(self, first: Any, second: Any) -> None:
        self._items = {"first": first, "second": second}

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


class Doubling(Point):
    """A namedtuple that computes when it is made."""

    def __new__(cls, x: Any, y: Any) -> Self:
        return super().__new__(cls, x, y * 2)


class Marked(torch.Tensor):
    """A tensor subclass without behaviour of its own."""


def _base(index: int, *shape: int) -> torch.Tensor:
    count = int(np.prod(shape)) if shape else 1
    return (torch.arange(count, dtype=torch.int64) * 7 + index * 13).reshape(shape)


def _bits(index: int) -> torch.Tensor:
    """Floats of arbitrary bits: NaN payloads, infinities, denormals and -0.0 among them."""
    special = [0x7FC00001, 0xFFC12345, 0x7F800000, 0xFF800000, 1, 0x80000000, 0x7F800001]
    return (
        torch.tensor(
            [special[index % 7], special[(index + 3) % 7], 0x3F800000 + index], dtype=torch.int64
        )
        .to(torch.uint32)
        .view(torch.float32)
    )


def _array(index: int, *shape: int) -> np.ndarray[Any, Any]:
    return _base(index, *shape).numpy().copy()


def _strided_array(index: int) -> np.ndarray[Any, Any]:
    return _array(index, 6, 4)[::2, 1::2]


def _read_only(index: int) -> np.ndarray[Any, Any]:
    array = _array(index, 3).astype(np.float32)
    array.flags.writeable = False
    return array


SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
REAL = ("float16", "float32", "float64")
ARRAY_DTYPES = (*SIGNED, *UNSIGNED, *REAL, "complex64", "complex128", "bool")
TENSOR_DTYPES = (*ARRAY_DTYPES, "bfloat16")

Maker = Callable[[int], Any]


@dataclass(frozen=True)
class TensorOf:
    dtype: str
    shape: tuple[int, ...] = (2, 3)

    def __call__(self, index: int) -> Any:
        base = _base(index, *self.shape)
        return (base % 2 if self.dtype == "bool" else base).to(getattr(torch, self.dtype))


@dataclass(frozen=True)
class ArrayOf:
    dtype: str
    shape: tuple[int, ...] = (3,)

    def __call__(self, index: int) -> Any:
        return _array(index, *self.shape).astype(self.dtype)


@dataclass(frozen=True)
class ScalarOf:
    dtype: str

    def __call__(self, index: int) -> Any:
        return np.dtype(self.dtype).type(index % 2 if self.dtype == "bool" else index)


# Samples whose batches consist of plain CPU tensors.
PLAIN: dict[str, Maker] = {
    "tensor": lambda i: _base(i, 3).float(),
    "zero-d tensor": lambda i: torch.tensor(float(i)),
    "zero-size tensor": lambda i: torch.zeros(2, 0, 3),
    "tuple": lambda i: (_base(i, 3).float(), i),
    "list": lambda i: [_base(i, 2), float(i)],
    "dict": lambda i: {"x": _base(i, 2, 2).float(), "y": i},
    "namedtuple": lambda i: Point(_base(i, 2), float(i)),
    "nested": lambda i: {"a": [_base(i, 2), {"b": (i, Point(float(i), True))}], "c": i / 3},
    "nested namedtuple": lambda i: Nested(Point(i, _base(i, 2)), [i, {"k": float(i)}]),
    "one-element tuple": lambda i: (_base(i, 2).float(),),
    "dict with other keys": lambda i: {3: i, None: float(i), ("a", 1): _base(i, 1)},
    "image and label": lambda i: (_base(i, 3, 8, 8).to(torch.uint8), i % 10),
    "many leaves": lambda i: [_base(i + k, k % 3 + 1) for k in range(24)],
    "large": lambda i: _base(i, 64, 64, 8).to(torch.float32),
    "large and small": lambda i: (_base(i, 128, 256).to(torch.int32), i, float(i)),
    "int": lambda i: i,
    "negative int": lambda i: -(2**40) - i,
    "float": lambda i: i / 7,
    "special floats": lambda i: [float("nan"), -0.0, float("inf"), 5e-324][i % 4],
    "bool": lambda i: i % 3 == 0,
    "bits": _bits,
    "permuted tensor": lambda i: _base(i, 4, 5, 3).float().permute(2, 0, 1),
    "transposed tensor": lambda i: _base(i, 3, 4).t(),
    "strided tensor": lambda i: _base(i, 6, 4)[::2, 1::2],
    "offset tensor": lambda i: _base(i, 9)[3:7],
    "expanded tensor": lambda i: torch.tensor([[float(i)]]).expand(3, 2),
    "array": lambda i: _array(i, 2, 3).astype(np.float32),
    "strided array": _strided_array,
    "fortran array": lambda i: np.asfortranarray(_array(i, 3, 4)),
    "zero-d array": lambda i: np.array(i * 1.5),
    "zero-size array": lambda i: np.zeros((0, 2), np.int16),
    "read-only array": _read_only,
    "numpy float64": lambda i: np.float64(i / 3),
    **{f"{name} tensor": TensorOf(name) for name in TENSOR_DTYPES},
    **{f"{name} array": ArrayOf(name) for name in ARRAY_DTYPES},
    **{f"{name} scalar": ScalarOf(name) for name in ARRAY_DTYPES if name != "uint64"},
}


def _changing_keys(index: int) -> dict[str, Any]:
    return {"x": index, "y": index} if index // 8 % 2 else {"x": index, "z": float(index)}


def _inference(index: int) -> torch.Tensor:
    with torch.inference_mode():
        return _base(index, 3).float() + 1


def _quantized(index: int) -> torch.Tensor:
    return torch.quantize_per_tensor(torch.tensor([float(index)]), 0.5, 3, torch.quint8)


def _nested(index: int, depth: int) -> Any:
    value: Any = index
    for level in range(depth):
        value = [value] if level % 2 else (value,)
    return value


def _circular(index: int) -> list[Any]:
    value: list[Any] = [index]
    value.append(value)
    return value


# Samples that need torch's own collate, change their form on the way, or cannot be collated.
ODD: dict[str, Maker] = {
    "str": lambda i: f"sample {i}",
    "bytes": lambda i: bytes([i % 256, 0, 255]),
    "str in dict": lambda i: {"name": f"n{i}", "x": _base(i, 2)},
    "empty tuple": lambda i: (),
    "empty dict": lambda i: {},
    "ordered dict": lambda i: collections.OrderedDict(b=i, a=_base(i, 2)),
    "default dict": lambda i: collections.defaultdict(int, a=i),
    "frozen mapping": lambda i: Frozen(i, _base(i, 2)),
    "user dict": lambda i: collections.UserDict(a=i, b=float(i)),
    "list subclass": lambda i: Words([i, float(i)]),
    "user list": lambda i: collections.UserList([i, float(i)]),
    "deque": lambda i: collections.deque([i, float(i)]),
    "range": lambda i: range(i, i + 3),
    "int enum": lambda i: Colour.BLUE if i % 2 else Colour.RED,
    "str subclass": lambda i: Name(f"n{i}"),
    "int then float": lambda i: i if i % 2 == 0 else i + 0.5,
    "bool then int": lambda i: i % 3 == 0 if i % 2 == 0 else i,
    "float then str": lambda i: float(i) if i % 5 else "five",
    "int64 limit": lambda i: 2**63 - 1 - i,
    "huge int": lambda i: 2**63 + i,
    "huge negative int": lambda i: -(2**63) - 1 - i,
    "huge int sometimes": lambda i: 2**64 if i % 11 == 10 else i,
    "huge int in tuple": lambda i: (i, 2**70),
    "none": lambda i: None,
    "none sometimes": lambda i: None if i % 7 == 6 else _base(i, 2),
    "object": lambda i: object,
    "big-endian array": lambda i: _array(i, 3).astype(">f4"),
    "negative stride array": lambda i: _array(i, 4)[::-1],
    "str array": lambda i: np.array([f"s{i}", "t"]),
    "object array": lambda i: np.array([i, None], dtype=object),
    "datetime array": lambda i: np.array([i], dtype="datetime64[s]"),
    "record array": lambda i: np.array([(i, 1.0)], dtype=[("a", "i4"), ("b", "f4")]),
    "uint64 scalar": ScalarOf("uint64"),
    "longdouble scalar": lambda i: np.longdouble(i),
    "numpy str": lambda i: np.str_(f"n{i}"),
    "masked array": lambda i: np.ma.masked_array(_array(i, 3), mask=[0, 1, 0]),
    "tensor subclass": lambda i: _base(i, 3).float().as_subclass(Marked),
    "parameter": lambda i: torch.nn.Parameter(_base(i, 2).float()),
    "requires grad": lambda i: _base(i, 2).float().requires_grad_(),
    "sparse tensor": lambda i: torch.eye(2).mul(i + 1).to_sparse(),
    "float8 tensor": lambda i: _base(i, 3).float().to(torch.float8_e4m3fn),
    "ragged": lambda i: _base(i, 1 + i % 3),
    "ragged array": lambda i: _array(i, 1 + i % 3),
    "ragged list": lambda i: [i] * (1 + i % 3),
    "unequal shapes now and then": lambda i: _base(i, 3 if i % 13 == 12 else 2),
    "broadcastable shapes": lambda i: _base(i, 1, 3) if i % 2 else _base(i, 2, 3),
    "dtype differs in a batch": lambda i: _base(i, 2).to(torch.float64 if i % 2 else torch.float32),
    "int dtype differs in a batch": lambda i: _base(i, 2).to(torch.int32 if i % 2 else torch.int64),
    "array dtype differs in a batch": lambda i: _array(i, 2).astype("f4" if i % 2 else "f8"),
    "dtype changes later": lambda i: _base(i, 2).to(torch.float64 if i >= 16 else torch.float32),
    "shape changes later": lambda i: _base(i, 2 + i // 8).float(),
    "grows": lambda i: _base(i, 4 if i < 20 else 4000).float(),
    "shrinks": lambda i: _base(i, 4000 if i < 20 else 4).float(),
    "tuple changes to list": lambda i: (i, i) if i // 8 % 2 else [i, i],
    "keys change": _changing_keys,
    "a key more later": lambda i: {"x": i, "y": i} if i >= 12 else {"x": i},
    "an item more later": lambda i: [i, i] if i >= 12 else [i],
    "int64 minimum": lambda i: -(2**63) + i,
    "bytearray": lambda i: bytearray([i % 256, 1]),
    "array.array": lambda i: array.array("d", [i, 0.5]),
    "set": lambda i: {i},
    "decimal": lambda i: decimal.Decimal(i),
    "fraction": lambda i: fractions.Fraction(i, 3),
    "datetime": lambda i: datetime.datetime(2020, 1, 1 + i % 28),
    "datetime scalar": lambda i: np.datetime64(i, "s"),
    "timedelta scalar": lambda i: np.timedelta64(i, "s"),
    "numpy bytes": lambda i: np.bytes_(b"x%d" % i),
    "void scalar": lambda i: np.array([(i,)], dtype=[("a", "i4")])[0],
    "unaligned array": lambda i: np.frombuffer(bytes([0] + [i % 256] * 8), "<f4", offset=1),
    "field of records": lambda i: np.array([(i, 0.5)] * 3, dtype="i1,f8")["f1"],
    "memory map": lambda i: np.asarray([i, 2.5]).view(np.memmap),
    "matrix": lambda i: np.asarray([[i, 1]]).view(np.matrix),
    "array of many dimensions": lambda i: np.full([1] * 40 + [2], i),
    "tensor of many dimensions": lambda i: torch.full([1] * 62 + [2], i),
    "many keys": lambda i: {f"key {number}": i + number for number in range(300)},
    "deeply nested": lambda i: _nested(i, 60),
    "float then numpy": lambda i: np.float32(i / 3) if i % 2 else i / 3,
    "numpy then float": lambda i: i / 3 if i % 2 else np.float32(i / 3),
    "numpy of two dtypes": lambda i: np.float64(i / 3) if i % 2 else np.float32(i / 3),
    "numpy int and float": lambda i: np.float32(i / 3) if i % 2 else np.int64(i),
    "int then tensor": lambda i: torch.tensor(i) if i % 2 else i,
    "float then bool": lambda i: bool(i % 3) if i % 2 else float(i),
    "float then huge int": lambda i: 2**70 if i % 2 else float(i),
    "float then complex": lambda i: 1j * i if i % 2 else float(i),
    "complex": lambda i: complex(i, 1),
    "computing namedtuple": lambda i: Doubling(i, float(i)),
    "inference tensor": _inference,
    "extra key": lambda i: {"x": i, "y": i} if i % 2 else {"x": i},
    "missing key": lambda i: {"x": i} if i % 5 == 4 else {"x": i, "y": i},
    "keys in another order": lambda i: {"x": i, "y": 1.5} if i % 2 else {"y": 1.5, "x": i},
    "longer namedtuple": lambda i: Point(i, i) if i % 2 else Nested(Point(i, i), i),
    "str becomes int": lambda i: i if i >= 24 else f"{i}",
    "tensor and array": lambda i: _base(i, 2) if i % 2 else _array(i, 2),
    "array and tensor": lambda i: _array(i, 2) if i % 2 else _base(i, 2),
    "one memory": lambda i: [_SHARED, _SHARED[2:5], _SHARED],
}
_SHARED = torch.arange(8, dtype=torch.float32)

# Samples that torch's queues change or refuse, so that only a collate function may see them.
FRAGILE: dict[str, Maker] = {
    "contains itself": _circular,
    "too deeply nested": lambda i: _nested(i, 3000),
    "conj tensor": lambda i: torch.tensor([complex(i, 1)]).conj(),
    "neg tensor": lambda i: torch.tensor([complex(i, 1)]).conj().imag,
    "meta tensor": lambda i: torch.empty(3, device="meta"),
    "quantized tensor": _quantized,
    "mkldnn tensor": lambda i: torch.full((2,), float(i)).to_mkldnn(),
    "nested tensor": lambda i: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "tensor without memory": lambda i: torch._efficientzerotensor((2, 2)),
}

# Samples whose batches torch's workers cannot send: it then waits for ever.
UNSENDABLE: dict[str, Maker] = {
    "memoryview": lambda i: memoryview(bytes([i % 256, 1])),
    "mapping proxy": lambda i: types.MappingProxyType({"a": i}),
}

SAMPLES: dict[str, Maker] = {**PLAIN, **ODD, **FRAGILE, **UNSENDABLE}


# ---- exceptions --------------------------------------------------------------------------------


class TwoArguments(Exception):
    """Cannot be built from one text."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code


class KeywordOnly(Exception):
    def __init__(self, *, text: str) -> None:
        super().__init__(text)


class WithMessage(Exception):
    """Torch passes the text as ``message=`` to classes that have such an attribute."""

    message = "set on the class"

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


@dataclass(frozen=True)
class FrozenError(Exception):
    """Nothing can be set on it, a note neither."""

    index: int


class Silent(Exception):
    def __str__(self) -> str:
        return ""


RAISERS: dict[str, Callable[[int], BaseException]] = {
    "ValueError": lambda i: ValueError(f"bad value at {i}"),
    "KeyError": lambda i: KeyError(f"line one\nline two of {i}"),
    "IndexError": lambda i: IndexError(i),
    "OSError": lambda i: OSError(5, "read failed", f"file-{i}"),
    "UnicodeDecodeError": lambda i: UnicodeDecodeError("utf-8", b"\xff", 0, 1, f"at {i}"),
    "TwoArguments": lambda i: TwoArguments(i, "odd constructor"),
    "KeywordOnly": lambda i: KeywordOnly(text=f"at {i}"),
    "WithMessage": lambda i: WithMessage(f"at {i}"),
    "FrozenError": lambda i: FrozenError(i),
    "Silent": lambda i: Silent(i),
    "StopIteration": lambda i: StopIteration(i),
    "RuntimeError": lambda i: RuntimeError(f"at {i}\nand more"),
}


# ---- datasets ----------------------------------------------------------------------------------


def draw_all() -> tuple[float, float, torch.Tensor]:
    """One number from each of the three global generators."""
    return random.random(), float(np.random.rand()), torch.rand(2)


@dataclass
class Items(Dataset[Any]):
    """A map-style dataset of ``SAMPLES[kind]``, with draws and exceptions as asked."""

    kind: str
    length: int
    draws: bool = False
    errors: tuple[tuple[int, str], ...] = ()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return default_collate([self[one] for one in index])
        number = int(index)
        for at, name in self.errors:
            if at == number:
                raise RAISERS[name](number)
        sample = SAMPLES[self.kind](number)
        return (sample, *draw_all()) if self.draws else sample


class ManyItems(Items):
    """Fetches a whole batch at a time."""

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        random.random()
        return [self[index] for index in indices]


class ManyAsTuple(Items):
    """Fetches a whole batch at a time and returns a tuple."""

    def __getitems__(self, indices: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(self[index] for index in indices)


class ReusedBuffer(Items):
    """Returns one tensor again and again, filled anew each time."""

    _buffer: torch.Tensor | None = None

    def __getitem__(self, index: Any) -> Any:
        if self._buffer is None:
            self._buffer = torch.zeros(4)
        self._buffer.fill_(int(index))
        return self._buffer


class ReusedArray(Items):
    """Returns one array again and again, filled anew each time."""

    _buffer: np.ndarray[Any, Any] | None = None

    def __getitem__(self, index: Any) -> Any:
        if self._buffer is None:
            self._buffer = np.zeros(4, np.float32)
        self._buffer.fill(int(index))
        return {"x": self._buffer}


class Keyed(Items):
    """Its indices are strings."""

    def __getitem__(self, index: str) -> Any:
        return super().__getitem__(index.removeprefix("key "))


class Slow(Dataset[int]):
    """Sleeps in all but the first samples."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> int:
        time.sleep(self.seconds if index > 8 else 0)
        return index


def subset(dataset: Items) -> Subset[Any]:
    return Subset(dataset, list(range(dataset.length))[::-1])


def concatenated(dataset: Items) -> ConcatDataset[Any]:
    half = dataset.length // 2
    return ConcatDataset(
        [
            Items(dataset.kind, half, dataset.draws, dataset.errors),
            Items(dataset.kind, dataset.length - half, dataset.draws),
        ]
    )


# ---- samplers ----------------------------------------------------------------------------------


class Endless(Sampler[int]):
    """A generator-function sampler without a length that draws as it goes."""

    def __init__(self, length: int, samples: int) -> None:
        self.length = length
        self.samples = samples

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.samples):
            yield random.randrange(self.length)


class Eager(Sampler[int]):
    """Draws its whole order in ``__iter__`` itself, not at the first ``next``."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(self.length).tolist()
        random.random()
        np.random.rand()
        return iter(order)

    def __len__(self) -> int:
        return self.length


class Failing(Sampler[int]):
    """Raises after some indices."""

    def __init__(self, length: int, good: int) -> None:
        self.length = length
        self.good = good

    def __iter__(self) -> Iterator[int]:
        for number in range(self.length):
            if number >= self.good:
                raise ZeroDivisionError("the sampler failed")
            yield number


class Converted(Sampler[Any]):
    """Yields indices of another type: numpy integers, tensors or strings."""

    def __init__(self, length: int, kind: str) -> None:
        self.length = length
        self.kind = kind

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.length):
            if self.kind == "numpy":
                yield np.int64(number)
            elif self.kind == "tensor":
                yield torch.tensor(number)
            else:
                yield f"key {number}"

    def __len__(self) -> int:
        return self.length


BATCH_TYPES: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "dict": dict.fromkeys,
    "tensor": torch.tensor,
    "array": np.array,
    "range": lambda batch: range(batch[0], batch[-1] + 1),
}


class Buckets(Sampler[Any]):
    """A batch sampler with batches of unequal sizes in a drawn order. It counts its batches by
    drawing them, as many do: asked once too often, it changes what is drawn next."""

    def __init__(self, length: int, kind: str = "list", empty: bool = False) -> None:
        self.length = length
        self.kind = kind
        self.empty = empty

    def __iter__(self) -> Iterator[Any]:
        batches, first, size = [], 0, 1
        while first < self.length:
            batches.append(list(range(first, min(first + size, self.length))))
            first, size = first + size, size % 4 + 1
        random.shuffle(batches)
        for number, batch in enumerate(batches):
            if self.empty and number % 3 == 1:
                yield []
            yield BATCH_TYPES[self.kind](batch)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Sizes(Sized):
    """Something with a length, for samplers that only ask for it."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


# ---- collate and worker_init functions ---------------------------------------------------------


@dataclass
class Bag:
    """A batch type of the user's own."""

    data: Any
    note: str


def collate_dict(batch: list[Any]) -> Any:
    return {"data": default_collate(batch), "size": torch.tensor(len(batch))}


def collate_tuple(batch: list[Any]) -> Any:
    return default_collate(batch), torch.full((len(batch), 2), 0.5)


def collate_point(batch: list[Any]) -> Any:
    return Point(default_collate(batch), torch.arange(len(batch)))


def collate_drawing(batch: list[Any]) -> Any:
    order = random.sample(range(len(batch)), len(batch))
    noise = torch.rand(3), torch.from_numpy(np.random.rand(2)), random.random()
    return [default_collate([batch[number] for number in order]), *noise]


def collate_mixing(batch: list[Any]) -> Any:
    """As mixup does it: every sample with another one, by a drawn share."""
    order = torch.randperm(len(batch)).tolist()
    share = float(np.random.beta(0.4, 0.4))
    return default_collate(batch), default_collate([batch[number] for number in order]), share


def collate_bag(batch: list[Any]) -> Any:
    return Bag(default_collate(batch), f"{len(batch)} samples")


def collate_nothing(batch: list[Any]) -> Any:
    return batch


def collate_none(batch: list[Any]) -> Any:
    return None


def collate_numbers(batch: list[Any]) -> Any:
    return {"n": len(batch), "half": len(batch) / 2, "text": "x" * len(batch)}


def collate_views(batch: list[Any]) -> Any:
    size = len(batch)
    return {
        "transposed": torch.arange(size * 3.0).reshape(size, 3).t(),
        "expanded": torch.tensor([1.0]).expand(size, 4),
        "every second": torch.arange(size * 4)[::2],
    }


def collate_twice(batch: list[Any]) -> Any:
    first = torch.arange(float(len(batch)))
    return {"one": first, "same": first, "part": first[:1]}


def collate_changed(batch: list[Any]) -> Any:
    """The same structure as the default's, with other values."""
    data = default_collate(batch)
    return data.flip(0) if isinstance(data, torch.Tensor) else data


def collate_empty(batch: list[Any]) -> Any:
    return {}


def collate_arrays(batch: list[Any]) -> Any:
    return {"array": np.arange(len(batch), dtype=np.int16), "scalar": np.float32(0.5)}


def collate_growing(batch: list[Any]) -> Any:
    return torch.rand(random.choice([1, 10, 30000]))


def collate_default(batch: list[Any]) -> Any:
    return default_collate(batch)


class CollateSometimes:
    """Raises at every third call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, batch: list[Any]) -> Any:
        self.calls += 1
        if self.calls % 3 == 2:
            raise ValueError(f"collate refused call {self.calls}")
        return default_collate(batch)


class CollateStops:
    """Raises StopIteration at its fifth call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, batch: list[Any]) -> Any:
        self.calls += 1
        if self.calls == 5:
            raise StopIteration
        return default_collate(batch)


COLLATES: dict[str, Callable[[list[Any]], Any]] = {
    "default": default_collate,
    "wrapped default": collate_default,
    "dict": collate_dict,
    "tuple": collate_tuple,
    "namedtuple": collate_point,
    "drawing": collate_drawing,
    "mixing": collate_mixing,
    "own class": collate_bag,
    "list of samples": collate_nothing,
    "none": collate_none,
    "numbers": collate_numbers,
    "views": collate_views,
    "changed": collate_changed,
    "empty": collate_empty,
    "twice": collate_twice,
    "arrays": collate_arrays,
    "growing": collate_growing,
}


def init_draws(worker: int) -> None:
    """Moves every global generator on."""
    for _ in range(worker + 1):
        draw_all()


def init_reseeds(worker: int) -> None:
    np.random.seed(1000 + worker)
    random.seed(worker)


def init_configures(worker: int) -> None:
    """Changes the worker's copy of the dataset."""
    info = get_worker_info()
    assert info is not None and info.id == worker
    if isinstance(info.dataset, Items):
        info.dataset.kind = ["int", "float", "bool"][worker % 3]


def init_fails(worker: int) -> None:
    if worker == 0:
        raise LookupError("no licence for worker 0")


INITS: dict[str, Callable[[int], None]] = {
    "draws": init_draws,
    "reseeds": init_reseeds,
    "configures": init_configures,
    "fails": init_fails,
}
