"""Optimizing the pipeline: Data, snippet 1: how many CPUs are there, and how many workers fit?

The document's lines: `import os` and `print(os.cpu_count())`.
Added: what this process may really use, and the document's three worked examples (two cores per GPU
for the training process, the rest for workers), asked of `millhead plan cpus`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

print(os.cpu_count())

print(f"this process may use {len(os.sched_getaffinity(0))} of them")

MILLHEAD = Path(sys.executable).parent / "millhead"


def plan(*arguments: str) -> dict[str, int]:
    command = [str(MILLHEAD), "plan", "cpus", "--json", *arguments]
    answer: dict[str, int] = json.loads(subprocess.check_output(command, text=True))
    return answer


print(f"workers that fit here: {plan()['total']}")
for cpus, gpus in [(20, 1), (60, 3), (160, 8)]:
    found = plan("--cpus", str(cpus), "--gpus", str(gpus))
    print(
        f"result: {cpus} CPUs, {gpus} GPUs: {found['reserved']} reserved,"
        f" {found['workers_per_gpu']} workers per GPU, {found['total']} in all"
    )
