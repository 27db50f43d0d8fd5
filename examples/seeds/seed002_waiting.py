"""Minimizing Synchronization Time, first diff: barriers around the steps measure the wait.

The document's lines: from `with timers["data"]` to `lr_scheduler.step()`, as they stand.
Added to make it run:
- chapter.py stands for the script the diff belongs to (data, model, timers, ranks);
- loader, model, optimizer and `device`, which is the CPU; rank 1 reads its rows slowly;
- the loop around the lines, and `losses.append`.
"""

import torch
import torch.distributed as dist
from chapter import LanguageModel, LocalTimer, Tokens, default_data_collator, report, run_ranks
from millhead.torch import DataLoader
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler


def main(rank: int) -> None:
    device = torch.device("cpu")
    train_data = Tokens(rank)
    dataloader = DataLoader(
        train_data,
        batch_size=4,
        collate_fn=default_data_collator,
        sampler=DistributedSampler(train_data, shuffle=True, drop_last=True),
    )
    model = DistributedDataParallel(LanguageModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    lr_scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)
    timers = {k: LocalTimer() for k in ["data", "forward", "backward", "update", "waiting"]}
    losses = []

    batch_iter = iter(dataloader)
    for _ in range(len(dataloader)):
        with timers["data"], torch.no_grad():
            batch = next(batch_iter)
            batch = {k: v.to(device=device) for k, v in batch.items()}

        with timers["waiting"]:
            dist.barrier()

        with timers["forward"]:
            outputs = model(**batch)

        with timers["waiting"]:
            dist.barrier()

        with timers["backward"]:
            optimizer.zero_grad()
            outputs.loss.backward()

        with timers["waiting"]:
            dist.barrier()

        with timers["update"]:
            optimizer.step()
            lr_scheduler.step()

        losses.append(outputs.loss.item())

    report(losses, timers)


if __name__ == "__main__":
    run_ranks(main)
