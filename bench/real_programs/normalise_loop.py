"""Each batch normalised by the loop, with torch on all its threads, before the step."""

TRUTH = {"causes": ["main-bound"]}

import torch
from common import COST, DataLoader, batches, model, settings, train_step
from torch.utils.data import Dataset


class Images(Dataset):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3, 192, 192), index % 256, dtype=torch.uint8)


if __name__ == "__main__":
    loader = DataLoader(Images(batches(80) * 16), **settings(batch_size=16, num_workers=1))
    net, optimizer = model(3 * 24 * 24)
    for batch in loader:
        pixels = batch.float() / 255
        for _ in range(round(6 * COST)):
            mean = pixels.mean(dim=(2, 3), keepdim=True)
            pixels = (pixels - mean) / (pixels.std(dim=(2, 3), keepdim=True) + 1e-3)
        train_step(net, optimizer, torch.nn.functional.avg_pool2d(pixels, 8))
