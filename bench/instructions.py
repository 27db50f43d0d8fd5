"""Count the instructions millhead spends per sample, for a regression gate that noise cannot move.

One process runs under callgrind, 0 workers, int samples and 1 KB arrays: for each, an epoch of FEW
and an epoch of MANY batches, with the counters written out in between. The difference of the two,
divided by the samples between them, is the cost of a sample: imports, start and end of an epoch
cancel out. Collection of cyclic garbage is off, because when it falls due is not ours to decide.
Two figures are kept: `total`, the interpreter's work included, and `core`, inside millhead's shared
object, where a change too small to show in the total still does. Repeated runs of one build differ
by about 0.1 %.

    bench/instructions.py            count and print JSON
    bench/instructions.py --update   and keep the figures in bench/instructions.json
    bench/instructions.py --check    and fail when a figure is more than 1 % above the kept one
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
KEPT = HERE / "instructions.json"
KINDS = ("int", "array")
BATCH_SIZE, WARM, FEW, MANY = 64, 64, 64, 320
TOLERANCE = 0.01
TIME_LIMIT_S = 1200


def workload(loader: str) -> None:
    """What runs under callgrind. os.getsid is the mark before which callgrind writes a part."""
    import torch
    from arms import loader_class
    from workloads import Cell, dataset

    make = loader_class(loader)
    torch.set_num_threads(1)
    for kind in KINDS:
        for batches in (WARM, FEW, MANY):
            cell = Cell("W11", kind, 0, BATCH_SIZE, batches * BATCH_SIZE, 0.0)
            batches_of = make(dataset(cell, HERE, tensors=True), batch_size=BATCH_SIZE)
            gc.collect()
            gc.disable()
            os.getsid(0)
            for _ in batches_of:
                pass
            os.getsid(0)
            gc.enable()


def count(loader: str) -> dict[str, Any]:
    """Run the workload under callgrind and work out instructions per sample.

    Raises:
        RuntimeError: valgrind failed or its output is not as expected.
    """
    with tempfile.TemporaryDirectory(prefix="millhead-instructions-") as directory:
        out = Path(directory) / "callgrind.out"
        command = [
            "valgrind", "--tool=callgrind", "--dump-before=getsid",
            f"--callgrind-out-file={out}", sys.executable, __file__, "--workload", loader,
        ]  # fmt: skip
        done = subprocess.run(
            command, env=os.environ | {"PYTHONHASHSEED": "0"}, timeout=TIME_LIMIT_S,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"callgrind run failed:\n{done.stderr[-2000:]}")
        # Parts 1, 3, 5 ... end where an epoch begins; parts 2, 4, 6 ... are the epochs.
        parts = [out.with_name(f"{out.name}.{2 * n}") for n in range(1, 3 * len(KINDS) + 1)]
        if missing := [part.name for part in parts if not part.exists()]:
            raise RuntimeError(f"callgrind wrote no {', '.join(missing)}")
        return {
            kind: _per_sample(parts[3 * i + 1], parts[3 * i + 2]) for i, kind in enumerate(KINDS)
        }


def _per_sample(few: Path, many: Path) -> dict[str, float]:
    """Instructions per sample in all, and those inside millhead's shared object."""
    samples = (MANY - FEW) * BATCH_SIZE
    below, above = self_costs(few.read_text()), self_costs(many.read_text())
    total = sum(above.values()) - sum(below.values())
    core = sum(sign * n for costs, sign in ((above, 1), (below, -1))
               for name, n in costs.items() if "millhead" in name)  # fmt: skip
    return {"total": round(total / samples, 2), "core": round(core / samples, 2)}


def self_costs(text: str) -> dict[str, int]:
    """Instructions by object file, from one part of callgrind's output."""
    names: dict[str, str] = {}
    costs: dict[str, int] = {}
    current, inclusive_next = "", False
    for line in text.splitlines():
        if line.startswith(("ob=", "cob=")):
            key, _, name = line.partition("=")[2].partition(" ")
            names.setdefault(key, name)
            current = names[key] if line.startswith("ob=") else current
        elif line.startswith("calls="):
            inclusive_next = True  # the next line is the callee's cost, counted where it is spent
        elif line[:1] in "0123456789+-*" and line:
            if not inclusive_next:
                costs[current] = costs.get(current, 0) + int(line.split()[1])
            inclusive_next = False
    return costs


def environment() -> dict[str, str]:
    """What the figures depend on besides our code."""
    return {
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": version("numpy"),
        "libc": " ".join(platform.libc_ver()),
        "machine": platform.machine(),
    }


def compare(now: dict[str, Any], kept: dict[str, Any]) -> list[str]:
    """What got worse by more than the tolerance, in words; other environments do not compare."""
    if now["environment"] != kept["environment"]:
        print("instructions: kept figures are from another environment", file=sys.stderr)
        print(f"instructions: kept {kept['environment']}", file=sys.stderr)
        print(f"instructions: here {now['environment']}", file=sys.stderr)
        return ["not comparable: run --update here first"]
    worse = []
    for kind in KINDS:
        for part in ("total", "core"):
            before, after = (f["instructions_per_sample"][kind][part] for f in (kept, now))
            text = f"{kind}, {part}: {after} instructions per sample, {before} kept"
            if after > before * (1 + TOLERANCE):
                worse.append(text)
            elif after < before * (1 - TOLERANCE):
                print(f"instructions: better: {text} (--update keeps it)", file=sys.stderr)
    return worse


def main(argv: Sequence[str] | None = None) -> int:
    """Count; 0 when nothing got worse."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the kept figures")
    parser.add_argument("--update", action="store_true", help="keep these figures")
    parser.add_argument("--loader", choices=("millhead", "torch"), default="millhead")
    parser.add_argument("--workload", metavar="LOADER", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.workload:
        workload(args.workload)
        return 0
    if args.check and not KEPT.exists():
        parser.error(f"no {KEPT.name} to compare with: run --update first")
    now = {"environment": environment(), "instructions_per_sample": count(args.loader)}
    print(json.dumps(now, indent=1))
    if args.update:
        KEPT.write_text(json.dumps(now, indent=1) + "\n")
    worse = compare(now, json.loads(KEPT.read_text())) if args.check else []
    for line in worse:
        print(f"instructions: {line}", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
