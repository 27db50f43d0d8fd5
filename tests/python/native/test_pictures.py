"""Pipelines for pictures give Pillow's pixels, whatever the file, the crop and the size."""

from __future__ import annotations

import random
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from helpers import pictures, pipeline_runs
from PIL import Image

Job = tuple[int, str, Path]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every kind of file, in several sizes."""
    place, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(20)
    made = []
    for number in range(3):
        for kind in pictures.JPEG_KINDS:
            width, height = (int(n) for n in rng.integers(1 + 40 * number, 320, 2))
            name = f"{kind.replace(':', '')}-{number}.jpg"
            made.append(pictures.jpeg(place / name, rng, width, height, kind))
        for kind in pictures.PNG_KINDS:
            width, height = (int(n) for n in rng.integers(1 + 40 * number, 200, 2))
            made.append(pictures.png(place / f"{kind}-{number}.png", rng, width, height, kind))
    return made


def jobs_of(files: list[Path], first: int = 0) -> list[Job]:
    return [(first + number, "image", path) for number, path in enumerate(files)]


TEXTS = [
    "",
    "decode grey",
    "decode | random_resized_crop 224 | flip",
    "decode | random_resized_crop 64x48 bicubic scale=0.3,0.9 ratio=1/2,2 | flip vertical p=0.7",
    "decode | resize 40 | center_crop 32",
    "resize 64x120 lanczos | flip p=1",
    "resize 31x50 box",
    "resize 50x37 hamming | flip vertical p=1",
    "random_resized_crop 32 nearest | flip",
    "center_crop 100x90 | cast f32",
    "pad 3,1 value=200 | flip p=1 | pad 40 | random_crop 41x39",
    "random_crop 9 pad=40 | layout chw",
    "decode grey | random_resized_crop 33x17 | normalize mean=0.4 std=0.2 bf16 | layout chw",
    "random_resized_crop 48 | normalize imagenet f16 | layout chw",
    "random_resized_crop 48 | normalize imagenet",
    "resize 20x21 | normalize mean=0.5,0.4,0.3 std=0.1,0.2,0.3 bf16 | cast f32",
    "flip | resize 60x70 | flip vertical | random_crop 50 | resize 25x30 bicubic",
    "resize 60x60 | color_jitter brightness=0.4 contrast=0.4 saturation=0.4 hue=0.1 | flip",
    "resize 50x50 | color_jitter saturation=0,3 | color_jitter hue=-0.5,0.5 | normalize unit",
]


@pytest.mark.parametrize("kernels", ["best", "plain"])
@pytest.mark.parametrize("text", TEXTS)
def test_a_pipeline_gives_pillows_values(files: list[Path], text: str, kernels: str) -> None:
    assert pipeline_runs.different(text, jobs_of(files), kernels=kernels, seed=7, epoch=3) == []


def test_a_thousand_random_crops_and_sizes_are_pillows(files: list[Path]) -> None:
    chosen = random.Random(20)
    problems = []
    for number in range(25):
        height, width = chosen.randint(1, 200), chosen.randint(1, 200)
        kind = chosen.choice(pipeline_runs.FILTERS)
        text = f"random_resized_crop {height}x{width} {kind} scale=0.01,1 | flip"
        some = chosen.choices(files, k=42)
        problems += pipeline_runs.different(text, jobs_of(some, 100 * number), seed=number)
    assert problems == []


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_turns_a_picture_when_asked_to(tmp_path: Path, orientation: int) -> None:
    rng, kind = np.random.default_rng(orientation), f"exif{orientation}"
    jobs = [
        (0, "image", pictures.jpeg(tmp_path / "a.jpg", rng, 70, 41, kind)),
        (1, "image", pictures.png(tmp_path / "b.png", rng, 33, 52, kind)),
    ]
    for text in ("decode exif", "decode exif | random_resized_crop 30x20 | flip", "decode"):
        assert pipeline_runs.different(text, jobs) == []


def test_a_mask_keeps_its_labels_and_shares_the_crop(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    jobs: list[Job] = []
    for position in range(20):
        image = pictures.jpeg(tmp_path / f"{position}.jpg", rng, 90, 80, "4:2:0")
        kind = ("palette", "palette2", "grey", "bits")[position % 4]
        mask = pictures.png(tmp_path / f"{position}.png", rng, 90, 80, kind)
        jobs += [(position, "image", image), (position, "mask", mask)]
    text = "image: decode; mask: decode mask; image,mask: random_resized_crop 40 | flip"
    assert pipeline_runs.different(text, jobs, seed=2) == []


def test_a_mask_of_another_size_is_an_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    jobs: list[Job] = [
        (0, "image", pictures.png(tmp_path / "a.png", rng, 50, 40, "rgb")),
        (0, "mask", pictures.png(tmp_path / "b.png", rng, 40, 50, "grey")),
        (1, "mask", tmp_path / "b.png"),
    ]
    text = "mask: decode mask; image,mask: random_crop 20"
    image, mask, alone = pipeline_runs.run("image: decode\n" + text, jobs)
    assert image.array is not None and alone.array is not None
    assert mask.error == (
        "corrupt data: mask is 40x50 pixels (width x height) where random_crop is shared with a "
        "field of 50x40"
    )


def test_pillow_decodes_no_other_pixels_beyond_a_broken_stretch(tmp_path: Path) -> None:
    """Data that is broken between intact markers: libjpeg goes on, and so does Pillow."""
    rng, chosen = np.random.default_rng(6), random.Random(6)
    jobs: list[Job] = []
    for number in range(12):
        path = pictures.jpeg(tmp_path / f"{number}.jpg", rng, 120, 100, "4:4:4")
        data = bytearray(path.read_bytes())
        start = data.rindex(b"\xff\xda") + 14
        at = chosen.randrange(start, len(data) - 10)
        data[at : at + 4] = bytes(b for b in rng.integers(0, 255, 4, np.uint8))
        path.write_bytes(data)
        jobs.append((number, "image", path))
    assert pipeline_runs.different("decode", jobs) == []


@pytest.mark.parametrize("kind", ["4:2:0", "progressive", "cmyk", "rgb", "palette", "deep"])
def test_a_truncated_file_is_corrupt_whatever_the_crop(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(8)
    is_png = kind in pictures.PNG_KINDS
    path = tmp_path / "file"
    (pictures.png if is_png else pictures.jpeg)(path, rng, 200, 150, kind)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 9 // 10])
    text = "decode | random_resized_crop 8 scale=0.01,0.02"
    for made in pipeline_runs.run(text, [(n, "image", path) for n in range(10)]):
        assert re.match("corrupt data: truncated (JPEG|PNG)", made.error)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_of(width: int, height: int, *rest: bytes, interlaced: int = 0) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(rest) + chunk(b"IEND", b"")


BOMBS = {
    "empty": (b"", "corrupt data: the file is empty"),
    "text": (b"hello, this is no picture", "not supported: not a JPEG or PNG picture"),
    "gif": (b"GIF89a\x01\x00\x01\x00\x00\x00\x00", "not supported: not a JPEG or PNG picture"),
    "wide png": (png_of(2**31 - 1, 1, chunk(b"IDAT", b"")), "not supported: the picture is "),
    "huge png": (png_of(60000, 60000, chunk(b"IDAT", b"")), "not supported: the picture is "),
    "large interlaced png": (
        png_of(13000, 13000, chunk(b"IDAT", zlib.compress(b"")), interlaced=1),
        "not supported: interlaced PNG of 13000x13000 pixels is refused",
    ),
    "no pixels": (png_of(10, 10), "corrupt data: the PNG has no pixels"),
    "empty pixels": (
        png_of(10, 10, chunk(b"IDAT", zlib.compress(b""))),
        "corrupt data: broken PNG",
    ),
    "bad checksum": (
        png_of(10, 10, chunk(b"IDAT", b"abcdefgh")[:-1] + b"?"),
        "corrupt data: broken PNG",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_is_no_sound_picture_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    data, says = BOMBS[name]
    path = tmp_path / "file"
    path.write_bytes(data)
    (made,) = pipeline_runs.run("decode | center_crop 8", [(0, "image", path)])
    assert made.array is None
    assert made.error.startswith(says), made.error


def progressive_bomb(scans: int) -> bytes:
    """A small progressive JPEG whose first scan comes again and again."""
    picture = Image.fromarray(np.full((64, 64), 9, np.uint8))
    data = pictures.encoded(picture, "JPEG", progressive=True)
    start = data.index(b"\xff\xda")
    end = data.index(b"\xff", start + 12)
    return data[:end] + data[start:end] * scans + data[end:]


def test_too_many_scans_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "scans.jpg"
    path.write_bytes(progressive_bomb(100_000))
    (made,) = pipeline_runs.run("decode", [(0, "image", path)])
    assert made.error == "not supported: JPEG with over 500 scans is refused"


def test_a_progressive_header_alone_gets_no_memory(tmp_path: Path) -> None:
    picture = Image.fromarray(np.zeros((16, 16, 3), np.uint8))
    data = bytearray(pictures.encoded(picture, "JPEG", progressive=True, subsampling=0))
    frame = data.index(b"\xff\xc2")
    data[frame + 5 : frame + 9] = struct.pack(">HH", 13000, 13000)
    path = tmp_path / "large.jpg"
    path.write_bytes(data)
    (made,) = pipeline_runs.run("decode | resize 8x8", [(0, "image", path)])
    assert made.error.startswith("not supported: progressive JPEG of 13000x13000 pixels is refused")


def psnr(one: np.ndarray, other: np.ndarray) -> float:
    error = np.mean((one.astype(np.float64) - other.astype(np.float64)) ** 2)
    return float(10 * np.log10(255**2 / error)) if error else 99.0


def test_the_fast_profile_is_close_to_the_exact_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    base = np.asarray(
        Image.fromarray(rng.integers(0, 256, (60, 80, 3), np.uint8)).resize(
            (1600, 1200), Image.Resampling.BICUBIC
        )
    )
    path = tmp_path / "photo.jpg"
    Image.fromarray(base).save(path, quality=90, subsampling="4:2:0")
    jobs: list[Job] = [(n, "image", path) for n in range(20)]
    text = "decode | random_resized_crop 224 scale=0.3,1 | flip"
    exact, fast = (pipeline_runs.run(text, jobs, profile=p) for p in ("exact", "fast"))
    close = []
    for one, other in zip(exact, fast, strict=True):
        assert one.array is not None and other.array is not None
        close.append(psnr(one.array, other.array))
    assert min(close) >= 40, close
    assert min(close) < 99  # it does decode fewer pixels
