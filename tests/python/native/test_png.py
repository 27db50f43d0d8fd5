"""PNG files of every filter, channel count and chunking: Pillow's pixels, with libpng and without it."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

Bytes = npt.NDArray[np.uint8]
GREY, RGB, PALETTE, GREY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGB_ALPHA: 4}


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def filtered(row: Bytes, above: Bytes, pixel: int, kind: int) -> bytes:
    """A row as the standard has it: the filter's number, then differences to the filter's guess."""
    left = np.concatenate([np.zeros(pixel, np.int64), row[:-pixel]]).astype(np.int64)
    corner = np.concatenate([np.zeros(pixel, np.int64), above[:-pixel]]).astype(np.int64)
    up = above.astype(np.int64)
    whole = left + up - corner
    away = np.stack([abs(whole - left), abs(whole - up), abs(whole - corner)])
    nearest = np.choose(away.argmin(axis=0), [left, up, corner])
    guess = [np.zeros_like(up), left, up, (left + up) // 2, nearest][kind]
    return bytes([kind]) + ((row - guess) % 256).astype(np.uint8).tobytes()


def png(rows: Bytes, colour: int, filters: list[int], parts: int = 1, **odd: Any) -> bytes:
    """A PNG file of `rows` (height x bytes), its data in so many chunks."""
    pixel = CHANNELS[colour]
    height, width = rows.shape[0], rows.shape[1] // pixel
    above = np.zeros(rows.shape[1], np.uint8)
    stored = b""
    for row, kind in zip(rows, filters, strict=True):
        stored += filtered(row, above, pixel, kind)
        above = row
    packed = zlib.compress(stored[: odd.get("keep", len(stored))])
    step = -(-len(packed) // parts)
    data = [chunk(b"IDAT", packed[at : at + step]) for at in range(0, len(packed), step)]
    if "damage" in odd:
        data[odd["damage"]] = data[odd["damage"]][:-1] + b"?"
    between = [odd.get("between", b"")]
    palette = bytes(
        np.random.default_rng(3).integers(0, 256, odd.get("colours", 256) * 3, np.uint8)
    )
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)),
            chunk(b"tEXt", b"Comment\0made here"),
            chunk(b"PLTE", palette) if colour == PALETTE else b"",
            data[0],
            *(between if len(data) > 1 else []),
            *data[1:],
            chunk(b"IEND", b""),
        ]
    )


def ours(tmp_path: Path, files: list[bytes]) -> millhead.Dataset:
    for number, content in enumerate(files):
        (tmp_path / f"{number:04d}.png").write_bytes(content)
    return millhead.open(tmp_path, pipeline="image: decode", fields=["image"], output="numpy")


def pillows(content: bytes) -> Bytes:
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


@pytest.mark.parametrize("colour", CHANNELS)
def test_every_filter_width_and_chunking_gives_pillows_pixels(tmp_path: Path, colour: int) -> None:
    rng = np.random.default_rng(colour)
    files = []
    for number in range(60):
        height, width = 1 + number % 7, 1 + number % 19
        steep = rng.integers(0, 256, (height, width * CHANNELS[colour]), np.uint8)
        smooth = (steep // 32 + np.arange(steep.shape[1]) % 200).astype(np.uint8)
        kinds = [number % 5] * height if number < 40 else rng.integers(0, 5, height).tolist()
        rows = steep if number % 2 else smooth
        files.append(png(rows, colour, kinds, parts=1 + number % 3))
    dataset = ours(tmp_path, files)
    for number, content in enumerate(files):
        assert np.array_equal(dataset[number]["image"], pillows(content)), number


def test_a_region_is_that_of_the_whole_picture(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).integers(0, 256, (40, 90), np.uint8)
    (tmp_path / "a.png").write_bytes(png(rows, RGB, [i % 5 for i in range(40)]))
    dataset = millhead.open(
        tmp_path, pipeline="image: center_crop 12x14", fields=["image"], output="numpy"
    )
    assert np.array_equal(dataset[0]["image"], rows.reshape(40, 30, 3)[14:26, 8:22])


def test_a_short_palette_gives_pillows_pixels(tmp_path: Path) -> None:
    rows = np.random.default_rng(2).integers(0, 5, (9, 11), np.uint8)
    content = png(rows, PALETTE, [0] * 9, colours=5)
    assert np.array_equal(ours(tmp_path, [content])[0]["image"], pillows(content))


ODD: dict[str, dict[str, Any]] = {
    "a chunk between the data": {"parts": 3, "between": chunk(b"tEXt", b"Comment\0hello")},
    "a checksum that is wrong": {"parts": 3, "damage": 1},
    "data that ends too early": {"keep": 100},
    "a filter that does not exist": {},
}


@pytest.mark.parametrize("what", ODD)
def test_what_is_wrong_is_refused_and_named(tmp_path: Path, what: str) -> None:
    rows = np.random.default_rng(4).integers(0, 256, (20, 60), np.uint8)
    content = png(rows, RGB, [1] * 20, **ODD[what])
    if what == "a filter that does not exist":
        header, _, rest = content.partition(chunk(b"tEXt", b"Comment\0made here"))
        stored = b"".join(bytes([7]) + row.tobytes() for row in rows)
        content = header + chunk(b"IDAT", zlib.compress(stored)) + chunk(b"IEND", b"")
        assert rest
    with pytest.raises(millhead.Error, match=r"0000\.png.*PNG"):
        _ = ours(tmp_path, [content])[0]
