"""A thread of the program that computes in Python and has the interpreter's lock nearly always."""

TRUTH = {"causes": ["main-bound"]}

import threading
import time

import torch
from common import COST, DataLoader, batches, model, settings, train_step
from torch.utils.data import TensorDataset


def plot(stopping: threading.Event) -> None:
    """What a live plot computes, say."""
    while not stopping.is_set():
        sum(at * at for at in range(20_000))
        time.sleep(0 if COST == 1 else 0.002)


if __name__ == "__main__":
    rows = batches(120) * 32
    loader = DataLoader(
        TensorDataset(torch.rand(rows, 512)), **settings(batch_size=32, num_workers=1)
    )
    net, optimizer = model(512)
    stopping = threading.Event()
    thread = threading.Thread(target=plot, args=(stopping,))
    thread.start()
    for (batch,) in loader:
        train_step(net, optimizer, batch)
        time.sleep(0.002)
    stopping.set()
    thread.join()
