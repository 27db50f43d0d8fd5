"""Count the instructions the native engine spends per sample: a gate that noise cannot move.

`millhead read` runs under callgrind without threads, an epoch's FEW batches and then its MANY; the
difference divided by the samples between is a sample's cost, start and end cancel out. Rows of 1 KB are
reads (the kernel's work is not counted), token windows are copies from chunks in memory. `core` is what
millhead's own objects execute, copies not among it; `clocks` what reading clocks takes of it.

    bench/native_instructions.py            count and print JSON
    bench/native_instructions.py --update   and keep the figures in bench/native_instructions.json
    bench/native_instructions.py --check    and fail when core is more than 1 % above the kept figure,
                                            or clocks are more than 1 % of it
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from instructions import self_costs

HERE = Path(__file__).resolve().parent
KEPT = HERE / "native_instructions.json"
MILLHEAD = Path(sys.executable).with_name("millhead")
FEW, MANY, BATCH, TOLERANCE, CLOCKS_MOST = 64, 512, 64, 0.01, 0.01
KINDS = {
    "rows": ["rows.npy"],
    "tokens": ["tokens:tokens.bin,dtype=uint16,as=uint16", "--fields", "tokens",
               "--window", "token=2048", "--stride", "token=1"],
}  # fmt: skip


def epoch_costs(folder: Path, words: list[str], batches: int) -> tuple[int, int]:
    """Instructions of our objects, and those of clocks, for so many batches."""
    out = folder / "callgrind.out"
    command = [
        "valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", str(MILLHEAD), "read", *words,
        "--shuffle", "--batch-size", str(BATCH), "--threads", "0", "--limit-batches", str(batches),
        "--memory", "256MB", "--json",
    ]  # fmt: skip
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
    text = out.read_text()
    core = sum(n for name, n in self_costs(text).items() if "millhead" in name)
    by_function = self_costs(text.replace("\nob=", "\nxob=").replace("\nfn=", "\nob="))
    return core, sum(n for name, n in by_function.items() if "clock_" in name)


def count(folder: Path, words: list[str]) -> dict[str, float]:
    few, many = (epoch_costs(folder, words, batches) for batches in (FEW, MANY))
    samples = (MANY - FEW) * BATCH
    core = (many[0] - few[0]) / samples
    return {"core": round(core, 2), "clocks": max(0.0, round((many[1] - few[1]) / samples, 2))}


def worse(now: dict[str, dict[str, float]], kept: dict[str, dict[str, float]]) -> list[str]:
    """What is above its limit, in words."""
    lines = [
        f"{kind}: {now[kind]['core']} instructions per sample, {kept[kind]['core']} kept"
        for kind in KINDS
        if now[kind]["core"] > kept[kind]["core"] * (1 + TOLERANCE)
    ]
    return lines + [
        f"{kind}: clocks take {now[kind]['clocks']} of {now[kind]['core']} instructions"
        for kind in KINDS
        if now[kind]["clocks"] > now[kind]["core"] * CLOCKS_MOST
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millhead-instructions-") as name:
        folder = Path(name)
        random = np.random.default_rng(1)
        np.save(folder / "rows.npy", random.integers(0, 256, (MANY * BATCH, 1024), np.uint8))
        random.integers(0, 50257, 1 << 24).astype(np.uint16).tofile(folder / "tokens.bin")
        now = {kind: count(folder, words) for kind, words in KINDS.items()}
    print(json.dumps(now, indent=1))
    if options.update:
        KEPT.write_text(json.dumps(now, indent=1) + "\n")
    lines = worse(now, json.loads(KEPT.read_text())) if options.check else []
    for line in lines:
        print(f"native_instructions: {line}", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
