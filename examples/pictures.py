"""Pictures from files to batches: the native loader, torch with Pillow, and what this machine can do at all.

    python examples/pictures.py [--json]

JPEG files like ImageNet's, a random resized crop of 224 x 224, mirrored at random, batches of 64, with two workers or
threads each. The limit is a loop over libjpeg with no loader around it, two threads, its files in memory; it is
compiled for the occasion and left out where there is no compiler. Each run is a process of its own; they take turns.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parents[1] / "bench"
PICTURES, THREADS, SECONDS, REPEATS = 300, "2", "1", 3
LIMIT, OURS, PILLOW = "libjpeg alone, the limit", "millhead.Loader", "torch + Pillow"
NOISY = 0.15  # repeats that differ by more than this say nothing about shares


def commands(directory: Path) -> dict[str, list[str]]:
    """What to run, after the pictures are written and the limit is compiled."""
    data, listing, limit = directory / "train", directory / "list", directory / "limit"
    millhead = Path(sys.executable).with_name("millhead")
    subprocess.run(
        [millhead, "synth", "imagenet", data, "--count", str(PICTURES)],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    listing.write_text("".join(f"{path}\n" for path in sorted(data.rglob("*.JPEG"))))
    arms = {
        name: [sys.executable, str(BENCH / "picture_arms.py"), arm, str(data), THREADS, SECONDS]
        for name, arm in ((OURS, "millhead_exact"), (PILLOW, "torch_pillow"))
    }
    source = str(BENCH / "limits" / "pictures.c")
    build = ["cc", "-O3", "-march=native", "-o", str(limit), source, "-ljpeg", "-lm", "-pthread"]
    if (
        shutil.which("cc")
        and subprocess.run(build, check=False, capture_output=True).returncode == 0
    ):
        arms = {LIMIT: [str(limit), str(listing), THREADS, SECONDS], **arms}
    return arms


def run(command: list[str]) -> dict[str, float]:
    """One run: pictures and CPU milliseconds, both per second or picture."""
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=120, start_new_session=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return {
        "rate": found["samples"] / found["seconds"],
        "cpu_ms": 1000 * found["cpu_s"] / found["samples"],
    }


def measure() -> list[dict[str, Any]]:
    """Medians over the repeats."""
    with tempfile.TemporaryDirectory(prefix="millhead-pictures-") as directory:
        arms = commands(Path(directory))
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in arms}
        for _ in range(REPEATS):
            for name, command in arms.items():
                runs[name].append(run(command))
    base = next(iter(runs))
    rows = []
    for name, found in runs.items():
        rates = [one["rate"] for one in found]
        shares = [one["rate"] / other["rate"] for one, other in zip(found, runs[base], strict=True)]
        rows.append(
            {
                "loader": name,
                "rate": statistics.median(rates),
                "share": statistics.median(shares) if base == LIMIT else None,
                "cpu_ms": statistics.median(one["cpu_ms"] for one in found),
                "spread": max(rates) / min(rates) - 1,
            }
        )
    return rows


def too_busy(rows: list[dict[str, Any]]) -> bool:
    """Whether repeats differ so much that shares would say nothing."""
    return any(row["spread"] > NOISY for row in rows)


def reading(rows: list[dict[str, Any]]) -> str:
    """The result in a sentence."""
    rates = {row["loader"]: row["rate"] for row in rows}
    if too_busy(rows):
        spread = max(row["spread"] for row in rows)
        return f"Pictures: unclear (the machine is too busy: repeats differ by {spread:.0%})."
    text = (
        f"Pictures: millhead.Loader is {rates[OURS] / rates[PILLOW]:.1f} times as fast as {PILLOW}"
    )
    if LIMIT in rates:
        share = next(row["share"] for row in rows if row["loader"] == OURS)
        text += f", at {share:.0%} of what this machine can decode"
    return text + "."


def table(rows: list[dict[str, Any]]) -> list[str]:
    columns = "{:<26} {:>10}  {:>12}  {:>14}"
    lines = [columns.format("loader", "pictures/s", "of the limit", "CPU per picture")]
    for row in rows:
        share = "" if row["share"] is None else f"{row['share']:.0%}"
        share = "too busy" if share and too_busy(rows) else share
        rate, cpu = f"{row['rate']:,.0f}", f"{row['cpu_ms']:.2f} ms"
        lines.append(columns.format(row["loader"], rate, share, cpu))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    rows = measure()
    if options.json:
        print(json.dumps({"rows": rows, "reading": reading(rows)}, indent=1))
    else:
        print(f"\npictures: {PICTURES} JPEG files, a random crop of each to 224x224")
        print("batches of 64, no training step, two workers or threads")
        print("\n".join([*table(rows), "", reading(rows)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
