"""Single rows of a zarr array whose chunks hold 128 of them: each is decoded 128 times."""

TRUTH = {"causes": ["cpu-bound", "python-bound"], "hot": "zarr."}

import numpy as np
import zarr
from common import COST, DataLoader, batches, device, scratch, settings
from torch.utils.data import Dataset

ROWS, BATCH = 1024, 8


class Rows(Dataset):
    def __init__(self, length: int) -> None:
        chunk = 128 if COST == 1 else 64
        path = scratch() / f"rows-{chunk}.zarr"
        if not path.exists():
            data = np.random.default_rng(0).normal(size=(ROWS, 64, 64)).astype("f4").round(1)
            array = zarr.create_array(
                str(path), shape=data.shape, chunks=(chunk, 64, 64), dtype="f4"
            )
            array[:] = data
        self.path, self.length = str(path), length
        self.array = None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int):
        if self.array is None:
            self.array = zarr.open_array(self.path, mode="r")
        return self.array[index * 37 % ROWS]


if __name__ == "__main__":
    loader = DataLoader(Rows(batches(50) * BATCH), **settings(batch_size=BATCH, num_workers=2))
    for _batch in loader:
        device(0.01)
