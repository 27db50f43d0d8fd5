"""cloud - the training loop of Earthmover's dataloader-demo over a slow link: theirs and ours, side by side.

    python bench/cloud.py OUT [--peers PYTHON] [--steps 0.01,0.1] [--batches 20]

Patches of 3 x 48 x 48 that overlap by 32, in batches of 16, from Zarr in a real S3 server (rclone serve s3)
whose answers come 30 ms late. Arms: their baseline, their best configuration with 4 and 8 workers, torch's
DataLoader with zarr and s3fs, and millhead; all read the same windows, and their values are compared. OUT gets
the logs, cloud.json, cloud.md, cloud.svg and report.html. PEERS is the Python of an environment with
bench/requirements-cloud.txt (bench/peers.sh cloud).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloud_page
import numpy as np
from cloud_arms import FIELDS, PATCH, STRIDE

BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH.parent / "tests" / "python"))
from helpers import servers

SHAPE, CHUNK = (
    {"time": 24, "latitude": 128, "longitude": 256},
    {"time": 4, "latitude": 64, "longitude": 64},
)
ARMS = ("earthmover", "earthmover_w4", "earthmover_w8", "torch_zarr", "millhead")
BASELINE_BATCHES = 3  # each takes seconds
EPOCH_BATCHES = 115  # all there are: what the disk cache is measured with
STORE = "era.zarr"


def make_store(path: Path) -> None:
    """Smooth weather and some noise, as Earthmover's ERA5 has it: float32, blosc, version 2."""
    import xarray

    draw = np.random.default_rng(7)
    time, lat, lon = (np.arange(size, dtype=np.float32) for size in SHAPE.values())
    fields = {}
    for number, name in enumerate(FIELDS, 1):
        wave = np.sin(time[:, None, None] / 5 + lat[:, None] / (9 * number) + lon / (13 * number))
        fields[name] = (tuple(SHAPE), (wave + draw.normal(0, 0.01, wave.shape)).astype(np.float32))
    data = xarray.Dataset(fields, {"time": time, "latitude": lat, "longitude": lon})
    encoding = {name: {"chunks": tuple(CHUNK.values())} for name in FIELDS}
    data.to_zarr(path, zarr_format=2, consolidated=True, encoding=encoding)


