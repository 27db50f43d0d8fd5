"""Minimizing Synchronization Time, second diff: from loading in the loop to loading in a worker.

The document's lines: the DataLoader call, before the diff and after it.
Added to make it run:
- chapter.py stands for the script the diff belongs to (data, model, timers, ranks);
- batch_size=4 for args.batch_size; a function around the call, so that both settings run;
- model, optimizer and loop. Both settings must give the same losses.
"""

import torch
from chapter import LanguageModel, LocalTimer, Tokens, default_data_collator, report, run_ranks
from millhead.torch import DataLoader
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler


def train(rank: int, num_workers: int, prefetch_factor: int | None) -> None:
    train_data = Tokens(rank)
    dataloader = DataLoader(
        train_data,
        batch_size=4,
        collate_fn=default_data_collator,
        num_workers=num_workers,
        prefetch_factor=prefetch_factor,
        # NOTE: this sampler will split dataset evenly across workers
        sampler=DistributedSampler(train_data, shuffle=True, drop_last=True),
    )
    model = DistributedDataParallel(LanguageModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    timers = {k: LocalTimer() for k in ["data", "step"]}
    losses = []

    batch_iter = iter(dataloader)
    for _ in range(len(dataloader)):
        with timers["data"], torch.no_grad():
            batch = next(batch_iter)
        with timers["step"]:
            outputs = model(**batch)
            optimizer.zero_grad()
            outputs.loss.backward()
            optimizer.step()
        losses.append(outputs.loss.item())

    report(losses, timers)


def main(rank: int) -> None:
    for num_workers, prefetch_factor in [(0, None), (1, 2)]:
        if rank == 0:
            print(f"num_workers={num_workers}, prefetch_factor={prefetch_factor}")
        train(rank, num_workers, prefetch_factor)


if __name__ == "__main__":
    run_ranks(main)
