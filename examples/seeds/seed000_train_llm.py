"""Optimizing Data Loading: the timers and the log line of the chapters' train_llm.py, by StepTimer.

The document's lines: the five timers around data, forward, backward and update, with `waiting` three
times a step, and the dictionary that train_llm.py logs every `log_freq` steps.
Changed: the dictionary of timers is a StepTimer. Its barriers are the three `dist.barrier()` of the
diff, its loop is the timer "data", its line has the dictionary's keys, and times are sums per step.
Added:
- chapter.py stands for the script around the lines (data, model, ranks); everything is on the CPU;
- rank 1 reads its rows slowly, and `timers.ranks()` says so: with barriers, and in a second epoch
  without, where rank 0 waits inside backward.
"""

import torch
import torch.distributed as dist
from chapter import ROW_TOKENS, LanguageModel, Tokens, default_data_collator, run_ranks
from millhead import StepTimer
from millhead.torch import DataLoader
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

BATCH_SIZE, LOG_FREQ = 4, 4


def main(rank: int) -> None:
    train_data = Tokens(rank)
    sampler = DistributedSampler(train_data, shuffle=True, drop_last=True)
    dataloader = DataLoader(
        train_data, batch_size=BATCH_SIZE, collate_fn=default_data_collator, sampler=sampler
    )
    model = DistributedDataParallel(LanguageModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    lr_scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)
    global_step, running_loss = 0, 0.0

    timers = StepTimer(tokens=BATCH_SIZE * ROW_TOKENS, barriers=True)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        timers.barriers = epoch == 0
        for batch in timers.loop(dataloader):
            with timers.forward:
                outputs = model(**batch)

            with timers.backward:
                optimizer.zero_grad(set_to_none=True)
                outputs.loss.backward()

            with timers.update:
                optimizer.step()
                lr_scheduler.step()

            global_step += 1
            running_loss += outputs.loss.item()

            if global_step % LOG_FREQ == 0:
                lr = lr_scheduler.get_last_lr()[0]
                info = timers.log(global_step, lr, running_loss, epoch)
                if rank == 0:
                    print(
                        f"result: step {global_step}: epoch {epoch}, {info['epoch_progress']:.0%}, "
                        f"{info['num_batches_remaining']} left, loss {info['running_loss']}"
                    )
                running_loss = 0.0

        report = timers.ranks()
        if rank == 0:
            print(f"{'with' if epoch == 0 else 'without'} barriers: {report['text']}")
    dist.barrier()


if __name__ == "__main__":
    run_ranks(main)
