"""What is measured: the cells of a benchmark, their datasets and the generated images.

A *cell* is one workload at one setting (kind of sample, number of workers). Torch is imported only
where a dataset needs it, because some peers run in environments without it.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import random
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

DISTINCT = 256  # samples kept in memory and handed out again and again
VECTOR = 256  # float32 elements: 1 KB
BIG = 2 * 1024 * 1024  # float32 elements: 8 MB
IMAGES = 320
IMAGE_SEED = 20
NUMPY_KINDS = ("int", "array", "big", "pillow")  # what peers without torch tensors can run
WORKLOADS = ("W11", "W1p", "TD", "W12", "W13", "tail", "resume")
LOADERS = ("torch", "torch-again", "torchdata", "millhead")
THREADED = ("spdl", "grain")
ARMS = (*LOADERS, *THREADED, "index_select")

ROUNDS, QUICK_ROUNDS, LEAST_ROUNDS = 11, 5, 5
SLOW_ROUNDS = 3  # of cells in which torch needs half a minute
TABLE_ROWS, TABLE_COLUMNS = 1_000_000, 32
ENTRIES, CLASSES = 1_280_000, 1000  # of a list like ImageNet's
SLOW_INDEX, SLOW_S, USUAL_S = 5, 5.0, 0.01
EVEN_S = 0.1  # each sample of the batch that workers share


@dataclass(frozen=True)
class Cell:
    """One workload at one setting; sent to the arms as JSON."""

    workload: str
    kind: str
    workers: int
    batch_size: int
    epoch_samples: int
    block_s: float
    shuffle: bool = False
    gated: bool = True
    bytes_per_sample: int = 0
    block: str = "epochs"  # or calls, first, memory, tail, resume: the functions of blocks.py
    start: str | None = None  # how workers start; None: as the loader likes
    prefetch: int | None = None
    fresh: bool = False  # every block in a new process of the arm
    dispatch: str = "batch"  # millhead's; the others know only whole batches
    snapshot_rng: bool = False  # millhead's: every batch brings its worker's generators along
    rounds: int = ROUNDS
    least_rounds: int = LEAST_ROUNDS  # for a gate

    @property
    def title(self) -> str:
        """Short name for progress lines and tables."""
        return f"{self.workload} {self.kind}, {self.workers} workers"

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms that this workload is for."""
        if self.workload in ("W11", "W1p"):
            return (*LOADERS, *THREADED)
        return (*LOADERS, "index_select") if self.workload == "TD" else LOADERS

    @property
    def counts(self) -> str:
        """What the rate counts per second (workers: per GB)."""
        names = {"epochs": "samples", "memory": "workers", "tail": "batches"}
        return names.get(self.block, "calls")

    @property
    def timed(self) -> bool:
        """Whether noise matters: seconds are what is judged."""
        return self.block not in ("memory", "tail")

    @property
    def persistent(self) -> bool:
        """Whether workers stay from epoch to epoch."""
        return self.counts != "calls"

    @property
    def in_order(self) -> bool:
        """Whether batches come in the sampler's order."""
        return self.block != "tail"

    @property
    def batches(self) -> int:
        """Batches in an epoch."""
        return -(-self.epoch_samples // self.batch_size)

    @property
    def repeatable(self) -> bool:
        """Whether every epoch gives the same batches."""
        return not self.shuffle and self.kind != "pillow"

    def settings(self) -> dict[str, Any]:
        """The settings that go into a result row."""
        return {
            "kind": self.kind,
            "workers": self.workers,
            "batch_size": self.batch_size,
            "epoch_samples": self.epoch_samples,
            "shuffle": self.shuffle,
            "gated": self.gated,
            "block": self.block,
            "counts": self.counts,
            "start": self.start,
            "prefetch": self.prefetch,
            "dispatch": self.dispatch,
            "snapshot_rng": self.snapshot_rng,
            "fresh": self.fresh,
            "rounds": self.rounds,
            "least_rounds": self.least_rounds,
        }

    def dumps(self) -> str:
        """The cell as one line of JSON."""
        return json.dumps(asdict(self))


def cells(names: Sequence[str], workers: Sequence[int], quick: bool) -> list[Cell]:
    """Expand names such as ``W11`` or ``W11:int`` to cells.

    ``W12:spawn4`` names ``spawn4-cold`` too.

    Raises:
        ValueError: a name is unknown.
    """
    makers = dict(zip(WORKLOADS, (_w11, _w1p, _td, _w12, _w13, _tail, _resume), strict=True))
    found: list[Cell] = []
    for name in names:
        workload, _, kind = name.partition(":")
        if workload not in makers:
            raise ValueError(f"unknown workload {name!r}; known: {', '.join(WORKLOADS)}")
        every = list(makers[workload](workers, quick))
        chosen = [cell for cell in every if kind in ("", cell.kind, cell.kind.partition("-")[0])]
        if kind and not chosen:
            known = ", ".join(dict.fromkeys(cell.kind for cell in every))
            raise ValueError(f"unknown kind in {name!r}; {workload} has: {known}")
        found.extend(chosen)
    if not found:
        raise ValueError(f"{', '.join(names)}: nothing to run with these worker counts")
    return [
        replace(cell, rounds=min(cell.rounds, QUICK_ROUNDS)) if quick else cell for cell in found
    ]


def _w11(workers: Sequence[int], quick: bool) -> Iterator[Cell]:
    """Cheap samples: what a loader itself costs."""
    epoch, block = (8192, 0.1) if quick else (16384, 0.2)
    for kind in ("int", "array", "tensor"):
        size = 8 if kind == "int" else 4 * VECTOR
        for count in workers:
            yield Cell("W11", kind, count, 64, epoch, block, bytes_per_sample=size)
    for kind in () if quick else ("tensors", "tensor_index", "shuffle"):
        size = 8 if kind == "shuffle" else 4 * VECTOR
        for count in (w for w in (0, 2) if w in workers):
            yield Cell("W11", kind, count, 64, epoch, block, kind == "shuffle", False, size)
    if 2 in workers:
        size = 4 * VECTOR
        yield Cell(
            "W11", "snapshots", 2, 64, epoch, block, bytes_per_sample=size, snapshot_rng=True
        )
        samples, block = (32, 0.25) if quick else (64, 0.5)
        yield Cell("W11", "big", 2, 4, samples, block, bytes_per_sample=4 * BIG)


def _w1p(workers: Sequence[int], quick: bool) -> Iterator[Cell]:
    """Pillow decode, random crop and resize: the loader should not matter."""
    for count in workers:
        yield Cell("W1p", "pillow", count, 16, IMAGES // 2 if quick else IMAGES, 0.5)


def _td(workers: Sequence[int], quick: bool) -> Iterator[Cell]:
    """A TensorDataset: rows of one table in memory."""
    rows = 2**17 if quick else TABLE_ROWS
    for count in (w for w in (0, 2) if w in workers):
        yield Cell(
            "TD", "rows", count, 256, rows, 0.3 if quick else 0.5,
            gated=count == 0, bytes_per_sample=4 * TABLE_COLUMNS,
            rounds=LEAST_ROUNDS if count else ROUNDS,
        )  # fmt: skip


def _w12(_: Sequence[int], quick: bool) -> Iterator[Cell]:
    """Start-up: ``next(iter(loader))``, workers that do not persist."""
    small = Cell("W12", "fork4", 4, 32, 512, 0.5 if quick else 1.0, block="calls", start="fork")
    few = SLOW_ROUNDS if quick else LEAST_ROUNDS
    spawned = replace(
        small, kind="spawn4", start="spawn", rounds=few, least_rounds=SLOW_ROUNDS, block_s=1.0
    )
    yield small
    yield replace(small, kind="fork4-random")
    yield spawned
    yield replace(spawned, kind="spawn4-cold", fresh=True, block_s=0.0)
    yield Cell(
        "W12", "list8spawn", 8, 256, ENTRIES, 0.0, block="first", start="spawn", fresh=True,
        rounds=1 if quick else SLOW_ROUNDS, least_rounds=SLOW_ROUNDS,
    )  # fmt: skip


def _w13(_: Sequence[int], quick: bool) -> Iterator[Cell]:
    """Memory of an extra worker over a long list."""
    for start in ("fork", "spawn"):
        yield Cell(
            "W13", start, 4, 256, ENTRIES // 100, 0.0, block="memory", start=start, fresh=True,
            rounds=1 if quick else SLOW_ROUNDS, least_rounds=SLOW_ROUNDS,
        )  # fmt: skip


def _tail(_: Sequence[int], quick: bool) -> Iterator[Cell]:
    """One slow sample, any order. With prefetch 2 another batch waits in the slow worker, unless
    workers take samples. And a first batch of slow samples, which they can share."""
    for prefetch in (1,) if quick else (1, 2):
        yield Cell(
            "tail", f"prefetch{prefetch}", 2, 4, 240, 0.0, gated=prefetch == 1, block="tail",
            prefetch=prefetch, fresh=True, rounds=1 if quick else SLOW_ROUNDS, least_rounds=1,
        )  # fmt: skip
    yield Cell(
        "tail", "sample2", 2, 4, 240, 0.0, gated=False, block="tail", prefetch=2, fresh=True,
        dispatch="sample", rounds=1 if quick else SLOW_ROUNDS, least_rounds=1,
    )  # fmt: skip
    yield Cell(
        "tail", "first8", 4, 8, 64, 0.0, gated=False, block="first", fresh=True,
        dispatch="sample", rounds=SLOW_ROUNDS, least_rounds=SLOW_ROUNDS,
    )  # fmt: skip


def _resume(_: Sequence[int], quick: bool) -> Iterator[Cell]:
    """Go on at nine tenths of an epoch."""
    samples = ENTRIES // 10 if quick else ENTRIES
    for count in (0, 2):
        yield Cell(
            "resume", "at90", count, 64, samples, 0.0, True, block="resume",
            rounds=SLOW_ROUNDS, least_rounds=SLOW_ROUNDS,
        )  # fmt: skip


class Stored:
    """A map-style dataset that hands out prepared objects; as cheap as Python allows."""

    def __init__(self, samples: Sequence[Any], length: int) -> None:
        self.samples = [samples[i % len(samples)] for i in range(length)]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


class Rows:
    """``x[i]`` of one big tensor."""

    def __init__(self, length: int) -> None:
        import torch

        self.x = torch.arange(length * VECTOR, dtype=torch.float32).reshape(length, VECTOR)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index]


class Listed:
    """Paths and labels in a list, as ImageFolder keeps them; nothing is opened."""

    def __init__(self, length: int) -> None:
        each = length // CLASSES
        names = [f"n{1440764 + 13009 * k:08d}" for k in range(CLASSES)]
        self.entries = [
            (f"train/{name}/{name}_{10026 + 7 * n}.JPEG", label)
            for label, name in enumerate(names)
            for n in range(each)
        ]

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: int) -> tuple[int, int]:
        path, label = self.entries[index]
        return zlib.crc32(path.encode()), label


