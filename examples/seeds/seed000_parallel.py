"""Optimizing Data Loading, second diff: a worker loads while the batch before is processed.

The document's lines: `num_workers=1, prefetch_factor=2` in the DataLoader call.
Added to make it run:
- chapter.py stands for the chapter that the diff builds on (data, model, timers, ranks);
- the lines of that chapter's main() around the loader: model, optimizer, loop.
Left out: the device (everything is on the CPU), resuming, logging to a service.
The losses are those of seed000_waiting.py: who loads does not change what is loaded.
"""

import torch
from chapter import LanguageModel, LocalTimer, Tokens, default_data_collator, report, run_ranks
from millhead.torch import DataLoader
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler


def main(rank: int) -> None:
    train_data = Tokens(rank)
    dataloader = DataLoader(
        train_data,
        batch_size=4,
        collate_fn=default_data_collator,
        num_workers=1,
        prefetch_factor=2,
        # NOTE: this sampler will split dataset evenly across workers
        sampler=DistributedSampler(train_data, shuffle=True, drop_last=True),
    )
    model = DistributedDataParallel(LanguageModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    lr_scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)
    timers = {k: LocalTimer() for k in ["data", "step"]}
    losses = []

    batches = iter(dataloader)
    for _ in range(len(dataloader)):
        with timers["data"], torch.no_grad():
            batch = next(batches)
        with timers["step"]:
            outputs = model(**batch)
            optimizer.zero_grad(set_to_none=True)
            outputs.loss.backward()
            optimizer.step()
            lr_scheduler.step()
        losses.append(outputs.loss.item())

    report(losses, timers)


if __name__ == "__main__":
    run_ranks(main)
