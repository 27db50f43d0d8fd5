"""A metric sent to a server after every step, which answers after 25 ms."""

TRUTH = {"causes": ["main-bound"], "hot": "requests."}

import requests
import torch
from common import COST, DataLoader, batches, model, settings, train_step
from http_latency import serve
from torch.utils.data import TensorDataset

if __name__ == "__main__":
    rows = batches(80) * 32
    url = serve(64)
    loader = DataLoader(
        TensorDataset(torch.rand(rows, 512)), **settings(batch_size=32, num_workers=1)
    )
    net, optimizer = model(512)
    session = requests.Session()
    for step, (batch,) in enumerate(loader):
        train_step(net, optimizer, batch)
        if COST == 1 or step % 2:
            session.get(f"{url}/loss")
