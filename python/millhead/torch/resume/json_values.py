"""Values as JSON and back, of the same types. Nothing that is read can run code, as pickles can.

A value that JSON does not know becomes an object whose key ``$`` names its kind; a dictionary that
has such a key, or keys that are no texts, is written as pairs.
"""

from __future__ import annotations

import base64
import ctypes
import json
import math
from collections.abc import Callable
from typing import Any

import torch

try:
    import numpy as np

    _ARRAYS: tuple[type, ...] = (np.generic, np.ndarray)
except ImportError:  # then nobody has any
    _ARRAYS = ()


def dumps(value: Any) -> str:
    """As JSON. Raises TypeError, with the place in ``value``, for what cannot be told in it."""
    return json.dumps(_encode(value, "state"), allow_nan=False)


def loads(text: str) -> Any:
    """The value. Raises ValueError for what :func:`dumps` does not write."""
    try:
        return _decode(json.loads(text))
    except (ArithmeticError, AttributeError, KeyError, RuntimeError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _encode(value: Any, where: str) -> Any:
    if isinstance(value, _ARRAYS):
        return _encode_array(value, where)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$": "float", "value": repr(float(value))}
    if isinstance(value, list | tuple):
        items = [_encode(item, f"{where}[{at}]") for at, item in enumerate(value)]
        return items if isinstance(value, list) else {"$": "tuple", "value": items}
    if isinstance(value, dict):
        return _encode_dict(value, where)
    if isinstance(value, bytes | bytearray):
        return {"$": type(value).__name__, "value": _text_of(bytes(value))}
    if isinstance(value, torch.Tensor):
        return _encode_tensor(value, where)
    raise TypeError(f"{where} is a {type(value).__qualname__}, not a plain value")


def _encode_dict(value: dict[Any, Any], where: str) -> Any:
    pairs = [(key, _encode(item, f"{where}[{key!r}]")) for key, item in value.items()]
    if all(isinstance(key, str) for key, _ in pairs) and "$" not in value:
        return dict(pairs)
    return {"$": "dict", "value": [[_encode(key, f"{where}: a key"), item] for key, item in pairs]}


def _encode_tensor(tensor: torch.Tensor, where: str) -> Any:
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        raise TypeError(f"{where} is a tensor that is not dense, not a plain value")
    flat = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    data = ctypes.string_at(flat.data_ptr(), flat.nbytes)
    return _entry("tensor", str(tensor.dtype).removeprefix("torch."), tensor.shape, data)


def _encode_array(value: Any, where: str) -> Any:
    if value.dtype.hasobject or value.dtype.names is not None:
        raise TypeError(f"{where} is an array of {value.dtype}, not a plain value")
    kind = "array" if isinstance(value, np.ndarray) else "scalar"
    return _entry(kind, value.dtype.str, value.shape, value.tobytes())


def _entry(kind: str, dtype: str, shape: Any, data: bytes) -> dict[str, Any]:
    return {"$": kind, "dtype": dtype, "shape": list(shape), "value": _text_of(data)}


def _text_of(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes_of(entry: dict[str, Any]) -> bytes:
    return base64.b64decode(entry["value"], validate=True)


# --- and back ---


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$" not in value:
        return {key: _decode(item) for key, item in value.items()}
    return _KINDS[value["$"]](value)


def _decode_tensor(entry: dict[str, Any]) -> torch.Tensor:
    dtype = getattr(torch, entry["dtype"])
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{entry['dtype']} is not a type of tensor")
    flat = torch.frombuffer(bytearray(_bytes_of(entry) or b"\0"), dtype=torch.uint8)
    if 0 in entry["shape"]:
        return torch.empty(entry["shape"], dtype=dtype)
    return flat.view(dtype).reshape(entry["shape"])


def _decode_array(entry: dict[str, Any]) -> Any:
    flat = np.frombuffer(bytearray(_bytes_of(entry)), dtype=np.dtype(entry["dtype"]))
    return flat.reshape(entry["shape"])


_KINDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "float": lambda entry: float(entry["value"]),
    "tuple": lambda entry: tuple(_decode(item) for item in entry["value"]),
    "dict": lambda entry: {_decode(key): _decode(item) for key, item in entry["value"]},
    "bytes": _bytes_of,
    "bytearray": lambda entry: bytearray(_bytes_of(entry)),
    "tensor": _decode_tensor,
    "array": _decode_array,
    "scalar": lambda entry: _decode_array(entry)[()],
}
