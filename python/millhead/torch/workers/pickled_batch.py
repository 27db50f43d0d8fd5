"""The general path: a batch of any kind, pickled, with its memory beside the pickle.

The bytes of tensors and arrays never enter the pickle stream. A batch becomes *pieces*: first the
stream, then the buffers that pickle protocol 5 hands out of band, then the memory of the tensors.
The worker copies the pieces into shared memory, the consumer copies them out again.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import threading
from collections import ChainMap
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing  # registers its reducers
from torch import Tensor

try:
    from numpy import ndarray as _Array
except ImportError:
    _Array = None  # type: ignore[assignment,misc]

#: Where a tensor lies: (piece, byte offset, dtype, shape, strides).
Place = tuple[int, int, torch.dtype, tuple[int, ...], tuple[int, ...]]

#: Offsets into a piece are multiples of this, the largest size of an element.
_ALIGN = 16

#: Bytes between a tensor's elements that are sent for the sake of its strides.
_TOLERATED_GAPS = 2**20

_loading = threading.local()


def _loaded_tensor(number: int) -> Tensor:
    """Stands in the pickle stream for tensor ``number`` of the batch."""
    tensor: Tensor = _loading.tensors[number]
    return tensor


class Pickler(pickle.Pickler):
    """Pickles as multiprocessing does (torch registers its reducers there), but takes plain
    tensors and large buffers out of the stream."""

    def __init__(self) -> None:
        self.stream = io.BytesIO()
        self.tensors: list[Tensor] = []
        self.buffers: list[pickle.PickleBuffer] = []
        super().__init__(self.stream, 5, buffer_callback=self._keep_buffer)
        # ForkingPickler's own constructor cannot pass buffer_callback on, so its table is used
        # instead of its class. Every batch by the general path tests that it is still there.
        reducers = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
        self._torch_reducer = reducers[Tensor]
        own: dict[Any, Any] = {Tensor: self._reduce_tensor}
        if _Array is not None:
            own[_Array] = self._reduce_array
        tables: list[Any] = [own, reducers, copyreg.dispatch_table]
        self.dispatch_table = ChainMap(*tables)

    def takes_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """Whether a buffer leaves the stream."""
        return True

    def takes_tensor(self, tensor: Tensor) -> bool:
        """Whether a tensor's memory leaves the stream: when it is nothing but numbers in CPU
        memory. The rest torch's reducers know."""
        return (
            tensor.device.type == "cpu"
            and tensor.layout is torch.strided
            and not tensor.requires_grad
            and not tensor.is_nested
            and not tensor.is_quantized
            and not tensor.is_conj()
            and not tensor.is_neg()
        )

    def _keep_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        if not self.takes_buffer(buffer):
            return True  # pickle's word for: keep it in the stream
        self.buffers.append(buffer)
        return False

    def _reduce_array(self, array: Any) -> Any:
        """As torch's queues do it, where protocol 5 differs: foreign byte order becomes native, and
        what was read-only can be written."""
        return array.__reduce_ex__(5 if array.dtype.isnative and array.flags.writeable else 4)

    def _reduce_tensor(self, tensor: Tensor) -> Any:
        if not self.takes_tensor(tensor):
            return self._torch_reducer(tensor)
        self.tensors.append(tensor)
        return _loaded_tensor, (len(self.tensors) - 1,)


def _byte_span(tensor: Tensor) -> tuple[int, int]:
    """First byte and end of the tensor in its storage, gaps of its strides included."""
    begin = int(tensor.storage_offset()) * tensor.element_size()
    if tensor.numel() == 0:
        return begin, begin
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (int(last) + 1) * tensor.element_size()


def _raw(tensor: Tensor, begin: int, end: int) -> Tensor:
    """Bytes [begin, end) of the tensor's storage, as a flat uint8 tensor over the same memory."""
    flat = torch.empty(0, dtype=torch.uint8, device="cpu")
    return flat.set_(tensor.untyped_storage(), begin, (end - begin,), (1,))


def place(tensors: list[Tensor]) -> tuple[list[Tensor], list[Place]]:
    """One piece for each run of storage that the tensors cover.

    Tensors that overlap share a piece, so that they share memory on the other side too. A tensor
    alone whose strides leave most of its span unused (a column of a large matrix) is packed.
    """
    spans: list[tuple[int, int, int, int]] = []  # storage, begin, end, number
    for number, tensor in enumerate(tensors):
        begin, end = _byte_span(tensor)
        if end - begin > 2 * tensor.numel() * tensor.element_size() + _TOLERATED_GAPS:
            tensors[number] = tensor = tensor.contiguous()
            begin, end = _byte_span(tensor)
        spans.append((tensor.untyped_storage().data_ptr(), begin, end, number))
    pieces: list[Tensor] = []
    places: list[Place | None] = [None] * len(tensors)
    run: list[tuple[int, int, int, int]] = []

    def close_run() -> None:
        begin = run[0][1] // _ALIGN * _ALIGN
        pieces.append(_raw(tensors[run[0][3]], begin, max(span[2] for span in run)))
        for _, start, _, number in run:
            tensor = tensors[number]
            places[number] = (
                len(pieces) - 1,
                start - begin,
                tensor.dtype,
                tuple(tensor.shape),
                tensor.stride(),
            )

    for span in sorted(spans):
        if run and (span[0] != run[0][0] or span[1] >= max(other[2] for other in run)):
            close_run()
            run = []
        run.append(span)
    if run:
        close_run()
    return pieces, [place for place in places if place is not None]


def dumps(batch: object, kind: type[Pickler] = Pickler) -> list[object]:
    """The pieces of a batch: pickle stream, buffers, memory of tensors."""
    pickler = kind()
    pickler.dump(batch)
    pieces, places = place(pickler.tensors)
    head = pickle.dumps((pickler.stream.getvalue(), places, len(pickler.buffers)), 5)
    raw: list[object] = [buffer.raw() for buffer in pickler.buffers]
    return [head, *raw, *pieces]


def loads(pieces: list[Any]) -> Any:
    """The batch of :func:`dumps`. Its tensors use the pieces' memory."""
    stream, places, buffer_count = pickle.loads(pieces[0])
    return load(stream, pieces[1 : 1 + buffer_count], places, pieces[1 + buffer_count :])


def load(stream: Any, buffers: list[Any], places: list[Place], memory: list[Tensor]) -> Any:
    """What a :class:`Pickler` dumped; ``memory`` holds its tensors, at ``places``."""
    tensors = []
    for piece, offset, dtype, shape, strides in places:
        tensor = torch.empty(0, dtype=dtype, device="cpu")
        storage = memory[piece].untyped_storage()
        tensors.append(tensor.set_(storage, offset // dtype.itemsize, shape, strides))
    _loading.tensors = tensors
    try:
        return pickle.loads(stream, buffers=buffers)
    finally:
        del _loading.tensors
