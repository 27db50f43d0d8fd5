"""How near `millhead tune` comes to the best of a grid, and in what share of the grid's time.

    python bench/tune.py [--all | PLANT...] [--json]

Every plant is tuned, then run under every setting of a grid; both as a user would run them, in commands
of their own. The grid's runs are short, so that its time is not made to look long; the three fastest of
them and the setting that was chosen are then run for longer, several times, and those are the rates that
are compared. A choice is as good as it should be from 90 % of the best on, and quick enough up to 25 % of
the grid's time. Needs a quiet machine: nine minutes, with --all a quarter of an hour.
"""

from __future__ import annotations

import argparse
import itertools
import json
import mmap
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from millhead.data import Dummy

STEP, BATCH = "0.01", 16
WORKERS = (1, 2, 3, 4, 6, 8, 12, 16)
PREFETCHES = (2, 8)
DISPATCHES = ("batch", "sample")
#: Batches of a run of the grid; of a run that is compared, and how many of these there are.
GRID_BATCHES, FINAL_BATCHES, REPEATS, FINALISTS = 60, 200, 2, 3
GOOD, QUICK = 0.9, 0.25


class OneHead:
    """A disk that seeks: one request at a time, and dear where another worker asked in between."""

    def __init__(self) -> None:
        self.head = multiprocessing.Lock()
        self.last = mmap.mmap(-1, 8)  # shared with the workers, as the disk is

    def __len__(self) -> int:
        return 20000

    def __getitem__(self, index: int) -> int:
        me = os.getpid().to_bytes(8, "little")
        with self.head:
            time.sleep(0.0008 if self.last[:8] == me else 0.003)
            self.last[:8] = me
        return index


def latency() -> Dummy:
    """A remote store."""
    return Dummy(length=20000, latency=0.003)


def python_cpu() -> Dummy:
    """Decoding in Python."""
    return Dummy(length=20000, python_cpu=0.002)


def in_memory() -> Dummy:
    """Nothing that workers could help with."""
    return Dummy(length=20000, shape=(4,))


def seeks() -> OneHead:
    """More workers are slower."""
    return OneHead()


def native_cpu() -> Dummy:
    """Decoding in native code."""
    return Dummy(length=20000, native_cpu=0.002)


def tail() -> Dummy:
    """A store that answers late now and then."""
    return Dummy(length=20000, latency=0.0005, tail=(0.01, 0.2))


def large() -> Dummy:
    """Pictures of 600 KB."""
    return Dummy(length=20000, shape=(3, 224, 224), latency=0.002)


USUAL = (latency, python_cpu, in_memory, seeks)
PLANTS = {make.__name__: make for make in (*USUAL, native_cpu, tail, large)}


def grid() -> list[dict[str, Any]]:
    """Every setting, once: without workers there is nothing else to set."""
    entries: list[dict[str, Any]] = [{"name": "w0", "batch_size": BATCH, "num_workers": 0}]
    for workers, depth, dispatch in itertools.product(WORKERS, PREFETCHES, DISPATCHES):
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


def sweep(
    target: str, entries: list[dict[str, Any]], directory: Path, batches: int, repeats: int
) -> tuple[dict[str, float], float]:
    """Samples a second of each, without the start of its workers; and the seconds of all."""
    configs = directory.with_suffix(".json")
    configs.write_text(json.dumps({"configs": entries}))
    shared = ("--epochs", "1", "--limit-batches", str(batches), "--repeats", str(repeats))
    where = ("--time-limit", "1h", "--configs", str(configs), "-o", str(directory))
    swept, seconds = run("bench", target, "--train-step", STEP, *shared, *where)
    rates = {
        row["name"]: row["samples"] / (row["total_s"] - row["setup_s"]) for row in swept["configs"]
    }
    return rates, seconds


def compare(plant: str, directory: Path) -> dict[str, Any]:
    """What was chosen, what is best, and what both took."""
    target = f"{Path(__file__).resolve()}:{plant}"
    tuned, tune_s = run("tune", target, "--train-step", STEP, "--batch-size", str(BATCH))
    entries = grid()
    rates, grid_s = sweep(target, entries, directory / f"{plant}-grid", GRID_BATCHES, 1)
    fastest = sorted(rates, key=lambda name: -rates[name])[:FINALISTS]
    finalists = [entry for entry in entries if entry["name"] in fastest]
    finals, _ = sweep(
        target, [*finalists, tuned["best"]], directory / plant, FINAL_BATCHES, REPEATS
    )
    chosen = finals.pop("tuned")
    best = max(finals, key=lambda name: finals[name])
    share, of_time = chosen / max(chosen, finals[best]), tune_s / grid_s
    return {
        "plant": plant,
        "chosen": tuned["chosen"],
        "chosen_per_s": chosen,
        "best": best,
        "best_per_s": finals[best],
        "share_of_best": share,
        "tune_s": tune_s,
        "grid_s": grid_s,
        "share_of_time": of_time,
        "tried": sum(one["repeats"] for one in tuned["tried"]),
        "grid": len(entries),
        "stopped_because": tuned["stopped_because"],
        "met": share >= GOOD and of_time <= QUICK,
    }


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    return (
        f"{row['plant']:11} {row['chosen']:>22} {row['best']:>14} {row['tune_s']:7.0f} "
        f"{row['grid_s']:7.0f} {row['share_of_time']:7.0%} {row['share_of_best']:7.0%}   "
        f"{row['stopped_because']}"
    )


def main() -> None:
    """The usual plants, all, or those named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("plants", nargs="*", metavar="PLANT", choices=[*PLANTS, []])
    parser.add_argument("--all", action="store_true", help="every plant")
    parser.add_argument("--json", action="store_true", help="one JSON object: plants, met")
    options = parser.parse_args()
    names = options.plants or (PLANTS if options.all else [make.__name__ for make in USUAL])
    rows = []
    if not options.json:
        print(f"{'':11} {'chosen':>22} {'grid best':>14}  tune s  grid s    time    rate")
    with tempfile.TemporaryDirectory(prefix="millhead-tune-") as directory:
        for name in names:
            rows.append(compare(name, Path(directory)))
            print(line(rows[-1]), file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.json:
        print(json.dumps({"plants": rows, "met": all(row["met"] for row in rows)}))


if __name__ == "__main__":
    main()
