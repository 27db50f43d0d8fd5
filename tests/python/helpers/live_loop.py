"""A training loop to look at: ``live_loop.py torch|millhead KIND WORKERS``; runs until it is killed.

Says ``ready`` on standard output once batches come.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import time

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
}


class Costly(Dataset[torch.Tensor]):
    def __init__(self, cpu: float, asleep: float, what: str) -> None:
        self.cpu, self.asleep = cpu, asleep
        self.length = {"short": 40, "validating": 80, "validation": 32}.get(what, 100_000)
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


def main() -> None:
    kind, what, workers = sys.argv[1:4]
    torch.set_num_threads(1)
    cpu, asleep, step = KINDS[what]
    made = DataLoader
    if kind == "millhead":
        from millhead.torch import DataLoader as made  # type: ignore[assignment]
    extra = {"dispatch": "sample"} if what == "latency" and len(sys.argv) > 4 else {}
    loader = made(Costly(cpu, asleep, what), batch_size=4, num_workers=int(workers), **extra)
    slow = made(Costly(cpu, 0.02, "validation"), batch_size=4, num_workers=int(workers))
    for epoch in range(1000 if what in ("short", "validating") else 1):  # whose workers do not stay
        for number, _ in enumerate(loader):
            if epoch == 0 and number == 3:
                print("ready", flush=True)
            time.sleep(step)
        for _ in slow if what == "validating" else ():
            pass


if __name__ == "__main__":
    main()
