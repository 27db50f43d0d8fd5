"""A folder of small JPEG files, and Pillow to read them: the images that document 004 speaks of."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image

PICTURES, CLASSES, SIDE = 48, 4, 24


@contextlib.contextmanager
def working_in_a_folder_of_pictures() -> Iterator[None]:
    """Makes the files, and makes their folder the current one: the snippets open bare names."""
    before = Path.cwd()
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="millhead-pictures-") as folder:
        for index in range(PICTURES):
            pixels = generator.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(Path(folder) / f"{index:03}.jpg")
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def to_tensor(image: Image.Image) -> torch.Tensor:
    """Stands for torchvision's ToTensor: colours first, 0 to 1."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255


def load_image(name: str) -> torch.Tensor:
    """The function that the document's snippets call and do not show."""
    with Image.open(name) as image:
        return to_tensor(image)
