"""Lightning's Trainer with a loader that keeps up."""

TRUTH = {"causes": ["device-bound"], "healthy": True}

import logging
import warnings

import lightning
import torch
from common import DataLoader, batches, device, settings
from torch.utils.data import TensorDataset


class Net(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(256, 10)

    def training_step(self, batch, _index):
        device(0.03)
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    rows = batches(80) * 16
    own = settings(batch_size=16, num_workers=1, persistent_workers=True)
    trainer = lightning.Trainer(
        max_epochs=1, logger=False, enable_progress_bar=False, enable_checkpointing=False
    )
    trainer.fit(Net(), DataLoader(TensorDataset(torch.rand(rows, 256)), **own))
