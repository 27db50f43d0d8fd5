"""Two ranks that exchange gradients; the second one's samples take longer."""

TRUTH = {"causes": ["straggler"], "loaders": ["torch"]}

import os
import subprocess
import sys
import time

import torch
from common import DataLoader, batches, device, settings
from torch import distributed
from torch.utils.data import Dataset

RANKS = 2


class Numbers(Dataset):
    def __init__(self, length: int, seconds: float) -> None:
        self.length, self.seconds = length, seconds

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.full((64,), float(index))


def train(rank: int) -> None:
    """One rank's loop; the gradients are exchanged in every step."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=RANKS)
    dataset = Numbers(batches(80) * 4, 0.002 if rank == 0 else 0.008)
    loader = DataLoader(dataset, **settings(batch_size=4, num_workers=1))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in loader:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        device(0.01)
    distributed.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]))
        sys.exit()
    settings()
    together = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533"}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__], env={**os.environ, **together, "RANK": str(at)}
        )
        for at in range(RANKS)
    ]
    sys.exit(max(rank.wait() for rank in ranks))
