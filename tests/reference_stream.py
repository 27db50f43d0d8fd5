#!/usr/bin/env python3
"""What `millhead read --hash` must print, made from NumPy, torch and xxhash, without our C.

    reference_stream.py DATA... --batch-size B --seed S [the options of millhead read]

Prints one JSON object with stream_xxh3 and samples_xxh3; docs/native.md defines both.
"""

from __future__ import annotations

import argparse
import json
import math
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xxhash

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio


# --- the data


def plain(array: np.ndarray) -> np.ndarray:
    """Dates as int64, strings as uint8 with one more dimension; numbers as they are."""
    array = np.ascontiguousarray(array)
    if array.dtype.kind in "mM":
        return array.view(np.int64)
    if array.dtype.kind not in "SUV":
        return array
    shape = array.shape if array.dtype.itemsize == 1 else (*array.shape, array.dtype.itemsize)
    return np.frombuffer(array.tobytes(), np.uint8).reshape(shape)


def load(paths: list[Path], fields: list[str] | None) -> dict[str, np.ndarray]:
    """The arrays by name, in order of the names' bytes."""
    data = {path.stem: plain(np.load(path)) for path in paths}
    names = sorted(fields or data, key=lambda name: name.encode())
    return {name: data[name] for name in dict.fromkeys(names)}


# --- the order


def mix(bits: int) -> int:
    """The output function of splitmix64."""
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB & MASK
    return bits ^ (bits >> 31)


def keyed(count: int, seed: int, epoch: int) -> Callable[[int], int]:
    """The keyed shuffle: a Feistel network over a table of rows and columns."""
    rows = math.isqrt(count)
    rows += rows * rows < count
    rows += rows & 1
    columns = (count - 1) // rows + 1 if count else 0
    state = mix((mix((seed + GOLDEN) & MASK) + epoch) & MASK)
    rounds = 24 if count < 65536 else 12
    keys = [mix((state + (n + 1) * GOLDEN) & MASK) for n in range(rounds)]

    def drawn(bits: int, size: int) -> int:
        return mix(bits & MASK) * size >> 64

    def at(position: int) -> int:
        while True:
            row, column = divmod(position, columns)
            for n in range(0, rounds, 2):
                column = (column + drawn(row + keys[n], columns)) % columns
                row = (row + drawn(column + keys[n + 1], rows)) % rows
            position = row * columns + column
            if position < count:  # else the table has more cells than there are samples
                return position

    return at


def order(options: argparse.Namespace, count: int) -> Callable[[int], int]:
    """Which sample is at a position of the epoch."""
    if options.shuffle is None:
        return lambda position: position
    if options.shuffle == "torch":
        import torch

        generator = torch.Generator()
        generator.manual_seed((options.seed + options.epoch) & MASK)
        return torch.randperm(count, generator=generator).tolist().__getitem__
    return keyed(count, options.seed, options.epoch)


def share(options: argparse.Namespace, count: int) -> range:
    """The positions of one rank; those beyond the epoch's end repeat its head."""
    length, over = divmod(count - options.start, options.world)
    if options.uneven:
        length += options.rank < over
    elif not options.drop_last:
        length += over > 0
    first = options.start + options.rank
    return range(first, first + length * options.world, options.world)


def batches(options: argparse.Namespace, positions: range) -> list[range]:
    """The positions of each batch."""
    size = options.batch_size
    found = [positions[at : at + size] for at in range(0, len(positions), size)]
    if options.drop_last and found and len(found[-1]) < size:
        found.pop()
    if options.limit_batches is None:
        return found
    done = options.start // size // options.world  # steps of the epoch before the start
    return found[: max(options.limit_batches - done, 0)]


# --- the hashes


def encoded(name: str, array: np.ndarray) -> bytes:
    """Name, type, shape and bytes of an array."""
    head = name.encode() + b"\0" + array.dtype.name.encode() + b"\0"
    shape = struct.pack(f"<Q{array.ndim}q", array.ndim, *array.shape)
    return head + shape + array.tobytes()


def hashes(data: dict[str, np.ndarray], options: argparse.Namespace) -> dict[str, str]:
    """Both hashes of what the options choose."""
    count = len(next(iter(data.values())))
    number_at = order(options, count)
    stream, total = xxhash.xxh3_64(), 0
    for positions in batches(options, share(options, count)):
        numbers = [number_at(position % count) for position in positions]
        for name, array in data.items():
            stream.update(encoded(name, array[numbers]))
        for position, number in zip(positions, numbers, strict=True):
            # [number, ...] and not [number]: a single value stays an array
            fields = (encoded(name, array[number, ...]) for name, array in data.items())
            total += xxhash.xxh3_64_intdigest(struct.pack("<Q", position) + b"".join(fields))
    return {"stream_xxh3": stream.hexdigest(), "samples_xxh3": f"{total & MASK:016x}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", nargs="+", type=Path, metavar="DATA")
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--fields", type=lambda text: text.split(","))
    parser.add_argument("--shuffle", nargs="?", const="keyed", choices=["torch", "keyed"])
    for name in ("seed", "epoch", "rank", "start"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--drop-last", action="store_true")
    parser.add_argument("--uneven", action="store_true")
    parser.add_argument("--limit-batches", type=int)
    options = parser.parse_args()
    print(json.dumps(hashes(load(options.data, options.fields), options)))


if __name__ == "__main__":
    main()
