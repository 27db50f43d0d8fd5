"""Documents packed into samples by best fit: for reference_stream.py and the tests of packing."""

from __future__ import annotations

import bisect
import itertools
from pathlib import Path

import numpy as np

UNIT = 4 << 20  # bytes whose documents are packed together
IGNORED = -100

#: Where a piece of a document begins, its length, and whether the document ends with it.
Piece = tuple[int, int, bool]


def lengths_in_index(path: Path) -> list[int]:
    """Tokens of each document, by Megatron's index."""
    data = path.read_bytes()
    sequences, documents = (int(n) for n in np.frombuffer(data, "<u8", 2, 18))
    lengths = np.frombuffer(data, "<i4", sequences, 34)
    firsts = np.frombuffer(data, "<i8", documents, 34 + 12 * sequences).tolist()
    pairs = itertools.pairwise(firsts)
    return [int(lengths[begin:end].sum()) for begin, end in pairs]


def lengths_by_end(tokens: np.ndarray, eos: int) -> list[int]:
    """The same of a file of which each document ends with a token; the last one need not."""
    ends = [0, *(np.flatnonzero(tokens == eos) + 1).tolist(), len(tokens)]
    pairs = itertools.pairwise(ends)
    return [end - begin for begin, end in pairs if end > begin]


def pieces_of(lengths: list[int], size: int, start: int = 0) -> list[Piece]:
    """Documents in pieces no longer than a sample."""
    pieces = []
    for length in lengths:
        for at in range(0, length, size):
            here = min(size, length - at)
            pieces.append((start + at, here, at + here == length))
        start += length
    return pieces


def packed(pieces: list[Piece], size: int) -> list[list[Piece]]:
    """Best fit, the longest first; of samples with the same room the one that got it last."""
    samples: list[list[Piece]] = []
    rooms: list[tuple[int, int]] = []  # (room, turn), in order
    names: dict[tuple[int, int], int] = {}
    for turn, piece in enumerate(sorted(pieces, key=lambda piece: (-piece[1], piece[0]))):
        at = bisect.bisect_left(rooms, (piece[1], -1 << 60))
        if at == len(rooms):
            sample, room = len(samples), size
            samples.append([])
        else:
            key = rooms.pop(at)
            sample, room = names.pop(key), key[0]
        samples[sample].append(piece)
        key = (room - piece[1], -turn)
        bisect.insort(rooms, key)
        names[key] = sample
    return [sorted(sample) for sample in samples]


def stretches(pieces: list[Piece], unit: int) -> list[list[Piece]]:
    """Pieces that lie within so many tokens."""
    found: list[list[Piece]] = [[]]
    for piece in pieces:
        if found[-1] and piece[0] + piece[1] - found[-1][0][0] > unit:
            found.append([])
        found[-1].append(piece)
    return found


def samples_of(lengths: list[int], size: int, unit: int, start: int = 0) -> list[list[Piece]]:
    """What each sample is made of."""
    parts = stretches(pieces_of(lengths, size, start), unit)
    return [sample for part in parts for sample in packed(part, size)]


def fields_of(sample: list[Piece], line: np.ndarray, size: int, pad: int) -> dict[str, np.ndarray]:
    """x, y and where documents begin."""
    x, y = np.full(size, pad, np.int64), np.full(size, IGNORED, np.int64)
    at, begins = 0, [0]
    for start, length, ends in sample:
        known = length - ends
        x[at : at + length] = line[start : start + length]
        y[at : at + known] = line[start + 1 : start + 1 + known]
        at += length
        begins.append(at)
    begins += [size] * (at < size)
    return {"x": x, "y": y, "cu_seqlens": np.array(begins, np.int32)}
