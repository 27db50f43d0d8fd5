#!/usr/bin/env python3
"""What `millhead read --hash` must print, made from NumPy, Pillow, xarray and others, without our C.

    reference_stream.py DATA... --batch-size B --seed S [the options of millhead read]

Prints one JSON object with stream_xxh3 and samples_xxh3; docs/native.md defines both.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import reference_files as files
import reference_packing as packing
import reference_zarr as zarrs
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


def runs(count: int, size: int) -> list[list[int]]:
    """Numbers in a row, so many at a time."""
    return [list(range(at, min(at + size, count))) for at in range(0, count, size)]


def is_arrays(folder: Path) -> bool:
    """Whether a folder holds arrays and nothing else; more than 64 are samples."""
    names = [entry.suffix for entry in folder.glob("[!.]*")]
    return 0 < len(names) <= 64 and set(names) <= {".npy", ".npz"}


def files_of(path: str) -> list[str]:
    """A file, or the arrays of a folder."""
    return sorted(map(str, Path(path).glob("[!.]*"))) if Path(path).is_dir() else [path]


class Arrays:
    """NumPy's files: one field each, or one for each member of an archive or of a structure."""

    ragged = frozenset[str]()
    parts = 16

    def __init__(self, paths: list[str]) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        for path in [file for given in paths for file in files_of(given)]:
            loaded = np.load(path)
            found = loaded if path.endswith(".npz") else {Path(path).stem: loaded}
            for name, array in found.items():
                self.arrays.update(members(name, array))
        self.names = list(self.arrays)
        self.count = len(next(iter(self.arrays.values())))

    def value(self, name: str, number: int) -> np.ndarray:
        """A field of a sample."""
        # [number, ...] and not [number]: a single value stays an array
        return self.arrays[name][number, ...]

    def broken(self, number: int) -> bool:
        """Whether the sample cannot be had."""
        return False

    def blocks(self) -> list[list[int]]:
        """What lies in a mebibyte."""
        size = sum(array[0].nbytes for array in self.arrays.values())
        return runs(self.count, max(1, (1 << 20) // max(1, size)))


def members(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """A field for each member of a structure."""
    if array.dtype.names is None:
        return {name: plain(array)}
    return {f"{name}.{member}": plain(array[member]) for member in array.dtype.names}


def words(seed: int, first: int, count: int) -> np.ndarray:
    """Numbers of splitmix64's sequence."""
    bits = np.uint64(seed) + np.arange(first + 1, first + count + 1, dtype=np.uint64) * np.uint64(
        GOLDEN
    )
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


class Synthetic:
    """Samples that are computed."""

    names = ("label", "x")
    parts = 16

    def __init__(self, text: str) -> None:
        given = dict(part.partition("=")[::2] for part in text.split(","))
        self.ragged = frozenset(["x"] if "ragged" in given else [])
        self.count = int(given["count"])
        self.shape = tuple(int(length) for length in given.get("shape", "64").split("x"))
        self.dtype = np.dtype(given.get("dtype", "uint8"))
        self.chunk = int(given.get("chunk", "1"))
        self.chunks = -(-self.count // self.chunk)
        self.span = min(int(given.get("span", "1")), max(self.chunks, 1))
        self.seed = int(given.get("seed", "0"))
        rate = given.get("broken", "0")
        self.rate = float(rate[:-1]) / 100 if rate.endswith("%") else float(rate)
        self.row = math.prod(self.shape) * self.dtype.itemsize

    def stored(self, row: int) -> np.ndarray:
        """The bytes of a row, decoded: all bits are the other way round."""
        first, last = row * self.row // 8, -(-(row + 1) * self.row // 8)
        found = words(self.seed, first, last - first).view(np.uint8)
        return ~found[row * self.row - 8 * first :][: self.row]

    def value(self, name: str, number: int) -> np.ndarray:
        """A field of a sample."""
        if name == "label":
            return np.array(number, np.int64)
        found = self.stored(number)
        for ahead in range(1, self.span):
            chunk = (number // self.chunk + ahead) % self.chunks
            found = found ^ self.stored(chunk * self.chunk)
        array = found.view(self.dtype).reshape(self.shape)
        if not self.ragged:
            return array
        return array[: 1 + int(words(self.seed ^ 0x6C65, number, 1)[0]) % self.shape[0]]

    def blocks(self) -> list[list[int]]:
        """The samples of each chunk."""
        return runs(self.count, self.chunk)

    def broken(self, number: int) -> bool:
        """Whether a chunk that the sample needs is broken."""
        chunks = [(number // self.chunk + ahead) % self.chunks for ahead in range(self.span)]
        drawn = [int(words(self.seed ^ 0x6272, chunk, 1)[0]) >> 11 for chunk in chunks]
        return any(bits * 2.0**-53 < self.rate for bits in drawn)


class Tokens:
    """Bare token files, Megatron's, NumPy's: windows of one line of tokens."""

    ragged = frozenset[str]()
    names = ("x", "y")
    parts = 32

    def __init__(self, paths: list[str], options: argparse.Namespace) -> None:
        stored, delivered, found = "", "int64", []
        for path in paths:
            name, *rest = path.removeprefix("tokens:").split(",")
            given = dict(part.split("=") for part in rest)
            stored, delivered = given.get("dtype", stored), given.get("as", delivered)
            found.append(self.read(Path(name), stored))
        line = np.concatenate(found)
        self.delivered = np.dtype(delivered)
        self.window = int(options.window.removeprefix("token="))
        stride = int((options.stride or f"token={self.window}").removeprefix("token="))
        self.origins = range(0, len(line) - self.window, stride)
        self.count = len(self.origins)
        self.line = line
        self.unit = (4 << 20) // line.itemsize

    @staticmethod
    def read(path: Path, stored: str) -> np.ndarray:
        """All tokens of a file."""
        if path.suffix == ".npy":
            return np.asarray(np.load(path))
        index = path.with_suffix(".idx")
        if index.exists():
            stored = {4: "int32", 8: "uint16"}[index.read_bytes()[17]]
        return np.fromfile(path.with_suffix(".bin"), stored)

    def value(self, name: str, number: int) -> np.ndarray:
        """A field of a sample."""
        begin = self.origins[number] + (name == "y")
        size = self.window + (name == "tokens")
        return self.line[begin : begin + size].astype(self.delivered)

    def broken(self, number: int) -> bool:
        """Whether the sample cannot be had."""
        return False

    def blocks(self) -> list[list[int]]:
        """Samples whose first tokens lie in the same unit."""
        found: dict[int, list[int]] = {}
        for number, origin in enumerate(self.origins):
            found.setdefault(origin // self.unit, []).append(number)
        return list(found.values())


class Packed:
    """Documents of token files, packed by best fit."""

    ragged = frozenset(["cu_seqlens"])
    names = ("cu_seqlens", "x", "y")
    parts = 32

    def __init__(self, paths: list[str], options: argparse.Namespace) -> None:
        self.size = int(options.window.removeprefix("token="))
        self.samples: list[list[packing.Piece]] = []
        self.delivered, self.pad, lines, start = np.dtype("int64"), 0, [], 0
        for path in paths:
            name, *rest = path.removeprefix("tokens:").split(",")
            given = dict(part.split("=") for part in rest)
            line = Tokens.read(Path(name), given.get("dtype", ""))
            index = Path(name).with_suffix(".idx")
            lengths = (
                packing.lengths_in_index(index)
                if index.exists()
                else packing.lengths_by_end(line, int(given["eos"]))
            )
            self.unit = packing.UNIT // line.itemsize
            self.samples += packing.samples_of(lengths, self.size, self.unit, start)
            self.delivered = np.dtype(given.get("as", self.delivered))
            self.pad = int(given.get("pad", self.pad))
            lines.append(line)
            start += len(line)
        self.line = np.concatenate(lines)
        self.count = len(self.samples)

    def value(self, name: str, number: int) -> np.ndarray:
        """A field of a sample."""
        found = packing.fields_of(self.samples[number], self.line, self.size, self.pad)[name]
        return found if name == "cu_seqlens" else found.astype(self.delivered)

    def broken(self, number: int) -> bool:
        """Whether the sample cannot be had."""
        return False

    def blocks(self) -> list[list[int]]:
        """Samples that are packed of about one unit."""
        return runs(self.count, self.unit // self.size + 1)


Data = Arrays | Synthetic | Tokens | Packed | files.Files | zarrs.Zarr


def load(paths: list[str], options: argparse.Namespace) -> Data:
    """What the paths stand for."""
    if zarrs.is_store(paths[0]):
        return zarrs.Zarr(paths, options)
    if Path(paths[0]).is_dir() and not is_arrays(Path(paths[0])):
        return files.Folder(paths[0], options)
    if paths[0].endswith((".csv", ".jsonl")):
        return files.Manifest(paths[0], options)
    if ",pack=bestfit" in paths[0]:
        return Packed(paths, options)
    if paths[0].startswith("tokens:") or paths[0].endswith((".bin", ".idx")):
        return Tokens(paths, options)
    if paths[0].startswith("synthetic:"):
        return Synthetic(paths[0].removeprefix("synthetic:"))
    return Arrays(paths)


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


def salted(options: argparse.Namespace, what: int, number: int, count: int) -> list[int]:
    """A shuffle of one block or round."""
    salt = mix((mix((what + 0x626C6F636B73) & MASK) + number) & MASK)
    at = keyed(count, options.seed ^ salt, options.epoch)
    return [at(position) for position in range(count)]


class Blocks:
    """The order of shuffle="blocks", written down from front to end."""

    def __init__(self, data: Data, options: argparse.Namespace) -> None:
        blocks = runs(data.count, 1) if isinstance(data, files.Files) else data.blocks()
        shuffled = keyed(len(blocks), options.seed, options.epoch)
        self.options, self.parts = options, getattr(data, "parts", 16)
        self.line: list[int] = []  # sample numbers by position
        self.begins = [0]
        for at in range(len(blocks)):
            block = blocks[shuffled(at)]
            members = salted(options, 1, shuffled(at), len(block))
            self.line += [block[member] for member in members]
            self.begins.append(len(self.line))

    def run(self, begin: int, end: int) -> list[int]:
        """The positions from begin to end as one rank has them."""
        cuts = sorted({begin, end, *(at for at in self.begins if begin < at < end)})
        pieces = [range(*pair) for pair in itertools.pairwise(cuts)]
        found: list[int] = []
        for turn in range(len(pieces) + self.parts - 1):
            together: list[int] = []
            for part in range(self.parts):
                if 0 <= turn - part < len(pieces):
                    piece = pieces[turn - part]
                    first, last = (len(piece) * n // self.parts for n in (part, part + 1))
                    together += piece[first:last]
            mixed = salted(self.options, 2, (mix(begin) + turn) & MASK, len(together))
            found += [together[place] for place in mixed]
        return found

    def share(self) -> list[int]:
        """The positions of this rank, padded with its own head, or cut."""
        o, count = self.options, len(self.line)
        own = self.run(count * o.rank // o.world, count * (o.rank + 1) // o.world)
        if o.drop_last:
            own = own[: count // o.world]
        elif not o.uneven:
            own += own[: -(-count // o.world) - len(own)]
        return own[o.start // o.world :]


def batches(options: argparse.Namespace, positions: Sequence[int]) -> list[Sequence[int]]:
    """The positions of each batch."""
    size = options.batch_size
    found = [positions[at : at + size] for at in range(0, len(positions), size)]
    if options.drop_last and found and len(found[-1]) < size:
        found.pop()
    if options.limit_batches is None:
        return found
    done = options.start // size // options.world  # steps of the epoch before the start
    return found[: max(options.limit_batches - done, 0)]


# --- broken samples


def substitute(options: argparse.Namespace, count: int, position: int, attempt: int) -> int:
    """The sample that stands in for a broken one."""
    state = mix((options.seed + GOLDEN) & MASK)
    for number in (options.epoch, position, attempt):
        state = mix((state + number) & MASK)
    return state % count


def chosen(
    data: Data,
    options: argparse.Namespace,
    positions: Sequence[int],
    number_at: Callable[[int], int] | None = None,
) -> list[tuple[int, int]]:
    """Position and number of the samples that a batch has in the end.

    Raises:
        ValueError: one is broken, and that is an error.
    """
    number_at = number_at or order(options, data.count)
    found = []
    for position in positions:
        number = number_at(position % data.count)
        for attempt in range(1, 9):
            if options.on_error == "replace" and data.broken(number):
                number = substitute(options, data.count, position, attempt)
        if not data.broken(number):
            found.append((position, number))
        elif options.on_error != "skip":
            raise ValueError(f"sample {number} is broken")
    return found


# --- the hashes


def head(name: str, dtype: np.dtype) -> bytes:
    return name.encode() + b"\0" + dtype.name.encode() + b"\0"


def encoded(name: str, array: np.ndarray) -> bytes:
    """Name, type, shape and bytes of an array."""
    shape = struct.pack(f"<Q{array.ndim}q", array.ndim, *array.shape)
    return head(name, array.dtype) + shape + array.tobytes()


def encoded_batch(name: str, arrays: list[np.ndarray], ragged: bool) -> bytes:
    """A field of a batch: dense, or shapes, offsets and values."""
    if not ragged:
        return encoded(name, np.stack(arrays))
    lengths = [length for array in arrays for length in array.shape]
    offsets = np.cumsum([0, *(array.size for array in arrays)]).tolist()
    numbers = struct.pack(f"<Q{len(lengths) + len(offsets)}q", len(arrays), *lengths, *offsets)
    return head(name, arrays[0].dtype) + numbers + b"".join(array.tobytes() for array in arrays)


def value_at(data: Data, name: str, number: int, position: int) -> np.ndarray:
    """A field of a sample; what is random about it belongs to its position."""
    if isinstance(data, files.Files):
        return data.value(name, number, position)
    return data.value(name, number)


def hashes(data: Data, options: argparse.Namespace) -> dict[str, str]:
    """Both hashes of what the options choose."""
    names = sorted(dict.fromkeys(options.fields or data.names), key=lambda name: name.encode())
    stream, total = xxhash.xxh3_64(), 0
    number_at = order(options, data.count)
    own: Sequence[int] = share(options, data.count)
    if options.shuffle == "blocks":
        blocks = Blocks(data, options)
        own = blocks.share()

        def number_at(position: int) -> int:
            return blocks.line[position]

    for positions in batches(options, own):
        batch = chosen(data, options, positions, number_at)
        fields = {
            name: [value_at(data, name, number, position) for position, number in batch]
            for name in names
        }
        for name in names if batch else ():
            stream.update(encoded_batch(name, fields[name], name in data.ragged))
        for at, (position, _) in enumerate(batch):
            sample = b"".join(encoded(name, fields[name][at]) for name in names)
            total += xxhash.xxh3_64_intdigest(struct.pack("<Q", position) + sample)
    return {"stream_xxh3": stream.hexdigest(), "samples_xxh3": f"{total & MASK:016x}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", nargs="+", metavar="DATA")
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--fields", type=lambda text: text.split(","))
    parser.add_argument(
        "--shuffle", nargs="?", const="keyed", choices=["torch", "keyed", "blocks", "true"]
    )
    for name in ("seed", "epoch", "rank", "start"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--drop-last", action="store_true")
    parser.add_argument("--uneven", action="store_true")
    parser.add_argument("--limit-batches", type=int)
    parser.add_argument("--pipeline")
    for name in ("window", "stride", "select", "target", "join"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--decode", default="cf", choices=["cf", "none"])
    parser.add_argument("--on-error", default="raise", choices=["raise", "skip", "replace"])
    options = parser.parse_args()
    print(json.dumps(hashes(load(options.data, options), options)))


if __name__ == "__main__":
    main()
