"""tokens - windows of a token file per second: the copies alone, NumPy, and millhead.

    .venv/bin/python bench/tokens.py [--tokens N] [--rounds R] [--threads 1 2] [--json]

Random windows of 2048 tokens and the one after them, batches of 64: as uint16 in one array, or as int64
x and y. The limit is a C program that does nothing but copy, in as many threads as millhead has;
millhead's batches go to a Python loop besides, which the limit has not. Arms take turns in every
round; the median of the rounds is printed, with CPU time per window, which other work on the machine
changes less. Two rows of the limit in a round show the noise.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

WINDOW, BATCH, SECONDS = 2048, 64, 1.5
HERE = Path(__file__).resolve().parent


def limit(path: str, threads: int, kind: str) -> tuple[float, float]:
    """Windows per second and CPU microseconds of one, of the C program."""
    program = Path(path).with_name("tokens_limit")
    if not program.exists():
        source = HERE / "tokens_limit.c"
        build = ["cc", "-O3", "-march=native", "-D_GNU_SOURCE", "-pthread"]
        subprocess.run([*build, source, "-o", program], check=True)
    words = [program, path, threads, kind, WINDOW, BATCH, SECONDS]
    done = subprocess.run([str(w) for w in words], check=True, capture_output=True, text=True)
    rate, cpu = done.stdout.split()
    return float(rate), float(cpu)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def timed(batches: Any) -> tuple[float, float]:
    """The same of an iterator, behind its first batches."""
    for _ in range(20):
        next(batches)
    began, used, count = time.perf_counter(), cpu_seconds(), 0
    while time.perf_counter() - began < SECONDS:
        next(batches)
        count += BATCH
    return count / (time.perf_counter() - began), (cpu_seconds() - used) / count * 1e6


def numpy_windows(path: str, kind: str) -> Any:
    """A view of all windows, indexed by random numbers."""
    tokens = np.memmap(path, np.uint16, "r")
    windows = np.lib.stride_tricks.sliding_window_view(tokens, WINDOW + 1)
    random = np.random.default_rng(1)
    while True:
        batch = windows[random.integers(0, len(windows), BATCH)]
        yield (
            batch
            if kind == "u16"
            else (
                batch[:, :-1].astype(np.int64),
                batch[:, 1:].astype(np.int64),
            )
        )


def millhead_windows(path: str, threads: int, kind: str) -> Any:
    """All windows, shuffled, wherever they begin, as for the others; chunks stay in memory."""
    import millhead

    text = f"tokens:{path},dtype=uint16,as={'uint16' if kind == 'u16' else 'int64'}"
    loader = millhead.Loader(
        text, BATCH, fields=["tokens"] if kind == "u16" else ["x", "y"], output="numpy",
        window={"token": WINDOW}, stride={"token": 1}, shuffle=True, threads=threads,
        memory=2 * Path(path).stat().st_size + (256 << 20),
    )  # fmt: skip
    while True:
        yield from loader


def arm(path: str, name: str, threads: int, kind: str) -> None:
    """One arm in a process of its own; prints its two numbers."""
    if name == "millhead":
        batches = millhead_windows(path, threads, kind)
        for _ in range(2 * Path(path).stat().st_size // (4 << 20)):
            next(batches)  # until all units are there
    else:
        batches = numpy_windows(path, kind)
    print(*timed(batches))


def measure(path: str, name: str, threads: int, kind: str) -> tuple[float, float]:
    if name.startswith("limit"):
        return limit(path, threads, kind)
    words = [sys.executable, __file__, "--arm", name, path, str(threads), kind]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    rate, cpu = done.stdout.split()
    return float(rate), float(cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=1 << 27)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--arm", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.arm:
        name, path, threads, kind = options.arm
        arm(path, name, int(threads), kind)
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/tokens.bin"
        np.random.default_rng(0).integers(0, 50257, options.tokens).astype(np.uint16).tofile(path)
        for kind in ("u16", "i64"):
            for threads in options.threads:
                arms: dict[str, list[tuple[float, float]]] = {
                    "limit": [],
                    "millhead": [],
                    "limit-again": [],
                    **({"numpy": []} if threads == 1 else {}),
                }
                for _ in range(options.rounds):
                    for name, found in arms.items():
                        found.append(measure(path, name, threads, kind))
                most = statistics.median(rate for rate, _ in arms["limit"])
                for name, found in arms.items():
                    rate = statistics.median(each for each, _ in found)
                    cpu = statistics.median(each for _, each in found)
                    rows.append({"arm": name, "kind": kind, "threads": threads, "rate": rate,
                                 "ratio_to_limit": rate / most, "cpu_us": cpu})  # fmt: skip
                    if not options.json:
                        print(f"{kind} {threads} thread(s) {name:11} {rate:10.0f} windows/s  "
                              f"{rate / most:5.2f} of the limit  {cpu:6.2f} us CPU")  # fmt: skip
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
