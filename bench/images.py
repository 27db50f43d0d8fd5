"""images - JPEG folders: the native loader beside bare libjpeg and other loaders.

    .venv/bin/python bench/images.py [--rounds N] [--seconds S] [--count N] [--out bench/results]

Writes images.md, images.svg and images.json. In every round each arm runs once, in random order: the limit (a bare
loop over libjpeg, bench/limits/pictures.c) twice, millhead exact and fast, torch with Pillow and with OpenCV, tf.data
and DALI where out/peers has them (bench/peers.sh tensorflow dali). A ratio is that of an arm to the limit in the same
round; its interval is a bootstrap over rounds. The limit against itself is the A/A row: smaller differences than
twice its spread do not count. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
from ratios import Block, Round, compare, spread

HERE = Path(__file__).resolve().parent
MILLHEAD = Path(sys.executable).with_name("millhead")
PEERS = HERE.parent / "out" / "peers"
LIMIT, AGAIN, SCALED = "limit", "limit again", "limit, scaled decode"
PYTHONS = {
    "millhead_exact": Path(sys.executable),
    "millhead_fast": Path(sys.executable),
    "torch_pillow": Path(sys.executable),
    "torch_opencv": Path(sys.executable),
    "tf_data": PEERS / "tensorflow" / "bin" / "python",
    "dali": PEERS / "dali" / "bin" / "python",
}
NAMES = {
    "millhead_exact": "millhead, exact",
    "millhead_fast": "millhead, fast",
    "torch_pillow": "torch + Pillow",
    "torch_opencv": "torch + OpenCV (no antialias)",
    "tf_data": "tf.data (no antialias)",
    "dali": "DALI, CPU",
}
WORKLOADS = {
    "imagenet": "W1: about 114 KB each, 500 x 375, quality 96, 4:4:4",
    "photos": "W2: about 2 megapixels each, quality 90, 4:2:0",
}


@dataclass
class Arm:
    """One way to load, and the command that measures it."""

    name: str
    command: list[str]

    def run(self) -> Block:
        done = subprocess.run(
            self.command, check=False, capture_output=True, text=True, timeout=300,
            start_new_session=True,
        )  # fmt: skip
        if done.returncode != 0:
            raise SystemExit(f"{self.name} failed:\n{done.stderr[-2000:]}")
        found = json.loads(done.stdout.splitlines()[-1])
        return Block(found["seconds"], int(found["samples"]), found["cpu_s"], 0)


def arms_of(kernel: Path, data: Path, listing: Path, threads: int, seconds: float) -> list[Arm]:
    """The limit twice, ours, and the peers that are installed."""
    limit = [str(kernel), str(listing), str(threads), str(seconds)]
    found = [Arm(LIMIT, limit), Arm(AGAIN, limit), Arm(SCALED, [*limit, "scaled"])]
    for name, python in PYTHONS.items():
        command = [str(python), str(HERE / "picture_arms.py"), name, str(data)]
        if python.exists():
            found.append(Arm(NAMES[name], [*command, str(threads), str(seconds)]))
    return found


def stolen() -> tuple[int, int]:
    """Ticks that the hypervisor took, and all."""
    ticks = [int(number) for number in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return ticks[7], sum(ticks)


def measure(arms: list[Arm], rounds: int) -> list[Round]:
    """All arms in random order in each round."""
    found = []
    for number in range(rounds):
        before = stolen()
        blocks = {arm.name: arm.run() for arm in random.sample(arms, len(arms))}
        after = stolen()
        steal = (after[0] - before[0]) / max(after[1] - before[1], 1)
        found.append(Round(blocks, steal))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return found


def rows_of(workload: str, threads: int, rounds: list[Round]) -> list[dict[str, Any]]:
    """A row for each arm, with its ratio to the limit."""
    aa = spread(compare(rounds, AGAIN, LIMIT))
    rows = []
    for name in rounds[0].blocks:
        base = SCALED if name == NAMES["millhead_fast"] else LIMIT
        blocks = [each.blocks[name] for each in rounds]
        ratio = compare(rounds, name, base)
        rows.append(
            {
                "workload": workload,
                "threads": threads,
                "arm": name,
                "rate": statistics.median(block.rate for block in blocks),
                "ratio_to": base,
                "ratio": ratio.median,
                "ci95": [ratio.low, ratio.high],
                "cpu_us_per_sample": 1e6
                * statistics.median(block.cpu_s / block.samples for block in blocks),
                "aa_spread": aa,
                "steal": max(each.steal for each in rounds),
            }
        )
    return sorted(rows, key=lambda row: -row["rate"])


def lost(rows: list[dict[str, Any]]) -> list[str]:
    """Where a peer is faster than us with the same threads."""
    found = []
    ours = {NAMES["millhead_exact"], NAMES["millhead_fast"]}
    for row in rows:
        if row["arm"] in ours or row["arm"].startswith("limit"):
            continue
        best = max(r["rate"] for r in rows if r["arm"] in ours
                   and (r["workload"], r["threads"]) == (row["workload"], row["threads"]))  # fmt: skip
        if row["rate"] > best:
            found.append(f"{row['workload']}, {row['threads']} threads: {row['arm']}")
    return found


def markdown(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    """The page of a run."""
    lines = ["# Pictures: random resized crop 224, mirrored, uint8, batches of 64", ""]
    lines += [f"{key}: {value}  " for key, value in machine.description().items()]
    lines += ["", f"{options.rounds} rounds of {options.seconds} s; {options.count} files."]
    for workload, title in WORKLOADS.items():
        for threads in (1, 2):
            chosen = [r for r in rows if (r["workload"], r["threads"]) == (workload, threads)]
            if not chosen:
                continue
            lines += ["", f"## {title}; {threads} thread{'s' * (threads > 1)} or workers", ""]
            lines += [
                "| arm | pictures/s | ratio | of | 95 % | CPU µs/picture |",
                "|---|---|---|---|---|---|",
            ]
            lines += [
                f"| {r['arm']} | {r['rate']:.0f} | {r['ratio']:.2f} | {r['ratio_to']} "
                f"| {r['ci95'][0]:.2f}-{r['ci95'][1]:.2f} | {r['cpu_us_per_sample']:.0f} |"
                for r in chosen
            ]
            lines += [
                "",
                f"A/A spread {chosen[0]['aa_spread']:.1%}; steal {chosen[0]['steal']:.1%}.",
            ]
    losses = lost(rows)
    lines += ["", "Where we lose: " + ("; ".join(losses) if losses else "to none of these."), ""]
    return "\n".join(lines)


def svg(rows: list[dict[str, Any]]) -> str:
    """Bars of the ratios, one panel for each workload and number of threads."""
    parts, y = [], 24
    for workload, threads in dict.fromkeys((r["workload"], r["threads"]) for r in rows):
        chosen = [r for r in rows if (r["workload"], r["threads"]) == (workload, threads)]
        limit = next(r["rate"] for r in chosen if r["arm"] == LIMIT)
        parts.append(
            f'<text x="8" y="{y}" font-weight="bold">{workload}, threads: {threads}</text>'
        )
        for row in chosen:
            y += 22
            width = 360 * row["rate"] / limit
            fill = "#2b7a4b" if row["arm"].startswith("millhead") else "#9aa5ad"
            parts.append(f'<text x="196" y="{y}" text-anchor="end">{row["arm"]}</text>')
            parts.append(
                f'<rect x="204" y="{y - 12}" width="{width:.1f}" height="16" fill="{fill}"/>'
            )
            parts.append(f'<text x="{210 + width:.1f}" y="{y}">{row["rate"]:.0f}/s</text>')
        y += 40
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{y}" '
        'font-family="sans-serif" font-size="12">'
    )
    return head + "".join(parts) + "</svg>\n"


def build(directory: Path) -> Path:
    """The limit's program."""
    kernel = directory / "pictures"
    command = ["cc", "-O3", "-march=native", "-o", str(kernel), str(HERE / "limits" / "pictures.c")]
    subprocess.run([*command, "-ljpeg", "-lm", "-pthread"], check=True)
    return kernel


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each arm in a round")
    parser.add_argument(
        "--count", type=int, default=1000, help="files of imagenet; a fifth of photos"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="millhead-images-") as directory:
        kernel = build(Path(directory))
        for workload in options.workloads:
            data, listing = Path(directory) / workload, Path(directory) / f"{workload}.txt"
            count = options.count if workload == "imagenet" else max(options.count // 5, 64)
            subprocess.run([MILLHEAD, "synth", workload, data, "--count", str(count)], check=True)
            paths = sorted(map(str, data.rglob("*.JPEG")))
            listing.write_text("".join(f"{path}\n" for path in paths))
            for threads in options.threads:
                arms = arms_of(kernel, data, listing, threads, options.seconds)
                rows += rows_of(workload, threads, measure(arms, options.rounds))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "images.md").write_text(markdown(rows, options))
    (options.out / "images.svg").write_text(svg(rows))
    (options.out / "images.json").write_text(
        json.dumps({"machine": machine.description(), "rows": rows}, indent=1)
    )
    print(markdown(rows, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
