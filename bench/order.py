"""order - what the order of an epoch costs one rank: torch's DistributedSampler and millhead's.

    .venv/bin/python bench/order.py [--ranks R] [N ...]

Every cell is a process of its own: the time to its first index, to its last, and the memory it
took. Where both claim to be torch's order, their indices are compared.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import zlib
from array import array
from itertools import islice
from typing import Any

ARMS = ("torch", "millhead", "millhead keyed")


def measure(arm: str, count: int, ranks: int) -> dict[str, Any]:
    """One epoch of rank 1 (of 0, where there is one only)."""
    import torch.utils.data
    from millhead.torch import DistributedSampler

    kind: Any = torch.utils.data.DistributedSampler if arm == "torch" else DistributedSampler
    options = {"order": "keyed"} if arm == "millhead keyed" else {}
    sampler = kind(range(count), ranks, min(1, ranks - 1), seed=7, **options)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    indices = iter(sampler)
    check = zlib.crc32(str(next(indices)).encode())
    first = time.perf_counter() - began
    while part := array("q", islice(indices, 4096)):  # as batches would take them
        check = zlib.crc32(part, check)
    last = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"first_ms": first * 1e3, "last_ms": last * 1e3, "mb": memory / 1e3, "check": check}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("counts", nargs="*", type=int, default=[10**5, 10**6, 10**7], metavar="N")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.arm:
        print(json.dumps(measure(options.arm, options.counts[0], options.ranks)))
        return 0
    print(f"| samples ({options.ranks} ranks) | sampler | first index | whole epoch | memory |")
    print("|---|---|---|---|---|")
    differ = 0
    for count in options.counts:
        checks = {}
        for arm in ARMS:
            command = [sys.executable, __file__, str(count), f"--ranks={options.ranks}"]
            done = subprocess.run(
                [*command, f"--arm={arm}"], check=True, capture_output=True, text=True
            )
            cell = json.loads(done.stdout)
            checks[arm] = cell["check"]
            times = f"{cell['first_ms']:.2f} ms | {cell['last_ms']:.0f} ms | {cell['mb']:.1f} MB |"
            print(f"| {count} | {arm} | {times}", flush=True)
        if checks["torch"] != checks["millhead"]:
            differ += 1
            print(f"{count}: the indices differ", file=sys.stderr)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