def chunks_of(window: int) -> set[str]:
    """The chunk files of one field that a window reaches into."""
    counts = [(SHAPE[name] - PATCH[name]) // STRIDE[name] + 1 for name in SHAPE]
    ranges = []
    for name, at in zip(SHAPE, np.unravel_index(window, counts), strict=True):
        first = int(at) * STRIDE[name]
        ranges.append(range(first // CHUNK[name], (first + PATCH[name] - 1) // CHUNK[name] + 1))
    return {f"{t}.{y}.{x}" for t in ranges[0] for y in ranges[1] for x in ranges[2]}


def bytes_needed(store: Path, order: list[int]) -> int:
    chunks = set().union(*(chunks_of(window) for window in order))
    return sum((store / field / chunk).stat().st_size for field in FIELDS for chunk in chunks)


class Link:
    """The slow link and what went over it."""

    def __init__(self, address: str, counts: Path) -> None:
        self.address, self._counts = address, counts

    def read(self) -> tuple[int, int]:
        requests, sent = struct.unpack("QQ", self._counts.read_bytes())
        return requests, sent


@contextmanager
def slow_link(server: str, out: Path, delay_ms: float) -> Iterator[Link]:
    program = out / "delay"
    subprocess.run(["cc", "-O2", "-o", program, BENCH / "delay.c"], check=True)
    port = servers.free_port()
    counts = out / "counts"
    command: list[str | Path] = [
        program,
        str(port),
        server.rsplit(":", 1)[1],
        str(delay_ms),
        counts,
    ]
    with subprocess.Popen(command) as process:
        try:
            servers.wait_for(port, process)
            yield Link(f"http://127.0.0.1:{port}", counts)
        finally:
            process.terminate()


class Runner:
    def __init__(self, out: Path, peers: str, link: Link) -> None:
        self.out, self.peers, self.link = out, peers, link

    def run(
        self, arm: str, store: str, step_s: float, order: list[int], **more: str
    ) -> dict[str, Any]:
        """One arm in a process of its own."""
        name = f"{arm}-{step_s:g}"
        numbers, logs = self.out / "order.json", self.out / "logs"
        logs.mkdir(exist_ok=True)
        numbers.write_text(json.dumps(order))
        environment = {
            **os.environ, "AWS_ENDPOINT_URL": self.link.address, "AWS_ACCESS_KEY_ID": servers.KEY,
            "AWS_SECRET_ACCESS_KEY": servers.SECRET, "AWS_DEFAULT_REGION": "us-east-1", **more,
        }  # fmt: skip
        python = sys.executable if arm == "millhead" else self.peers
        command: list[str | Path] = [
            python,
            BENCH / "cloud_arms.py",
            arm,
            store,
            str(step_s),
            numbers,
            logs / f"{name}.jsonl",
        ]
        before = self.link.read()
        with (self.out / f"{name}.stderr").open("w") as errors:
            done = subprocess.run(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                timeout=200,
                check=False,
            )
        if done.returncode:
            raise SystemExit(f"{name} failed:\n{(self.out / f'{name}.stderr').read_text()[-2000:]}")
        after = self.link.read()
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        found["requests"], found["bytes"] = after[0] - before[0], after[1] - before[1]
        print(
            f"{name}: AU {found['au']:.3f}, set-up {found['setup_s']:.2f} s",
            file=sys.stderr,
            flush=True,
        )
        return found


def check_values(rows: list[dict[str, Any]], whole: dict[str, Any], part: dict[str, Any]) -> None:
    """Every arm read the same windows and the same values as the local store has."""
    for row in rows:
        right = part if len(row["index"]) == len(part["index"]) else whole
        if row["index"] != right["index"] or row["sha256"] != right["sha256"]:
            raise SystemExit(
                f"{row['arm']} at {row['step_s']} s read other values than the local store has"
            )


def measure(arguments: argparse.Namespace, runner: Runner, local: Path) -> dict[str, Any]:
    remote = f"s3://bucket/{STORE}"
    empty = [0] * (arguments.batches * 16)
    whole = runner.run("millhead", str(local), 0.0, empty)
    order = whole["index"]
    short = order[: BASELINE_BATCHES * 16]
    part = runner.run("millhead", str(local), 0.0, short)
    rows = []
    for step_s in arguments.steps:
        for arm in arguments.arms:
            rows.append(runner.run(arm, remote, step_s, short if arm == "earthmover" else order))
    cache = {"BENCH_CACHE": f"{arguments.out / 'cache'}:1GB"}
    epoch = [0] * (EPOCH_BATCHES * 16)
    cached = [runner.run("millhead", remote, 0.0, epoch, **cache)]
    again = [runner.run("millhead", str(local), 0.0, epoch)]
    for _ in range(3):  # side by side, against drift
        cached.append(runner.run("millhead", remote, 0.0, epoch, **cache))
        again.append(runner.run("millhead", str(local), 0.0, epoch))
    check_values(rows, whole, part)
    check_values(cached, again[0], again[0])
    for row in (*rows, *cached):
        row["needed"] = bytes_needed(local, row["index"])
    shown = subprocess.run(
        [Path(sys.executable).parent / "millhead", "inspect", local, "--json", "--fields", ",".join(FIELDS)]
        + ["--window", ",".join(f"{n}={s}" for n, s in PATCH.items())]
        + ["--stride", ",".join(f"{n}={s}" for n, s in STRIDE.items())],
        stdout=subprocess.PIPE,
        check=True,
    )  # fmt: skip
    for row in (*rows, *cached, *again):
        row.pop("index")
    return {"rows": rows, "cached": cached, "local": again, "inspect": json.loads(shown.stdout)}


def numbers(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--peers", default=str(BENCH.parent / "out" / "peers" / "cloud" / "bin" / "python")
    )
    parser.add_argument("--steps", type=numbers, default=[0.01, 0.1, 0.5])
    parser.add_argument("--arms", type=lambda text: text.split(","), default=list(ARMS))
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--delay-ms", type=float, default=30)
    arguments = parser.parse_args()
    out = arguments.out = arguments.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    (out / "data" / "bucket").mkdir(parents=True)
    local = out / "data" / "bucket" / STORE
    make_store(local)
    with servers.s3(out / "data") as address, slow_link(address, out, arguments.delay_ms) as link:
        found = measure(arguments, Runner(out, arguments.peers, link), local)
    (out / "cloud.json").write_text(json.dumps(found, indent=1) + "\n")
    (out / "cloud.md").write_text(cloud_page.page(found))
    (out / "cloud.svg").write_text(cloud_page.picture(found["rows"]))
    logs = sorted((out / "logs").glob("*.jsonl"))
    millhead = Path(sys.executable).parent / "millhead"
    subprocess.run([millhead, "report", *logs, "-o", out / "report.html"], check=True)


if __name__ == "__main__":
    main()
