"""images - pictures and small files: the native loader beside bare loops and other loaders.

    .venv/bin/python bench/images.py [CELL ...] [--rounds N] [--seconds S] [--out bench/results]

CELLs: W1 W2 W9 W12 W14 (default: all), or of those with threads one of them: W1:2. Writes pictures.md, pictures.svg and
pictures.json; cells that are not measured stay as they were there, so that a run may be split. In every round each arm
runs once, in random order: the limit (a bare loop, bench/limits) twice, ours, and the peers that are there (out/peers:
bench/peers.sh tensorflow dali). A ratio is that of two arms in the same round; its interval is a bootstrap over rounds.
The limit against itself is the A/A row: smaller differences than twice its spread do not count. Run it on a machine
that does nothing else.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import image_report
import machine
import start_up
from ratios import Block, Ratio, Round, compare, spread

HERE = Path(__file__).resolve().parent
MILLHEAD = Path(sys.executable).with_name("millhead")
PEERS = HERE.parent / "out" / "peers"
OWN, TENSORFLOW, DALI = (
    Path(sys.executable),
    PEERS / "tensorflow" / "bin" / "python",
    PEERS / "dali" / "bin" / "python",
)
LIMIT, AGAIN = "limit", "limit again"
#: Decoded smaller wherever that is no smaller than the result: down to 32 dB. The second: as far as 40 dB allow.
SCALED, SCALED_WELL = "limit, scaled decode", "limit, scaled decode of 40 dB"
LEAST_SCALED = {SCALED: "1", SCALED_WELL: "1.5"}
EXACT, FAST = "millhead, exact", "millhead, fast"
OPENED, PILLOW = "millhead.open in drop-in workers", "Pillow in drop-in workers"
PICTURE_ARMS = {
    EXACT: ("millhead_exact", OWN),
    FAST: ("millhead_fast", OWN),
    "torch + Pillow": ("torch_pillow", OWN),
    "torch + OpenCV (no antialias)": ("torch_opencv", OWN),
    "tf.data": ("tf_antialias", TENSORFLOW),
    "tf.data (no antialias)": ("tf_data", TENSORFLOW),
    "DALI, CPU": ("dali", DALI),
}
DROP_IN_ARMS = {OPENED: ("dropin_open", OWN), PILLOW: ("dropin_pillow", OWN)}
FILE_ARMS = {
    "millhead": ("millhead_files", OWN),
    "torch": ("torch_files", OWN),
    "tf.data": ("tf_files", TENSORFLOW),
    "DALI, CPU": ("dali_files", DALI),
}
PACKAGES = {
    OWN: ("millhead", "torch", "pillow", "opencv-python-headless"),
    TENSORFLOW: ("tensorflow-cpu",),
    DALI: ("nvidia-dali-cuda120",),
}
CELLS = ("W1:1", "W1:2", "W2:1", "W2:2", "W9:1", "W9:2", "W12", "W14")
PICTURES = {"W1": ("imagenet", 1000), "W2": ("photos", 200)}
SMALL_FILES, SMALL_FOLDERS, SMALL_BYTES = 40_000, 256, 10_000
DEMAND = 0.75  # of the limit, in W14
PSNR_PICTURES = 100


@dataclass
class Arm:
    """One way to load, and the command that measures it."""

    name: str
    command: list[str]

    def run(self) -> dict[str, Any]:
        done = subprocess.run(
            self.command, check=False, capture_output=True, text=True, timeout=120,
            start_new_session=True,
        )  # fmt: skip
        if done.returncode != 0:
            raise SystemExit(f"{self.name} failed:\n{done.stderr[-2000:]}")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def block(self) -> Block:
        found = self.run()
        return Block(found["seconds"], int(found["samples"]), found["cpu_s"], 0)


def arms_of(
    program: str, named: dict[str, tuple[str, Path]], data: Path, threads: int, seconds: float
) -> Iterator[Arm]:
    """Arms of one of the programs beside this file, where their Python is."""
    for title, (name, python) in named.items():
        if python.exists():
            command = [str(python), str(HERE / program), name, str(data), str(threads)]
            yield Arm(title, [*command, str(seconds)])


def measure(arms: Sequence[Arm], rounds: int) -> list[Round]:
    """All arms in random order in each round."""
    found = []
    for number in range(rounds):
        before = machine.Ticks.now()
        blocks = {arm.name: arm.block() for arm in random.sample(arms, len(arms))}
        found.append(Round(blocks, before.steal_share(machine.Ticks.now())))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return found


def shown(ratio: Ratio) -> list[float]:
    """Median and interval."""
    return [ratio.median, ratio.low, ratio.high]


def rows_of(rounds: list[Round]) -> list[dict[str, Any]]:
    """A row for each arm: rate, ratio to its limit, and of ours to all others."""
    rows = []
    for name in rounds[0].blocks:
        base = SCALED_WELL if name == FAST else LIMIT
        blocks = [each.blocks[name] for each in rounds]
        ours = name.startswith("millhead")
        others = [o for o in rounds[0].blocks if not o.startswith(("millhead", "limit"))]
        rows.append(
            {
                "arm": name,
                "rate": statistics.median(block.rate for block in blocks),
                "ratio_to": base,
                "ratio": shown(compare(rounds, name, base)),
                "ratio_to_scaled": shown(compare(rounds, name, SCALED)) if name == FAST else None,
                "ratio_to_peers": {o: shown(compare(rounds, name, o)) for o in others if ours},
                "cpu_us_per_sample": 1e6
                * statistics.median(block.cpu_s / block.samples for block in blocks),
            }
        )
    return sorted(rows, key=lambda row: -row["rate"])


def cell_of(rounds: list[Round]) -> dict[str, Any]:
    """Rows and what the noise was."""
    return {
        "rounds": len(rounds),
        "aa_spread": spread(compare(rounds, AGAIN, LIMIT)),
        "steal": max(each.steal for each in rounds),
        "rows": rows_of(rounds),
    }


# --- the cells


def build(name: str, directory: Path) -> Path:
    """The program of a limit."""
    program = directory / name
    command = ["cc", "-O3", "-march=native", "-o", str(program), str(HERE / "limits" / f"{name}.c")]
    subprocess.run([*command, "-ljpeg", "-lm", "-pthread"], check=True)
    return program


def write_list(data: Path, pattern: str) -> Path:
    """The files that a limit reads."""
    listing = data.with_suffix(".txt")
    listing.write_text("".join(f"{path}\n" for path in sorted(data.rglob(pattern))))
    return listing


def make_pictures(workload: str, directory: Path) -> tuple[Path, Path]:
    """A folder of pictures and its list; made once."""
    kind, count = PICTURES[workload]
    data = directory / kind
    if not data.exists():
        subprocess.run([MILLHEAD, "synth", kind, data, "--count", str(count)], check=True)
    return data, write_list(data, "*.JPEG")


def pictures(
    workload: str, threads: int, directory: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """W1 and W2: JPEG files to batches."""
    data, listing = make_pictures(workload, directory)
    seconds = options.seconds
    limit = [str(build("pictures", directory)), str(listing), str(threads), str(seconds)]
    arms = [Arm(LIMIT, limit), Arm(AGAIN, limit)]
    arms += [Arm(name, [*limit, least]) for name, least in LEAST_SCALED.items()]
    arms += arms_of("picture_arms.py", PICTURE_ARMS, data, threads, seconds)
    cell = cell_of(measure(arms, options.rounds))
    if workload == "W2":
        cell["psnr_db"] = psnr_of_fast(data)
    return cell


def psnr_of_fast(data: Path) -> list[float]:
    """Least and median over pictures, of the fast profile beside the exact one, the same crops."""
    import millhead
    import numpy as np
    from picture_arms import PIPELINE

    found = []
    exact, fast = (
        millhead.open(data, pipeline=PIPELINE, profile=name, output="numpy")
        for name in ("exact", "fast")
    )
    for number in range(min(PSNR_PICTURES, len(exact))):
        away = exact[number]["image"].astype(np.float64) - fast[number]["image"]
        if away.any():  # else it was not decoded smaller
            found.append(float(10 * np.log10(255**2 / (away**2).mean())))
    return [min(found), statistics.median(found)]


def small_files(threads: int, directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    """W9: many files of 10 KB, warm."""
    data = directory / "small"
    if not data.exists():
        for number in range(SMALL_FILES):
            path = data / f"{number % SMALL_FOLDERS:03d}" / f"{number:06d}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(number.to_bytes(4, "little") * (SMALL_BYTES // 4))
    listing = write_list(data, "*.bin")
    limit = [str(build("files", directory)), str(listing), str(threads), str(options.seconds)]
    arms = [Arm(LIMIT, limit), Arm(AGAIN, limit)]
    arms += arms_of("file_arms.py", FILE_ARMS, data, threads, options.seconds)
    return cell_of(measure(arms, options.rounds))


def stall(directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    """W14: how busy a device is that wants 75 % of the limit; and our decode in drop-in workers."""
    from picture_arms import BATCH

    data, listing = make_pictures("W1", directory)
    threads = 2
    limit = Arm(
        LIMIT,
        [str(build("pictures", directory)), str(listing), str(threads), str(options.seconds)],
    )
    [ours] = arms_of(
        "picture_arms.py", {EXACT: PICTURE_ARMS[EXACT]}, data, threads, 2 * options.seconds
    )
    busy, demands, cpu_us = [], [], []
    for _ in range(options.rounds):
        before = limit.block().rate
        step_s = BATCH / (DEMAND * before)
        found = Arm(EXACT, [*ours.command, str(step_s)]).run()
        after = limit.block().rate
        busy.append(found["busy"])
        demands.append(DEMAND * before / ((before + after) / 2))
        cpu_us.append(1e6 * found["cpu_s"] / found["samples"])
    arms = list(arms_of("picture_arms.py", DROP_IN_ARMS, data, threads, options.seconds))
    drop_in = measure([limit, Arm(AGAIN, limit.command), *arms], options.rounds)
    return cell_of(drop_in) | {
        "busy": [statistics.median(busy), min(busy), max(busy)],
        "demand": [statistics.median(demands), min(demands), max(demands)],
        "busy_cpu_us_per_sample": statistics.median(cpu_us),
    }


def measure_cell(name: str, directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One cell's rows, and when they were measured."""
    workload, _, threads = name.partition(":")
    if workload in PICTURES:
        cell = pictures(workload, int(threads), directory, options)
    elif workload == "W9":
        cell = small_files(int(threads), directory, options)
    elif workload == "W12":
        cell = start_up.measure(MILLHEAD, directory, options.rounds)
    else:
        cell = stall(directory, options)
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return cell | {"measured": now, "seconds": options.seconds}


