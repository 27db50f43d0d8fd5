"""The cells of shuffle="blocks" over arrays, found by counting chunks one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

POOL = 256 << 20  # bytes that all blocks under way are planned for
LEAST, MOST = 4, 32  # blocks under way
GOOD = 1.10


class Grid(NamedTuple):
    """How one variable is cut: its chunks' edges along each dimension it has."""

    itemsize: int
    #: By dimension the first place of each chunk, and its length as it is stored.
    chunks: dict[str, list[tuple[int, int]]]


class Windows(NamedTuple):
    """Along one dimension."""

    origins: list[int]
    length: int
    shift: int  # of the target


def touched(windows: Windows, origin: int, chunks: list[tuple[int, int]]) -> set[int]:
    """Numbers of the chunks that a window reaches into."""
    begins = [begin for begin, _ in chunks]
    ends = [*begins[1:], math.inf]
    last = origin + windows.length
    return {n for n, (b, e) in enumerate(zip(begins, ends, strict=True)) if b < last and e > origin}


class Reach(NamedTuple):
    """Lengths of chunks: of windows, of targets, of both; of all cells, and of the largest."""

    sums: tuple[int, int, int]
    most: tuple[int, int, int]


def reach(windows: Windows, cell: int, chunks: list[tuple[int, int]] | None) -> Reach:
    cells: dict[int, tuple[set[int], set[int]]] = {}
    for origin in windows.origins:
        own, target = cells.setdefault(origin // cell, (set(), set()))
        if chunks is not None:
            own |= touched(windows, origin, chunks)
            target |= touched(windows, origin + windows.shift, chunks)
    if chunks is None:
        return Reach((len(cells),) * 3, (1, 1, 1))
    lengths = [
        tuple(sum(chunks[n][1] for n in part) for part in (own, target, own & target))
        for own, target in cells.values()
    ]
    sums, most = (tuple(map(how, zip(*lengths, strict=True))) for how in (sum, max))
    return Reach(sums, most)  # type: ignore[arg-type]


def lengths_tried(windows: Windows, chunk: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ... chunks, until all origins lie in one cell."""
    found, chunks = [], 1
    while True:
        found.append(chunks * chunk)
        if found[-1] > windows.origins[-1] or len(found) == 20 or len(windows.origins) == 1:
            return found
        if chunks < 3:
            chunks += 1
        else:
            chunks = chunks // 3 * 4 if chunks & (chunks - 1) else chunks // 2 * 3


class Search:
    """The best cells: a good amplification first, then little memory."""

    def __init__(self, windows: dict[str, Windows], grids: list[Grid], target: bool) -> None:
        self.windows, self.grids, self.target = windows, grids, target
        whole = {dim: along.origins[-1] + 1 for dim, along in windows.items()}
        self.unique = self.costs(whole)[0]

    def costs(self, cell: dict[str, int]) -> tuple[float, float]:
        """Decoded bytes of all blocks, and those of the largest block."""
        decoded = largest = 0
        for grid in self.grids:
            parts = [reach(w, cell[d], grid.chunks.get(d)) for d, w in self.windows.items()]
            sums = [math.prod(part.sums[n] for part in parts) for n in range(3)]
            most = [math.prod(part.most[n] for part in parts) for n in range(3)]
            decoded += grid.itemsize * (sums[0] + (sums[1] - sums[2]) * self.target)
            largest += grid.itemsize * (most[0] + most[1] * self.target)
        return decoded, largest

    def rank(self, decoded: float, largest: float) -> tuple[object, ...]:
        """The less, the better."""
        factor, fits = decoded / self.unique, largest <= POOL / LEAST
        if fits and factor <= GOOD:
            return (0, largest)
        return (1, factor) if fits else (2, largest)

    def best(self) -> tuple[dict[str, int], int]:
        """The length of cells along each dimension, and how many blocks are under way."""
        found: tuple[tuple[object, ...], dict[str, int], float] | None = None
        tried = []
        for dim, along in self.windows.items():
            chunk = max(
                (length for grid in self.grids for _, length in grid.chunks.get(dim, [])), default=1
            )
            tried.append(lengths_tried(along, chunk))
        for lengths in itertools.product(*tried):
            cell = dict(zip(self.windows, lengths, strict=True))
            decoded, largest = self.costs(cell)
            rank = self.rank(decoded, largest)
            if found is None or rank < found[0]:  # type: ignore[operator]
                found = rank, cell, largest
        assert found is not None
        parts = POOL / (found[2] + 1)
        return found[1], int(min(max(parts, LEAST), MOST))


def blocks(
    windows: dict[str, Windows],
    cell: dict[str, int],
    at: Callable[[int], dict[str, int]],
    count: int,
) -> list[list[int]]:
    """The samples of each cell."""
    found: dict[tuple[int, ...], list[int]] = {}
    for number in range(count):
        origin = at(number)
        key = tuple(origin[dim] // cell[dim] for dim in windows)
        found.setdefault(key, []).append(number)
    return [found[key] for key in sorted(found)]
