"""Optimizing Data Loading, first diff: barriers around the steps show who waits for whom.

The document's lines: the timer "waiting" and the three `with timers["waiting"]: dist.barrier()`.
Added to make it run:
- chapter.py stands for the chapter that the diff builds on (data, model, timers, ranks);
- the lines of that chapter's main() around the barriers: loader, model, optimizer, loop;
- rank 1 reads its rows slowly, so that there is something to see: rank 0 waits, rank 1 does not.
Left out: the device (everything is on the CPU), resuming, logging to a service.
"""

import torch
import torch.distributed as dist
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
        # NOTE: this sampler will split dataset evenly across workers
        sampler=DistributedSampler(train_data, shuffle=True, drop_last=True),
    )
    model = DistributedDataParallel(LanguageModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    lr_scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)
    losses = []

    timers = {k: LocalTimer() for k in ["data", "forward", "backward", "update", "waiting"]}

    batches = iter(dataloader)
    for _ in range(len(dataloader)):
        with timers["data"], torch.no_grad():
            batch = next(batches)

        with timers["waiting"]:
            dist.barrier()

        with timers["forward"]:
            outputs = model(**batch)

        with timers["waiting"]:
            dist.barrier()

        with timers["backward"]:
            optimizer.zero_grad(set_to_none=True)
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
