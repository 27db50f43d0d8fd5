"""The native loader in training loops of others: Lightning, Accelerate, and programs that fork."""

from __future__ import annotations

import collections
import json
import sys
from pathlib import Path
from typing import Any

import millhead
import millhead.torch
import numpy as np
import pytest
import torch
from helpers import procs

COUNT = 96
BATCH = 8


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    generator = np.random.default_rng(5)
    np.save(tmp_path / "x.npy", generator.random((COUNT, 4), np.float32))
    np.save(tmp_path / "y.npy", np.arange(COUNT, dtype=np.float32))
    return [str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]


def loader_of(paths: list[str]) -> millhead.Loader:
    return millhead.Loader(paths, BATCH, shuffle=True, seed=7, threads=2)


def expected(paths: list[str], epochs: int) -> list[list[float]]:
    with loader_of(paths) as loader:
        return [batch["y"].tolist() for _ in range(epochs) for batch in loader]


LIGHTNING = """
import json, sys, logging, warnings
import millhead, torch
import lightning

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.seen, self.checked = [], []
    def training_step(self, batch, number):
        self.seen.append(batch["y"].tolist())
        return torch.nn.functional.mse_loss(self.layer(batch["x"])[:, 0], batch["y"])
    def validation_step(self, batch, number):
        self.checked += batch["y"].tolist()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-6)

def main(paths):
    loader = millhead.Loader(paths, 8, shuffle=True, seed=7, threads=2)
    check = millhead.Loader(paths, 32)
    model = Model()
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )
    trainer.fit(model, loader, check)
    print(json.dumps({"seen": model.seen, "checked": model.checked, "steps": trainer.global_step}))

main(sys.argv[1:])
"""

ACCELERATE = """
import json, sys
import millhead, torch
from accelerate import Accelerator

def main(paths):
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(4, 1)
    loader = millhead.Loader(paths, 8, shuffle=True, seed=7, threads=2)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=1e-6), loader)
    seen = []
    for epoch in range(2):
        for batch in loader:
            loss = torch.nn.functional.mse_loss(model(batch["x"])[:, 0], batch["y"])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            seen.append(batch["y"].tolist())
    print(json.dumps({"seen": seen, "checked": list(range(96)) * 2, "steps": len(seen)}))

main(sys.argv[1:])
"""


@pytest.mark.limit(300)
@pytest.mark.parametrize("program", [LIGHTNING, ACCELERATE], ids=["lightning", "accelerate"])
def test_a_framework_trains_on_it(paths: list[str], program: str) -> None:
    done = procs.run([sys.executable, "-c", program, *paths], seconds=280)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["seen"] == expected(paths, 2)
    assert report["checked"] == list(range(COUNT)) * 2
    assert report["steps"] == 2 * COUNT // BATCH
    assert not done.left  # type: ignore[attr-defined]


@pytest.mark.limit(300)
def test_a_loader_that_forks_every_epoch_costs_no_slot_and_no_value(paths: list[str]) -> None:
    epochs = 200
    y = np.load(paths[1])
    numbers: Any = torch.arange(4)
    beside = torch.utils.data.DataLoader(numbers, batch_size=2, num_workers=1)
    with millhead.Loader(
        paths, BATCH, fields=["y", "_index"], shuffle=True, threads=2, prefetch=3, seed=1
    ) as native:
        kept: collections.deque[Any] = collections.deque(maxlen=2)
        native_batches = iter(native)
        for _ in range(epochs):
            assert [batch.tolist() for batch in beside] == [[0, 1], [2, 3]]
            batch = next(native_batches, None)
            if batch is None:
                native_batches = iter(native)
                batch = next(native_batches)
            kept.append(batch)
            for held in kept:  # what is held while others fork stays as it is
                assert held["y"].tolist() == y[held["_index"].numpy()].tolist()
            batch["y"].add_(0)  # and is the loop's own
        stats = native.stats()
        assert stats["batches"] == epochs
        assert stats["batches_copied_out"] == 0  # no slot was lost


def first_of(sample: dict[str, Any]) -> Any:
    return sample["y"]


@pytest.mark.parametrize(
    ("context", "start"), [("fork", "fork"), ("spawn", "template"), ("forkserver", "template")]
)
def test_open_serves_workers_however_they_start(paths: list[str], context: str, start: str) -> None:
    data = millhead.open(paths).map(first_of)
    loader: Any = millhead.torch.DataLoader(
        data, batch_size=BATCH, num_workers=2, multiprocessing_context=context
    )
    for _ in range(2):
        assert torch.cat(list(loader)).tolist() == list(range(COUNT))
    assert loader.stats()["start"] == start
