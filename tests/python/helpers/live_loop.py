"""A training loop to look at: ``live_loop.py torch|millhead KIND WORKERS``; runs until it is killed.

Says ``ready`` on standard output once batches come.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import time
from collections.abc import Callable

import torch
from torch.utils.data import DataLoader, Dataset

KINDS = {
    # what a sample costs (on a CPU, asleep), what a step costs
    "cpu": (0.004, 0.0, 0.001),
    "latency": (0.0, 0.02, 0.001),
    "device": (0.0, 0.0, 0.03),
    "stuck": (0.0, 1000.0, 0.001),
    "short": (0.0, 0.0, 0.03),
    "lock": (0.0, 0.005, 0.001),
    "validating": (0.0, 0.0, 0.03),
    "trains": (0.0, 0.0, 0.0),  # on the CPU, with torch's own threads
    "trains in short epochs": (0.0, 0.0, 0.0),
}


LENGTHS = {"short": 40, "validating": 80, "validation": 32, "trains in short epochs": 80}


class Costly(Dataset[torch.Tensor]):
    def __init__(self, cpu: float, asleep: float, what: str) -> None:
        self.cpu, self.asleep = cpu, asleep
        self.length = LENGTHS.get(what, 100_000)
        self.lock = multiprocessing.Lock() if what == "lock" else contextlib.nullcontext()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        until = time.thread_time() + self.cpu
        while time.thread_time() < until:
            pass
        if self.asleep and (self.asleep < 100 or index > 40):
            with self.lock:
                time.sleep(self.asleep)
        return torch.full((16,), float(index))


def trainer() -> Callable[[torch.Tensor], None]:
    """A step of real training, some 40 ms on a CPU."""
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024), torch.nn.ReLU()
    )
    optimizer = torch.optim.Adam(model.parameters())

    def step(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss = model(batch.repeat(100, 1)).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def main() -> None:
    kind, what, workers = sys.argv[1:4]
    train = trainer() if what.startswith("trains") else None
    torch.set_num_threads(1 if train is None else 2)
    cpu, asleep, step = KINDS[what]
    made = DataLoader
    if kind == "millhead":
        from millhead.torch import DataLoader as made  # type: ignore[assignment]
    extra = {"dispatch": "sample"} if what == "latency" and len(sys.argv) > 4 else {}
    loader = made(Costly(cpu, asleep, what), batch_size=4, num_workers=int(workers), **extra)
    slow = made(Costly(cpu, 0.02, "validation"), batch_size=4, num_workers=int(workers))
    for epoch in range(1000 if what in LENGTHS else 1):  # whose workers do not stay
        for number, batch in enumerate(loader):
            if epoch == 0 and number == 3:
                print("ready", flush=True)
            if train is not None:
                train(batch)
            else:
                time.sleep(step)
        for _ in slow if what == "validating" else ():
            pass


if __name__ == "__main__":
    main()
