"""Copies of data on local disk, made once per machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from millhead import _core
from millhead._data_options import storage_text


def stage(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    in_flight: int = 16,
) -> dict[str, int]:
    """Copies a file, a directory or what lies below ``s3://bucket/prefix/`` into a directory.

    What is there in the same version is not copied again. Every rank may call it: one process of a
    machine copies, the others wait and find all of it.

    Returns:
        ``files`` and ``bytes`` of the data, ``copied`` files and ``copied_bytes`` of this call, and
        ``skipped`` files, which were there.

    Raises:
        FileNotFoundError: there is nothing of that name.
        OSError: it cannot be read or written, or there is not enough space.

    >>> stage("s3://bucket/train/", "/scratch/train")  # doctest: +SKIP
    {'files': 100, 'bytes': 1000000000, 'copied': 100, 'copied_bytes': 1000000000, 'skipped': 0}
    """
    if isinstance(in_flight, bool) or not isinstance(in_flight, int) or in_flight < 1:
        raise ValueError(f"in_flight should be a number from 1 on, but got {in_flight!r}")
    return _core.stage(source, target, storage_text(storage_options), in_flight)
