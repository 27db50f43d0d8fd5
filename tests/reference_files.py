"""What folders and manifests hold, from Pillow, NumPy and Python's own csv and json: no C of ours."""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import reference_ops as ops
from PIL import Image

PICTURES = {".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"}
PATH_COLUMNS = (
    "image", "path", "file", "file_name", "filename", "filepath", "file_path", "image_path",
    "img", "img_path",
)  # fmt: skip


def is_picture(path: str) -> bool:
    return Path(path).suffix.lower() in PICTURES


def text(value: str) -> np.ndarray:
    """A text as a ragged field has it."""
    return np.frombuffer(value.encode(), np.uint8)


class Files:
    """Samples with files: `files` has the path of each picture or `bytes` field, by sample."""

    classes: list[str]

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.steps = ops.parse(options.pipeline) if options.pipeline else {}
        self.files: list[dict[str, Path]] = []
        self.values: list[dict[str, np.ndarray]] = []
        self.ragged: set[str] = set()
        self.names: list[str] = []
        self.on_request: list[str] = ["_key", "_index"]

    @property
    def count(self) -> int:
        return len(self.files)

    def value(self, name: str, number: int, position: int) -> np.ndarray:
        """A field of a sample that stands at that position of the epoch."""
        if name in self.values[number]:
            return self.values[number][name]
        if name == "bytes":
            path = self.files[number].get("bytes") or self.files[number]["image"]
            return np.frombuffer(path.read_bytes(), np.uint8)
        draws = ops.Draws(seed=self.options.seed, epoch=self.options.epoch, position=position)
        return ops.apply(self.steps.get(name, []), self.files[number][name], draws)

    def broken(self, number: int) -> bool:
        """Whether one of its files cannot be had or decoded."""
        for name, path in self.files[number].items():
            try:
                if name == "bytes":
                    path.read_bytes()
                else:
                    Image.open(path).convert("RGB")
            except (OSError, SyntaxError):
                return True
        return False

    def finish(self, pictures: list[str]) -> None:
        """Which fields are ragged: those whose shape the pipeline does not fix."""
        fixed = ("resize", "center_crop", "random_crop", "random_resized_crop")
        for name in pictures:
            steps = self.steps.get(name, [])
            sized = any(
                step.name in fixed and not (step.name == "resize" and step.one_side())
                for step in steps
            )
            if not sized:
                self.ragged.add(name)


class Folder(Files):
    """A class for each folder, in torchvision's order; or no folders at all."""

    def __init__(self, root: str, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.classes = sorted(
            entry.name for entry in os.scandir(root) if entry.is_dir() and entry.name[0] != "."
        )
        listed = [
            (label, path) for label, name in enumerate(self.classes)
            for path in self.walk(os.path.join(root, name))
        ]  # fmt: skip
        if not listed:
            self.classes = []
            listed = [
                (-1, os.path.join(root, name))
                for name in sorted(os.listdir(root))
                if name[0] != "." and os.path.isfile(os.path.join(root, name))
            ]
        pictures = any(is_picture(path) for _, path in listed)
        field = "image" if pictures or options.pipeline else "bytes"
        for label, path in listed:
            if pictures and not is_picture(path):
                continue
            values = {
                "_key": text(os.path.relpath(path, root)),
                "_index": np.array(len(self.files), np.int64),
            }
            if self.classes:
                values["label"] = np.array(label, np.int64)
            self.files.append({field: Path(path)})
            self.values.append(values)
        self.names = [field, *(["label"] if self.classes else [])]
        self.ragged |= {"_key", "bytes"}
        self.finish(["image"])

    @staticmethod
    def walk(root: str) -> list[str]:
        found = []
        for folder, below, names in sorted(os.walk(root, followlinks=True)):
            if any(
                part[0] == "." for part in Path(os.path.relpath(folder, root)).parts if part != "."
            ):
                continue
            below[:] = [name for name in below if name[0] != "."]
            found += [os.path.join(folder, name) for name in sorted(names) if name[0] != "."]
        return found


def cell(value: str) -> Any:
    """What a cell of CSV looks like."""
    if value == "":
        return None
    if value in ("nan", "NaN"):
        return math.nan
    try:
        found = json.loads(value)
    except ValueError:
        return value
    number = isinstance(found, int | float) and not isinstance(found, bool)
    return found if number or isinstance(found, list) else value


def column(values: list[Any], raw: list[Any]) -> tuple[list[np.ndarray], bool]:
    """A column's values as arrays, and whether it is ragged."""
    there = [value for value in values if value is not None]
    if there and all(isinstance(value, list) for value in there):
        flat = [np.array(value) for value in there if value]
        whole = all(array.dtype.kind == "i" for array in flat)
        inner = flat[0].shape[1:] if flat else ()
        kind = np.int64 if whole else np.float64
        return [np.array(v, kind).reshape(-1, *inner) for v in (v or [] for v in values)], True
    if there and all(isinstance(value, int) for value in there) and len(there) == len(values):
        return [np.array(value, np.int64) for value in values], False
    if all(isinstance(value, int | float) for value in there):
        return [np.array(math.nan if v is None else v, np.float64) for v in values], False
    return [text("" if value is None else str(value)) for value in raw], True


class Manifest(Files):
    """CSV or JSON lines with a column of paths."""

    def __init__(self, path: str, options: argparse.Namespace) -> None:
        super().__init__(options)
        rows = self.rows(path)
        columns = list(dict.fromkeys(name for row in rows for name in row))
        paths = next(name for name in PATH_COLUMNS if name in columns)
        pictures = {"image": paths}
        for name in self.steps:
            if name in columns:
                pictures[name] = name
        if not options.pipeline and not is_picture(rows[0][paths]):
            pictures = {"bytes": paths}
        self.names = list(pictures)
        self.values = [{} for _ in rows]
        self.files = [
            {field: Path(path).parent / row[name] for field, name in pictures.items()}
            for row in rows
        ]
        for number, row in enumerate(rows):
            self.values[number]["_key"] = text(row[paths])
            self.values[number]["_index"] = np.array(number, np.int64)
        for name in columns:
            if name not in pictures.values():
                self.add(name, [row.get(name) for row in rows], path.endswith(".csv"))
        self.ragged |= {"_key", "bytes"}
        self.finish(list(pictures))

    @staticmethod
    def rows(path: str) -> list[dict[str, Any]]:
        with open(path, newline="") as file:
            if path.endswith(".csv"):
                return list(csv.DictReader(file))
            return [json.loads(line) for line in file if line.strip()]

    def add(self, name: str, raw: list[Any], is_csv: bool) -> None:
        values, ragged = column([cell(value) for value in raw] if is_csv else raw, raw)
        if name == "label" and ragged:
            texts = [value.tobytes() for value in values]
            known = sorted(set(texts))
            self.classes = [each.decode() for each in known]
            values, ragged = [np.array(known.index(each), np.int64) for each in texts], False
        self.names.append(name)
        if ragged:
            self.ragged.add(name)
        for number, value in enumerate(values):
            self.values[number][name] = value
