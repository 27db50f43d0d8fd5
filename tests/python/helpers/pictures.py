"""Picture files of every kind that we read, made with Pillow from seeded noise."""

from __future__ import annotations

import io
import random
from pathlib import Path

import numpy as np
from PIL import Image

SUBSAMPLINGS = ("4:4:4", "4:2:2", "4:2:0")


def scene(rng: np.random.Generator, width: int, height: int, channels: int = 3) -> np.ndarray:
    """Something with edges, gradients and noise."""
    small = rng.integers(0, 256, (max(height // 16, 1), max(width // 16, 1), channels), np.uint8)
    planes = [
        np.asarray(
            Image.fromarray(small[:, :, i]).resize((width, height), Image.Resampling.BICUBIC)
        )
        for i in range(channels)
    ]
    array = np.stack(planes, 2).astype(np.int16)
    array += rng.integers(-20, 21, array.shape, np.int16)
    x, y = rng.integers(0, width), rng.integers(0, height)
    array[y:, x:] = 255 - array[y:, x:]
    return np.clip(array, 0, 255).astype(np.uint8)


def jpeg(path: Path, rng: np.random.Generator, width: int, height: int, kind: str) -> Path:
    """Kinds: the subsamplings, grey, cmyk, progressive, restart, exifN."""
    options: dict[str, object] = {"quality": int(rng.integers(50, 97))}
    mode = {"grey": "L", "cmyk": "CMYK"}.get(kind, "RGB")
    channels = {"L": 1, "CMYK": 4}.get(mode, 3)
    array = scene(rng, width, height, channels)
    image = Image.fromarray(array[:, :, 0] if mode == "L" else array, mode)
    if mode == "RGB":
        options["subsampling"] = kind if ":" in kind else random.Random(width).choice(SUBSAMPLINGS)
    if kind == "progressive":
        options["progressive"] = True
    if kind == "restart":
        options["restart_marker_blocks"] = 3
    if kind.startswith("exif"):
        exif = Image.Exif()
        exif[0x0112] = int(kind[4:])
        options["exif"] = exif
    image.save(path, "JPEG", **options)
    return path


def png(path: Path, rng: np.random.Generator, width: int, height: int, kind: str) -> Path:
    """Kinds: rgb, rgba, grey, greyalpha, palette, palette1/2/4, bits, deep (16-bit grey), exifN."""
    array = scene(rng, width, height, 4)
    if kind == "grey":
        image = Image.fromarray(array[:, :, 0])
    elif kind == "greyalpha":
        image = Image.merge("LA", [Image.fromarray(array[:, :, i]) for i in (0, 3)])
    elif kind == "rgba":
        image = Image.fromarray(array)
    elif kind.startswith("palette"):
        bits = int(kind[7:] or 8)
        colours = 2**bits - (bits == 8) * 56  # indices beyond the palette are none of ours
        image = Image.fromarray(array[:, :, :3]).quantize(colours)
        image.save(path, "PNG", bits=bits)
        return path
    elif kind == "bits":
        image = Image.fromarray(array[:, :, 0]).convert("1")
    elif kind == "deep":
        deep = array[:, :, 0].astype(np.uint16) * 2
        image = Image.fromarray(deep)
    else:
        image = Image.fromarray(array[:, :, :3])
    exif = Image.Exif()
    if kind.startswith("exif"):
        exif[0x0112] = int(kind[4:])
    image.save(path, "PNG", exif=exif if len(exif) else None)
    return path


JPEG_KINDS = (*SUBSAMPLINGS, "grey", "cmyk", "progressive", "restart")
PNG_KINDS = (
    *("rgb", "rgba", "grey", "greyalpha", "palette", "palette1", "palette2", "palette4"),
    *("bits", "deep"),
)


def encoded(image: Image.Image, format: str, **options: object) -> bytes:
    """A picture as a file's bytes."""
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()