def read_whole_list(_: int) -> None:
    """A worker_init_fn: touch every entry, as a few epochs would."""
    from torch.utils.data import get_worker_info

    info = get_worker_info()
    assert info is not None and isinstance(info.dataset, Listed)
    if sum(len(path) + label for path, label in info.dataset.entries) <= 0:
        raise ValueError("the list is empty")


class Sleeper:
    """Samples that take a while, and perhaps one that takes long."""

    def __init__(self, length: int, usual_s: float, slow_index: int | None) -> None:
        self.length, self.usual_s, self.slow_index = length, usual_s, slow_index

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        time.sleep(SLOW_S if index == self.slow_index else self.usual_s)
        return index


class Pictures:
    """JPEG files: decode, random resized crop to 224 with Pillow, uint8, channels first."""

    def __init__(self, files: Sequence[str], finish: Callable[[np.ndarray], Any]) -> None:
        self.files = list(files)
        self.finish = finish

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        with Image.open(self.files[index]) as opened:
            picture = opened.convert("RGB")
        box = crop_box(picture.width, picture.height)
        small = picture.crop(box).resize((224, 224), Image.Resampling.BILINEAR)
        return self.finish(np.ascontiguousarray(np.asarray(small).transpose(2, 0, 1)))


def crop_box(width: int, height: int) -> tuple[int, int, int, int]:
    """A random resized crop (area 0.08 to 1, aspect 3/4 to 4/3) from the global generator."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = random.randint(0, width - w), random.randint(0, height - h)
            return left, top, left + w, top + h
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def dataset(cell: Cell, data_dir: Path, tensors: bool) -> Any:
    """Build the dataset of a cell; with tensors=False only for NUMPY_KINDS, without torch."""
    if cell.workload == "TD":
        return _table(cell.epoch_samples)
    if cell.workload == "tail":
        if cell.block == "first":
            return Sleeper(cell.epoch_samples, EVEN_S, None)
        return Sleeper(cell.epoch_samples, USUAL_S, SLOW_INDEX)
    if cell.block in ("first", "memory"):
        return Listed(ENTRIES)
    if cell.kind in ("int", "shuffle") or cell.block == "resume":
        return Stored(range(1000, 1000 + DISTINCT), cell.epoch_samples)
    if cell.block == "calls" and cell.kind != "fork4-random":
        return Stored(_counted_vectors(), cell.epoch_samples)
    if cell.kind in ("array", "snapshots", "fork4-random"):
        return Stored(_vectors(), cell.epoch_samples)
    if cell.kind in ("tensor", "tensors"):  # one again and again, or many
        import torch

        vectors = [torch.from_numpy(v) for v in _vectors()]
        return Stored(vectors[:1] if cell.kind == "tensor" else vectors, cell.epoch_samples)
    if cell.kind == "tensor_index":
        return Rows(cell.epoch_samples)
    if cell.kind == "big":
        arrays = [np.full(BIG, k + 0.5, dtype=np.float32) for k in range(4)]
        return Stored(arrays, cell.epoch_samples)
    files = sorted(str(path) for path in image_dir(data_dir).glob("*.jpg"))
    if tensors:
        import torch

        return Pictures(files[: cell.epoch_samples], torch.from_numpy)
    return Pictures(files[: cell.epoch_samples], np.asarray)


def sampler(cell: Cell) -> range | None:
    """Which samples an epoch takes; None: all of them."""
    return range(0, ENTRIES, ENTRIES // cell.epoch_samples) if cell.block == "memory" else None


def _table(rows: int) -> Any:
    import torch
    from torch.utils.data import TensorDataset

    generator = torch.Generator().manual_seed(12)
    return TensorDataset(torch.rand(rows, TABLE_COLUMNS, generator=generator))


def _vectors() -> list[np.ndarray]:
    generator = np.random.default_rng(11)
    return list(generator.standard_normal((DISTINCT, VECTOR)).astype(np.float32))


def _counted_vectors() -> list[np.ndarray]:
    """Without numpy.random, which NumPy imports when it is first used: so in every worker that seeds
    it, unless the program itself has used it before."""
    return list(np.arange(DISTINCT * VECTOR, dtype=np.float32).reshape(DISTINCT, VECTOR))


def image_dir(data_dir: Path) -> Path:
    """Where the generated images of this recipe live."""
    return data_dir / f"imagenet-like-{IMAGES}-{IMAGE_SEED}"


def prepare_images(data_dir: Path) -> str:
    """Generate the images once; return the hash of names and contents."""
    target = image_dir(data_dir)
    if not target.is_dir():
        partial = target.with_suffix(f".{random.getrandbits(32):08x}")
        partial.mkdir(parents=True)
        for index in range(IMAGES):
            (partial / f"{index:05d}.jpg").write_bytes(imagenet_like(index))
        partial.rename(target)
    digest = hashlib.sha256()
    for path in sorted(target.glob("*.jpg")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def imagenet_like(index: int) -> bytes:
    """A JPEG with a photograph's statistics: dead leaves plus value noise, q96 4:4:4."""
    from PIL import Image

    generator = np.random.default_rng((IMAGE_SEED, index))
    height, width = (int(side * generator.uniform(0.75, 1.25)) for side in (375, 500))
    canvas = _dead_leaves(generator, height, width) + 0.4 * _value_noise(generator, height, width)
    pixels = np.clip(canvas * 255, 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=96, subsampling=0)
    return out.getvalue()


