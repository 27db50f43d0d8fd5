"""Loaders in the checkpoints of frameworks: they go on where the run was left."""

from __future__ import annotations

import sys

import pytest
from helpers import procs

DATA = """
import warnings
warnings.simplefilter("ignore")
import torch
import millhead.torch

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 42

    def __getitem__(self, index):
        return {"index": index, "x": torch.rand(3)}
"""

ACCELERATE = """
from accelerate import Accelerator, DataLoaderConfiguration

millhead.torch.install()

def prepare():
    configuration = DataLoaderConfiguration(use_stateful_dataloader=True)
    accelerator = Accelerator(cpu=True, dataloader_config=configuration)
    loader = torch.utils.data.DataLoader(Numbers(), 4, shuffle=True, num_workers=WORKERS)
    return accelerator.prepare(loader)

def epoch(loader):
    return [batch["index"].tolist() for batch in loader]

for at in (0, 3, 9, 10):
    loader, seen = prepare(), []
    for number, batch in enumerate(loader):
        seen.append(batch["index"].tolist())
        if number == at:
            state = loader.state_dict()
    following = epoch(loader)
    resumed = prepare()
    resumed.load_state_dict(state)
    assert epoch(resumed) == (seen[at + 1 :] or following), at
    assert millhead.torch.stats(resumed)["batches"] > 0
"""

LIGHTNING = """
import logging
import sys
import lightning

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
CHECKPOINT = sys.argv[1]

class Module(lightning.LightningModule):
    def __init__(self, at):
        super().__init__()
        self.model, self.at, self.seen = torch.nn.Linear(3, 1), at, []

    def training_step(self, batch, _):
        self.seen.append(batch["index"].tolist())
        return self.model(batch["x"]).sum()

    def on_train_batch_end(self, *_):
        if self.trainer.global_step == self.at:
            self.trainer.save_checkpoint(CHECKPOINT)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

def train(at=None, **extra):
    module = Module(at)
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    loader = millhead.torch.DataLoader(Numbers(), 4, shuffle=True, num_workers=WORKERS)
    trainer.fit(module, loader, **extra)
    return module.seen

seen = train(at=4)
torch.manual_seed(2)
assert train(ckpt_path=CHECKPOINT, weights_only=False) == seen[4:]
"""


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("program", [ACCELERATE, LIGHTNING], ids=["accelerate", "lightning"])
def test_a_loader_goes_on_from_a_frameworks_checkpoint(
    program: str, workers: int, tmp_path: object
) -> None:
    text = DATA + program.replace("WORKERS", str(workers))
    done = procs.run([sys.executable, "-c", text, f"{tmp_path}/last.ckpt"], seconds=120)
    assert done.returncode == 0, done.stderr
