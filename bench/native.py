"""native - what the native loader costs beside its limits: reading rows, and a link's latency.

    .venv/bin/python bench/native.py [--rounds N] [--json FILE]

Rows of 1 KB are read beside a bare loop of preads into the same places (bench/limits/rows.c), limit
and millhead in turn, limit twice in each round: the second ratio is the noise. A link of 30 ms is
simulated, with 64 reads in flight and batches that hold far fewer: the rate beside what the link
allows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import machine

HERE = Path(__file__).resolve().parent
MILLHEAD = Path(sys.executable).with_name("millhead")
ROWS, ROW_BYTES, BATCH = 400_000, 1024, 256
LATENCY_S, BANDWIDTH, IN_FLIGHT = 0.030, 100e6, 64


def read(*arguments: str) -> dict[str, Any]:
    """What ``millhead read`` says of an epoch."""
    command = [str(MILLHEAD), "read", *arguments, "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def rows_per_second(path: Path, threads: int) -> float:
    """millhead's rate over rows of an array, in random order."""
    result = read(str(path), "--batch-size", str(BATCH), "--shuffle", "--threads", str(threads))
    return float(result["samples"]) / float(result["seconds"])


def limit_per_second(kernel: Path, path: Path, threads: int) -> float:
    """The bare loop's."""
    numbers = (128, ROW_BYTES, ROWS, BATCH, threads)
    command = [str(kernel), str(path), *map(str, numbers)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    return ROWS / float(done.stdout)


def compare_rows(kernel: Path, path: Path, threads: int, rounds: int) -> dict[str, Any]:
    """Limit, millhead, limit, in every round."""
    ratios, noise = [], []
    for _ in range(rounds):
        before = limit_per_second(kernel, path, threads)
        ours = rows_per_second(path, threads)
        after = limit_per_second(kernel, path, threads)
        ratios.append(ours / ((before + after) / 2))
        noise.append(before / after)
    return {
        "workload": f"rows of 1 KB, {threads} thread{'s' * (threads > 1)}",
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
        "limit_to_itself": [min(noise), max(noise)],
    }


def compare_link(chunk: int, rounds: int) -> dict[str, Any]:
    """The rate over a simulated link beside in_flight / (latency + bytes / bandwidth)."""
    data = f"synthetic:count={20000 * chunk},shape=1024,chunk={chunk}"
    link = f"latency={LATENCY_S * 1e3:.0f}ms,bandwidth={BANDWIDTH / 1e6:.0f}MB/s"
    limit = IN_FLIGHT / (LATENCY_S + 1024 * chunk / BANDWIDTH) * chunk
    ratios = []
    for _ in range(rounds):
        result = read(
            data, "--simulate", link, "--batch-size", "16", "--prefetch", "2",
            "--in-flight", str(IN_FLIGHT),
        )  # fmt: skip
        ratios.append(float(result["samples"]) / float(result["seconds"]) / limit)
    return {
        "workload": f"link of 30 ms, chunks of {chunk} KB, batch 16, prefetch 2",
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
    }


def make_rows(path: Path) -> None:
    """An array of random bytes that the page cache then has."""
    import numpy as np

    rows = np.random.default_rng(1).integers(0, 256, (ROWS, ROW_BYTES), np.uint8)
    np.save(path, rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millhead-native-") as directory:
        kernel, path = Path(directory) / "rows", Path(directory) / "rows.npy"
        source = HERE / "limits" / "rows.c"
        subprocess.run(["cc", "-O2", "-pthread", "-o", str(kernel), str(source)], check=True)
        make_rows(path)
        results = [compare_rows(kernel, path, threads, options.rounds) for threads in (1, 2)]
    results += [compare_link(chunk, min(options.rounds, 3)) for chunk in (1, 8)]
    print("| workload | share of the limit | range |\n|---|---|---|")
    for row in results:
        print(f"| {row['workload']} | {row['ratio']:.2f} | {row['least']:.2f}-{row['most']:.2f} |")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine.description(), "rows": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
