"""Makes torch (and numpy, where it is) known to the C core, once, when this package is imported."""

from __future__ import annotations

import torch
from torch.utils.data._utils.collate import default_collate_fn_map

from millhead import _core

#: DLPack's type codes; the key is code << 8 | bits.
_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6

_DTYPES = {
    _INT << 8 | 8: torch.int8,
    _INT << 8 | 16: torch.int16,
    _INT << 8 | 32: torch.int32,
    _INT << 8 | 64: torch.int64,
    _UINT << 8 | 8: torch.uint8,
    _UINT << 8 | 16: torch.uint16,
    _UINT << 8 | 32: torch.uint32,
    _UINT << 8 | 64: torch.uint64,
    _FLOAT << 8 | 16: torch.float16,
    _FLOAT << 8 | 32: torch.float32,
    _FLOAT << 8 | 64: torch.float64,
    _BFLOAT << 8 | 16: torch.bfloat16,
    _COMPLEX << 8 | 64: torch.complex64,
    _COMPLEX << 8 | 128: torch.complex128,
    _BOOL << 8 | 8: torch.bool,
}


def _bind() -> None:
    array: type | None = None
    scalars: tuple[type, ...] = ()
    try:
        import numpy
    except ImportError:
        pass
    else:
        array, scalars = numpy.ndarray, (numpy.number, numpy.bool_)
    table = torch.Tensor.__dlpack_c_exchange_api__
    # Torch's own dictionary, which users may extend: the C collate looks whether they did.
    collate_map = default_collate_fn_map
    # Private, and the only way to ask: how many modes of either kind are active in this thread.
    modes = (torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack)
    _core.bind_torch(
        torch.Tensor,
        torch.stack,
        torch.empty,
        _DTYPES,
        array,
        scalars,
        table,
        collate_map,
        torch.device("cpu"),
        modes,
    )


_bind()
