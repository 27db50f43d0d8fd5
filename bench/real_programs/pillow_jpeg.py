"""JPEG files decoded and resized by Pillow in two workers, on as many CPUs as there are."""

TRUTH = {"causes": ["cpu-bound"], "hot": "PIL."}

import numpy as np
import torch
from common import COST, DataLoader, batches, device, scratch, settings
from PIL import Image
from torch.utils.data import Dataset

FILES, BATCH = 64, 8


def make_files() -> list[str]:
    """Photographs, more or less."""
    paths = [scratch() / f"photo-{at}.jpg" for at in range(FILES)]
    rng = np.random.default_rng(0)
    for path in paths:
        if not path.exists():
            small = Image.fromarray(rng.integers(0, 255, (30, 40, 3), dtype=np.uint8))
            small.resize((1280, 960), Image.Resampling.BICUBIC).save(path, quality=90)
    return [str(path) for path in paths]


class Photos(Dataset):
    def __init__(self, length: int) -> None:
        self.paths = make_files()
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        image = Image.open(self.paths[index % FILES])
        if COST < 1:
            image.draft("RGB", (640, 480))
        image = image.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)


if __name__ == "__main__":
    loader = DataLoader(Photos(batches(60) * BATCH), **settings(batch_size=BATCH, num_workers=2))
    for _batch in loader:
        device(0.01)
