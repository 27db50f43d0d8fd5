"""A histogram of the weights written as JSON after every step, by the loop."""

TRUTH = {"causes": ["main-bound"], "hot": "json"}

import json

import torch
from common import COST, DataLoader, batches, model, scratch, settings, train_step
from torch.utils.data import TensorDataset

if __name__ == "__main__":
    torch.set_num_threads(1)
    rows = batches(100) * 32
    loader = DataLoader(
        TensorDataset(torch.rand(rows, 512)), **settings(batch_size=32, num_workers=1)
    )
    net, optimizer = model(512)
    with (scratch() / "log.jsonl").open("w") as log:
        for step, (batch,) in enumerate(loader):
            loss = train_step(net, optimizer, batch)
            weights = net[0].weight.detach().flatten()[: round(20_000 * COST)].tolist()
            log.write(json.dumps({"step": step, "loss": loss, "weights": weights}) + "\n")
