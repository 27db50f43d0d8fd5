"""What pipelines make of pictures, from Pillow and NumPy alone: the reference for our C.

    steps = parse("image: decode | random_resized_crop 224 | flip")["image"]
    array = apply(steps, "cat.jpg", Draws(seed=0, epoch=0, position=5))

Draws are Philox4x32-10 over (seed, epoch, position, op name + occurrence, number of the draw).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
    "nearest": Image.Resampling.NEAREST,
}
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


# --- draws


def mix(bits: int) -> int:
    """The output function of splitmix64."""
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB & MASK
    return bits ^ (bits >> 31)


def philox(key: tuple[int, int], counter: tuple[int, int, int, int]) -> list[int]:
    """One block of Philox4x32-10."""
    k0, k1 = key
    a, b, c, d = counter
    for _ in range(10):
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (
            (right >> 32) ^ b ^ k0,
            right & 0xFFFFFFFF,
            (left >> 32) ^ d ^ k1,
            left & 0xFFFFFFFF,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return [a, b, c, d]


def name_bits(name: str, occurrence: int) -> int:
    """FNV-1a of an op's name, and which one of that name it is."""
    bits = 0xCBF29CE484222325
    for letter in name.encode():
        bits = (bits ^ letter) * 0x100000001B3 & MASK
    return (bits + occurrence) & MASK


@dataclass(frozen=True)
class Draws:
    """The draws of one sample."""

    seed: int
    epoch: int
    position: int

    def of(self, name: str, occurrence: int) -> Drawer:
        """Those of one op."""
        key = mix((mix((self.seed + GOLDEN) & MASK) + self.epoch) & MASK)
        key = mix((key + name_bits(name, occurrence)) & MASK)
        return Drawer((key & 0xFFFFFFFF, key >> 32), self.position)


