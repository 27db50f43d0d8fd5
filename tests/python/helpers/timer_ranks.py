"""What ranks measure with ``millhead.StepTimer``: run by torchrun, one report for all cases.

    torchrun --standalone --nproc-per-node 4 timer_ranks.py DIRECTORY

Every rank trains a small model under DistributedDataParallel. In each case one rank is slow in one
phase. Rank 0 writes DIRECTORY/report.json: by case, what each rank measured and said.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from millhead import StepTimer
from millhead.data import Dummy
from torch.nn.parallel import DistributedDataParallel

STEPS = 12
SLOW_RANK, SLOW_S = 2, 0.05

#: By name: the phase in which the slow rank is slow, and whether there are barriers.
CASES: dict[str, tuple[str, bool]] = {
    "data": ("data", False),
    "forward": ("forward", False),
    "update": ("update", False),
    "data, barriers": ("data", True),
    "forward, barriers": ("forward", True),
}


def train(timer: StepTimer, slow: str | None) -> None:
    """Steps of a model whose gradients meet in backward."""
    model = DistributedDataParallel(torch.nn.Linear(32, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def delay(phase: str) -> None:
        if phase == slow and dist.get_rank() == SLOW_RANK:
            time.sleep(SLOW_S)

    latency = SLOW_S / 4 if slow == "data" and dist.get_rank() == SLOW_RANK else 0.0
    data = Dummy(4 * STEPS, (32,), latency=latency, tensors=True)
    for batch in timer.loop(torch.utils.data.DataLoader(data, batch_size=4)):
        with timer.forward:
            delay("forward")
            loss = model(batch).mean()
        with timer.backward:
            loss.backward()
        with timer.update:
            delay("update")
            optimizer.step()
            optimizer.zero_grad()


def measure(directory: Path, name: str) -> dict[str, Any]:
    slow, barriers = CASES[name]
    train(StepTimer(barriers=barriers, quiet=True), None)  # the first steps set things up
    sinks = [directory / name / "all.jsonl"]
    with StepTimer(barriers=barriers, samples=4, run=directory / name, sinks=sinks) as timer:
        train(timer, slow)
        line = timer.log(STEPS, 0.01, 1.0, 0)
        only = StepTimer(sinks=[directory / name / "one.csv"], log_ranks="rank0", quiet=True)
        only.log(0, 0.01, 1.0, 0)
        return {"line": line, "said": timer.ranks()}


def main() -> None:
    directory = Path(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    report = {}
    for name in CASES:
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, measure(directory, name))
        report[name] = everyone
    if dist.get_rank() == 0:
        (directory / "report.json").write_text(json.dumps(report))
    dist.barrier()
    sys.stderr.flush()
    # All is measured. Torch's own end is left out: now and then it aborts at threads of the group.
    os._exit(0)


if __name__ == "__main__":
    main()
