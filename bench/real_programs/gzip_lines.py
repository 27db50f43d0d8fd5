"""JSON lines read from a gzip file in the training process."""

TRUTH = {"causes": ["cpu-bound", "python-bound"], "hot": "json"}

import gzip
import json
import random

import torch
from common import COST, DataLoader, batches, device, scratch, settings
from torch.utils.data import IterableDataset


class Lines(IterableDataset):
    def __init__(self, rows: int) -> None:
        self.path, self.rows = scratch() / "lines.jsonl.gz", rows
        if not self.path.exists():
            rng = random.Random(0)
            with gzip.open(self.path, "wt") as file:
                for _ in range(2000):
                    values = [rng.random() for _ in range(1000)]
                    file.write(json.dumps({"values": values, "label": rng.randrange(10)}) + "\n")

    def __iter__(self):
        left = self.rows
        while left:
            with gzip.open(self.path, "rt") as file:
                for line in file:
                    record = json.loads(line[: 1 + round(len(line))])
                    yield torch.tensor(record["values"])
                    left -= 1
                    if not left:
                        return


if __name__ == "__main__":
    for _batch in DataLoader(Lines(batches(60) * 16), **settings(batch_size=16, num_workers=0)):
        device(0.004 / COST)