@dataclass(frozen=True)
class Drawer:
    """The draws of one op for one sample."""

    key: tuple[int, int]
    position: int

    def bits(self, draw: int) -> int:
        counter = (draw // 2, 0, self.position & 0xFFFFFFFF, self.position >> 32)
        block = philox(self.key, counter)
        first = draw % 2 * 2
        return block[first] | block[first + 1] << 32

    def unit(self, draw: int) -> float:
        return (self.bits(draw) >> 11) * 2.0**-53

    def between(self, draw: int, low: float, high: float) -> float:
        return low + (high - low) * self.unit(draw)

    def below(self, draw: int, count: int) -> int:
        return self.bits(draw) * count >> 64


# --- the text


@dataclass
class Step:
    """One step: its op, which of that name it is, and what stands behind it."""

    name: str
    occurrence: int
    words: list[str] = field(default_factory=list)
    options: dict[str, list[float]] = field(default_factory=dict)

    def filter(self) -> Image.Resampling:
        return next((FILTERS[w] for w in self.words if w in FILTERS), FILTERS["bilinear"])

    def size(self) -> tuple[int, int]:
        """Width and height."""
        rows, _, columns = self.words[0].partition("x")
        return int(columns or rows), int(rows)

    def one_side(self) -> bool:
        return "x" not in self.words[0]


def parse(text: str) -> dict[str, list[Step]]:
    """The steps of each field; of a text that is sound."""
    seen: Counter[str] = Counter()
    plans: dict[str, list[Step]] = {}
    for statement in text.replace("\n", ";").split(";"):
        if not statement.strip():
            continue
        names, colon, steps = statement.partition(":")
        fields = [name.strip() for name in names.split(",")] if colon else ["image"]
        for words in (step.split() for step in (steps if colon else names).split("|")):
            step = Step(words[0], seen[words[0]])
            seen[words[0]] += 1
            for word in words[1:]:
                key, equals, values = word.partition("=")
                if equals:
                    step.options[key] = [float(Fraction(value)) for value in values.split(",")]
                else:
                    step.words.append(word)
            for name in fields:
                plans.setdefault(name, []).append(step)
    return plans


# --- pixels


def decode(step: Step | None, path: str | Path) -> tuple[Image.Image, bool]:
    """The picture, and whether it is a mask."""
    words = step.words if step else []
    with Image.open(path) as opened:
        image: Image.Image = ImageOps.exif_transpose(opened) if "exif" in words else opened
        if "mask" not in words:
            return image.convert("L" if "grey" in words else "RGB"), False
        if image.mode == "1":
            return Image.fromarray(np.asarray(image).astype(np.uint8)), True
        if image.mode not in ("L", "P"):
            raise ValueError(f"a mask of mode {image.mode}")
        return Image.fromarray(np.asarray(image)), True


def shorter_side(size: tuple[int, int], length: int) -> tuple[int, int]:
    width, height = size
    if width <= height:
        return length, int(length * height / width)
    return int(length * width / height), length


def resized_crop_box(step: Step, size: tuple[int, int], drawer: Drawer) -> tuple[int, ...]:
    """Left, top, width, height: torchvision's RandomResizedCrop.get_params."""
    width, height = size
    scale = step.options.get("scale", [0.08, 1.0])
    ratio = step.options.get("ratio", [3 / 4, 4 / 3])
    logs = [math.log(r) for r in ratio]
    for draw in range(0, 40, 4):
        target = width * height * drawer.between(draw, *scale)
        aspect = math.exp(drawer.between(draw + 1, *logs))
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            top = drawer.below(draw + 2, height - h + 1)
            return drawer.below(draw + 3, width - w + 1), top, w, h
    w, h = width, height
    if width / height < ratio[0]:
        h = round(w / ratio[0])
    elif width / height > ratio[1]:
        w = round(h * ratio[1])
    w, h = max(w, 1), max(h, 1)
    return (width - w) // 2, (height - h) // 2, w, h


def cut(image: Image.Image, left: int, top: int, width: int, height: int) -> Image.Image:
    return image.crop((left, top, left + width, top + height))


def pad(image: Image.Image, sides: tuple[int, int, int, int], value: int = 0) -> Image.Image:
    """Left, top, right, bottom."""
    left, top, right, bottom = sides
    fill = (value,) * len(image.getbands())
    size = (image.width + left + right, image.height + top + bottom)
    padded = Image.new(image.mode, size, fill if len(fill) > 1 else value)
    padded.paste(image, (left, top))
    return padded


def center_crop(image: Image.Image, width: int, height: int) -> Image.Image:
    columns, rows = max(width - image.width, 0), max(height - image.height, 0)
    image = pad(image, (columns // 2, rows // 2, (columns + 1) // 2, (rows + 1) // 2))
    top, left = round((image.height - height) / 2.0), round((image.width - width) / 2.0)
    return cut(image, left, top, width, height)


def turn_hue(image: Image.Image, turn: float) -> Image.Image:
    hue, saturation, value = image.convert("HSV").split()
    turned = np.array(hue) + np.int32(turn * 255).astype(np.uint8)
    hue = Image.fromarray(turned.astype(np.uint8))
    return Image.merge("HSV", (hue, saturation, value)).convert("RGB")


def color_jitter(step: Step, image: Image.Image, drawer: Drawer) -> Image.Image:
    """torchvision's ColorJitter on a picture of Pillow's."""
    names = ("brightness", "contrast", "saturation", "hue")
    order = [0, 1, 2, 3]
    for kind in range(3):
        chosen = kind + drawer.below(kind, 4 - kind)
        order[kind], order[chosen] = order[chosen], order[kind]
    for kind in order:
        given, neutral = step.options.get(names[kind]), float(kind != 3)
        low = high = neutral
        if given and len(given) == 1:
            low, high = neutral - given[0], neutral + given[0]
            low = low if kind == 3 else max(low, 0.0)
        elif given:
            low, high = given
        if low == high == neutral:
            continue
        factor = drawer.between(4 + kind, low, high)
        if kind == 3:
            image = turn_hue(image, factor)
        else:
            enhance = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)[kind]
            image = enhance(image).enhance(factor)
    return image


def change(step: Step, image: Image.Image, mask: bool, drawer: Drawer) -> Image.Image:
    """A step that changes pixels."""
    kind = FILTERS["nearest"] if mask else step.filter()
    if step.name == "resize":
        one = step.one_side()
        return image.resize(shorter_side(image.size, step.size()[0]) if one else step.size(), kind)
    if step.name == "center_crop":
        return center_crop(image, *step.size())
    if step.name == "random_resized_crop":
        return cut(image, *resized_crop_box(step, image.size, drawer)).resize(step.size(), kind)
    if step.name == "random_crop":
        amount = int(step.options.get("pad", [0])[0])
        image = pad(image, (amount,) * 4)
        width, height = step.size()
        top = drawer.below(0, image.height - height + 1)
        return cut(image, drawer.below(1, image.width - width + 1), top, width, height)
    if step.name == "flip":
        if drawer.unit(0) >= step.options.get("p", [0.5])[0]:
            return image
        vertical = "vertical" in step.words
        return ImageOps.flip(image) if vertical else ImageOps.mirror(image)
    if step.name == "pad":
        sides = [int(number) for number in step.words[0].split(",")]
        left, top, right, bottom = (sides * 4)[:4]
        value = int(step.options.get("value", [0])[0])
        return pad(image, (left, top, right, bottom), value)
    assert step.name == "color_jitter", step.name
    return color_jitter(step, image, drawer)


# --- values


def bfloat16(array: np.ndarray) -> np.ndarray:
    """Float32 rounded to bfloat16, as the 16 bits of it."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def cast(array: np.ndarray, dtype: str, final: bool) -> np.ndarray:
    """Values in another type; bfloat16 as its bits, or as float32 where more follows."""
    if dtype == "bf16":
        bits = bfloat16(array)
        return bits if final else (bits.astype(np.uint32) << 16).view(np.float32)
    return array.astype({"u8": np.uint8, "f16": np.float16, "f32": np.float32}[dtype])


def normalize(step: Step, array: np.ndarray) -> np.ndarray:
    mean, std = (step.options.get("mean", [0.0]), step.options.get("std", [1.0]))
    if "imagenet" in step.words:
        mean, std = (list(numbers) for numbers in IMAGENET)
    values = array.astype(np.float32) / np.float32(255)
    return (values - np.array(mean, np.float32)) / np.array(std, np.float32)


def values(steps: list[Step], array: np.ndarray) -> np.ndarray:
    """Steps behind the pixels: normalize, cast, layout."""
    for number, step in enumerate(steps):
        final = all(later.name == "layout" for later in steps[number + 1 :])
        if step.name == "layout":
            array = array.transpose(2, 0, 1) if "chw" in step.words else array
            continue
        if step.name == "normalize":
            array = normalize(step, array)
        dtype = next((w for w in step.words if w in ("u8", "f16", "bf16", "f32")), "f32")
        array = cast(array, dtype, final)
    return np.ascontiguousarray(array)


def apply(steps: list[Step], path: str | Path, draws: Draws) -> np.ndarray:
    """What a field's steps make of a file."""
    first = steps[0] if steps and steps[0].name == "decode" else None
    image, mask = decode(first, path)
    steps = steps[1:] if first else steps
    behind = [step for step in steps if step.name in ("normalize", "cast", "layout")]
    for step in steps[: len(steps) - len(behind)]:
        image = change(step, image, mask, draws.of(step.name, step.occurrence))
    array = np.asarray(image)
    if not mask and array.ndim == 2:
        array = array[:, :, None]
    return values(behind, array)