def _dead_leaves(generator: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Overlapping discs of random colour, many small and few large."""
    canvas = np.full((height, width, 3), 0.5, dtype=np.float32)
    rows, columns = np.ogrid[:height, :width]
    for _ in range(360):
        radius = min(6 / math.sqrt(generator.uniform(1e-3, 1)), 160)
        y, x = generator.uniform(0, height), generator.uniform(0, width)
        top, left = max(int(y - radius), 0), max(int(x - radius), 0)
        window = np.s_[top : int(y + radius) + 1, left : int(x + radius) + 1]
        inside = (rows[window[0]] - y) ** 2 + (columns[:, window[1]] - x) ** 2 < radius**2
        canvas[window][inside] = generator.uniform(0.1, 0.9) + generator.uniform(-0.15, 0.15, 3)
    return canvas


def _value_noise(generator: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Seven octaves of smoothed random values, about -0.5 to 0.5, coarse ones strongest."""
    from PIL import Image

    total = np.zeros((height, width, 3), dtype=np.float32)
    for octave in range(7):
        side = 4 << octave
        grid = generator.uniform(-0.5, 0.5, (min(side, height), min(side, width)))
        layer = Image.fromarray(grid.astype(np.float32)).resize(
            (width, height), Image.Resampling.BICUBIC
        )
        tint = generator.uniform(0.6, 1.0, 3).astype(np.float32)
        total += np.asarray(layer)[..., None] * tint * 0.57**octave
    return total