def versions() -> dict[str, str]:
    """Of all packages that were measured."""
    found: dict[str, str] = {}
    for python, packages in PACKAGES.items():
        code = "import importlib.metadata as m, sys; print(*map(m.version, sys.argv[1:]))"
        if python.exists():
            done = subprocess.run(
                [python, "-c", code, *packages], check=False, capture_output=True, text=True
            )
            found |= dict(zip(packages, done.stdout.split(), strict=False))
    return found


def write(result: dict[str, Any], out: Path) -> None:
    """What is known so far, cells in their usual order."""
    result["cells"] = {name: result["cells"][name] for name in CELLS if name in result["cells"]}
    (out / "pictures.json").write_text(json.dumps(result, indent=1) + "\n")
    (out / "pictures.md").write_text(image_report.markdown(result))
    (out / "pictures.svg").write_text(image_report.svg(result))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cells", nargs="*", metavar="CELL")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each arm in a round")
    parser.add_argument("--data", type=Path, help="keep what is generated there")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    cells = [c for c in CELLS if not options.cells or {c, c.partition(":")[0]} & {*options.cells}]
    if not cells:
        parser.error(f"no such cell: there are {', '.join(CELLS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / "pictures.json"
    result: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {"cells": {}}
    result |= {"machine": machine.description(), "versions": versions()}
    with tempfile.TemporaryDirectory(prefix="millhead-images-") as temporary:
        directory = options.data or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        for name in cells:
            result["cells"][name] = measure_cell(name, directory, options)
            write(result, options.out)
    print(image_report.markdown(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
