"""Token files as Megatron writes them."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np


def write_megatron(stem: Path, documents: list[np.ndarray], code: int) -> None:
    """As megatron.core's IndexedDatasetBuilder does."""
    lengths = np.array([len(document) for document in documents], np.int32)
    width = documents[0].itemsize
    pointers = np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.int64)]) * width
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(lengths) + 1)
    firsts = np.arange(len(lengths) + 1, dtype=np.int64)
    index = head + lengths.tobytes() + pointers.astype(np.int64).tobytes() + firsts.tobytes()
    stem.with_suffix(".idx").write_bytes(index)
    stem.with_suffix(".bin").write_bytes(b"".join(document.tobytes() for document in documents))
