"""How near `millhead tune` comes to the best of a grid, and in what share of the grid's time.

    python bench/tune.py [--small] [PLANT...]

Every plant is tuned, then run under every setting of a grid; both as a user would run them, in commands
of their own. The last column is the rate of the chosen setting by the rate of the grid's best, both as
the grid measured them: a choice outside of the grid is measured along with it. Needs a quiet machine.
--small: torch's default prefetch, batches to one worker each, every other number of workers. Its time says
nothing then: there is less to search, and tune searches it all.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from millhead.data import Dummy

STEP, BATCH = "0.01", 16
WORKERS = (0, 1, 2, 3, 4, 6, 8, 12, 16)
PREFETCHES = (2, 4, 8)
DISPATCHES = ("batch", "sample")


def latency() -> Dummy:
    """A remote store."""
    return Dummy(length=20000, latency=0.003)


def python_cpu() -> Dummy:
    """Decoding in Python."""
    return Dummy(length=20000, python_cpu=0.002)


def native_cpu() -> Dummy:
    """Decoding in native code."""
    return Dummy(length=20000, native_cpu=0.002)


def tail() -> Dummy:
    """A store that answers late now and then."""
    return Dummy(length=20000, latency=0.0005, tail=(0.01, 0.2))


def in_memory() -> Dummy:
    """Nothing that workers could help with."""
    return Dummy(length=20000, shape=(4,))


PLANTS = {make.__name__: make for make in (latency, python_cpu, native_cpu, tail, in_memory)}


def grid(small: bool) -> list[dict[str, Any]]:
    """Every setting, once: without workers there is nothing else to set."""
    entries = [{"name": "w0", "batch_size": BATCH, "num_workers": 0}]
    ways = (WORKERS[2::2], PREFETCHES[:1], DISPATCHES[:1]) if small else None
    for workers, depth, dispatch in itertools.product(
        *(ways or (WORKERS[1:], PREFETCHES, DISPATCHES))
    ):
        entries.append(
            {
                "name": f"w{workers}-p{depth}-{dispatch}",
                "batch_size": BATCH,
                "num_workers": workers,
                "prefetch_factor": depth,
                "dispatch": dispatch,
                "persistent_workers": True,
            }
        )
    return entries


def run(*arguments: str) -> tuple[dict[str, Any], float]:
    """A command's JSON, and the seconds it took."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "millhead", *arguments, "--json"],
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout), time.monotonic() - began


def compare(plant: str, directory: Path, small: bool) -> str:
    """A line of the table."""
    target = f"{Path(__file__).resolve()}:{plant}"
    tuned, tune_s = run("tune", target, "--train-step", STEP, "--batch-size", str(BATCH))
    configs = directory / f"{plant}.json"
    configs.write_text(json.dumps({"configs": [*grid(small), tuned["best"]]}))
    shared = ("--epochs", "1", "--limit-batches", "200", "--repeats", "1", "--time-limit", "1h")
    where = ("--configs", str(configs), "-o", str(directory / plant))
    swept, grid_s = run("bench", target, "--train-step", STEP, *shared, *where)
    rates = {row["name"]: row["samples_per_s"]["mean"] for row in swept["configs"]}
    chosen = rates.pop("tuned")
    best = max(rates, key=lambda name: rates[name])
    workers = tuned["best"]["num_workers"]
    return (
        f"{plant:12} {workers:7} {best:>14} {tune_s:7.0f} {grid_s:7.0f} {tune_s / grid_s:7.0%} "
        f"{chosen / rates[best]:7.0%}   {tuned['stopped_because']}"
    )


def main() -> None:
    """All plants, or those named."""
    print(f"{'':12} {'workers':>7} {'grid best':>14} tune s  grid s    time    rate")
    with tempfile.TemporaryDirectory(prefix="millhead-tune-") as directory:
        small = "--small" in sys.argv[1:]
        for plant in [name for name in sys.argv[1:] if name != "--small"] or PLANTS:
            print(compare(plant, Path(directory), small), flush=True)


if __name__ == "__main__":
    main()
