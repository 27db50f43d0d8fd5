"""Makes torch (and numpy, where it is) known to the C core, once, when this package is imported."""

from __future__ import annotations

import torch
from torch.utils.data._utils.collate import default_collate_fn_map

from millhead import _core
from millhead._native_arrays import bind_dlpack

#: By DLPack's code of the kind: ints, unsigned ones, floats, bfloat16, complex numbers, bool.
_KINDS = {
    0: (torch.int8, torch.int16, torch.int32, torch.int64),
    1: (torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    2: (torch.float16, torch.float32, torch.float64),
    4: (torch.bfloat16,),
    5: (torch.complex64, torch.complex128),
    6: (torch.bool,),
}
#: By code << 8 | bits.
_DTYPES = {
    code << 8 | 8 * dtype.itemsize: dtype for code, dtypes in _KINDS.items() for dtype in dtypes
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
    # Torch's own dictionary, which users may extend: the C collate compares it with a copy.
    collate_map = default_collate_fn_map
    # Private, and the only way to ask: how many modes of either kind are active in this thread.
    modes = (torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack)
    bind_dlpack()
    _core.bind_torch(
        torch.Tensor,
        torch.stack,
        torch.empty,
        _DTYPES,
        {dtype: code for code, dtype in _DTYPES.items()},
        array,
        scalars,
        torch.strided,
        collate_map,
        dict(collate_map),
        torch.device("cpu"),
        modes,
    )


_bind()
