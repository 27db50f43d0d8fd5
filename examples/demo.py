"""Torch's DataLoader and millhead's side by side, on data made for the occasion.

    python examples/demo.py [--json]

Two scenes, each with 0 and with 2 workers: JPEG files that a plain Dataset decodes with Pillow,
where decoding is the work, and samples already in memory, where the loader is the work. The only
difference between the two runs is which DataLoader is imported. Each run is a process of its own;
runs of the two loaders alternate. The training step is a stand-in: it keeps the processor busy
with small matrix products for a fixed time.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SEED = 1
REPEATS = 3
WORKERS = (0, 2)
LOADERS = ("torch", "millhead")
PICTURES, CLASSES, SIDE = 400, 10, 160
VECTORS = 16384
SCENES: dict[str, dict[str, Any]] = {
    "images": {
        "title": f"{PICTURES} JPEG files, decoded and resized to {SIDE}x{SIDE} with Pillow",
        "batch_size": 16,
        "step_ms": 5.0,
    },
    "in memory": {
        "title": f"{VECTORS} samples in memory, a label and a vector of 1 KB each",
        "batch_size": 64,
        "step_ms": 0.5,
    },
}
EQUAL_WITHIN = 0.05  # a ratio closer to 1 than this, or than the repeats agree, is no difference
NOISY = 0.15  # repeats of torch that differ by more than this cannot show that loaders are equal


# --- the data --------------------------------------------------------------------------------


class Pictures:
    """A plain map-style dataset: a folder per class, Pillow, a random flip."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*/*.jpg"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        import torch
        from PIL import Image

        path = self.files[index]
        with Image.open(path) as opened:
            picture = opened.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()
        return pixels, int(path.parent.name)


class Vectors:
    """Samples that cost nothing to fetch."""

    def __init__(self) -> None:
        generator = np.random.default_rng(SEED)
        self.vectors = generator.standard_normal((VECTORS, 256)).astype(np.float32)

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, index: int) -> tuple[int, np.ndarray]:
        return index % CLASSES, self.vectors[index]


def write_pictures(folder: Path) -> None:
    """Smooth colours plus grain, 200x200 to 375x500, in class folders."""
    from PIL import Image

    generator = np.random.default_rng(SEED)
    for index in range(PICTURES):
        share = generator.uniform()
        height, width = int(200 + 175 * share), int(200 + 300 * share)
        coarse = generator.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
        grain = generator.integers(-16, 17, (height, width, 1))
        pixels = np.clip(np.asarray(smooth) + grain, 0, 255).astype(np.uint8)
        path = folder / str(index % CLASSES) / f"{index:04d}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path, quality=92)


# --- one run, in a process of its own ---------------------------------------------------------


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    """An epoch for the first batch and the fingerprint, then an epoch with training steps."""
    import torch

    torch.set_num_threads(1)
    random.seed(SEED)
    workers = spec["workers"]
    loader = loader_class(spec["loader"])(
        Pictures(Path(spec["folder"])) if spec["scene"] == "images" else Vectors(),
        batch_size=spec["batch_size"],
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        generator=torch.Generator().manual_seed(SEED),
    )
    found = first_epoch(loader) | train_epoch(loader, spec["step_ms"] / 1000)
    found["memory_mb"] = session_pss_mb()
    found["path"] = loader.stats()["path"] if spec["loader"] == "millhead" else "torch"
    return found


def loader_class(name: str) -> Any:
    """The one line that differs between the two runs."""
    if name == "millhead":
        import millhead.torch

        return millhead.torch.DataLoader
    from torch.utils.data import DataLoader

    return DataLoader


def first_epoch(loader: Any) -> dict[str, Any]:
    """Time to the first batch, and a fingerprint of all batches."""
    began = time.perf_counter()
    batches = iter(loader)
    batch = next(batches)
    first_batch_ms = 1000 * (time.perf_counter() - began)
    digest = hashlib.sha256()
    while batch is not None:
        for tensor in batch:
            digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            digest.update(tensor.numpy().tobytes())
        batch = next(batches, None)
    return {"first_batch_ms": first_batch_ms, "sha256": digest.hexdigest()}


def train_epoch(loader: Any, step_s: float) -> dict[str, float]:
    """A training loop: how fast samples pass, and what share of the time it waits for them."""
    import torch

    weights = torch.randn(64, 64)
    samples, waited = 0, 0.0
    began = time.perf_counter()
    batches = iter(loader)
    while True:
        asked = time.perf_counter()
        batch = next(batches, None)
        got = time.perf_counter()
        waited += got - asked
        if batch is None:
            break
        samples += len(batch[0])
        while time.perf_counter() < got + step_s:  # the training step: busy, never asleep
            torch.mm(weights, weights)
    total = time.perf_counter() - began
    return {"samples_per_s": samples / total, "wait_share": waited / total}


def session_pss_mb() -> float:
    """Memory of this process and its workers, each shared page counted once."""
    total_kb, session = 0, os.getsid(0)
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if os.getsid(int(entry.name)) == session:
                rollup = (entry / "smaps_rollup").read_text().splitlines()
                total_kb += next(int(x.split()[1]) for x in rollup if x.startswith("Pss:"))
    return total_kb / 1024


# --- all runs ---------------------------------------------------------------------------------


def run_one(spec: dict[str, Any]) -> dict[str, Any]:
    """Measure in a fresh process; whatever happens, nothing of it is left."""
    child = subprocess.Popen(
        [sys.executable, __file__, "--measure", json.dumps(spec)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = child.communicate(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # it leads its own group: workers included
        child.wait()
    if child.returncode != 0:
        raise RuntimeError(f"the {spec['loader']} run failed; its message is above")
    return spec | json.loads(output.splitlines()[-1])


def run_all(folder: Path, loaders: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Every combination, repeated, the loaders taking turns at going first."""
    for repeat in range(REPEATS):
        for scene, settings in SCENES.items():
            for workers in WORKERS:
                for loader in loaders if repeat % 2 == 0 else tuple(reversed(loaders)):
                    spec = {"scene": scene, "workers": workers, "loader": loader, "repeat": repeat}
                    common = {k: settings[k] for k in ("batch_size", "step_ms")}
                    yield run_one(spec | common | {"folder": str(folder)})


def summarise(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Medians over the repeats, and the ratio of millhead to torch taken repeat by repeat."""
    rows = []
    for scene in SCENES:
        for workers in WORKERS:
            here = [r for r in runs if r["scene"] == scene and r["workers"] == workers]
            by_loader = {
                name: [r for r in here if r["loader"] == name]
                for name in dict.fromkeys(r["loader"] for r in here)
            }
            equal = len({r["sha256"] for r in here}) == 1
            rows += [_row(name, mine, by_loader, equal) for name, mine in by_loader.items()]
    return rows


def _row(
    name: str, mine: Sequence[dict[str, Any]], by_loader: dict[str, Any], equal: bool
) -> dict[str, Any]:
    row = {key: mine[0][key] for key in ("scene", "workers", "loader", "path")}
    for key in ("samples_per_s", "wait_share", "first_batch_ms", "memory_mb"):
        row[key] = statistics.median(r[key] for r in mine)
    row |= {"batches_equal": equal, "ratio": None, "spread": None}
    if name == "millhead" and "torch" in by_loader:
        before = {r["repeat"]: r["samples_per_s"] for r in by_loader["torch"]}
        row["ratio"] = statistics.median(r["samples_per_s"] / before[r["repeat"]] for r in mine)
        row["spread"] = max(before.values()) / min(before.values()) - 1
    return row


# --- what is printed --------------------------------------------------------------------------


def reading(rows: Sequence[dict[str, Any]]) -> str:
    """The result in a sentence, equal where equal and slower where slower."""
    parts = []
    compared = [row for row in rows if row["ratio"] is not None]
    for scene in dict.fromkeys(row["scene"] for row in compared):
        here = [row for row in compared if row["scene"] == scene]
        words = [f"{_words(row)} with {row['workers']} workers" for row in here]
        parts.append(f"{scene}: millhead is {' and '.join(words)}")
    same = all(row["batches_equal"] for row in rows)
    parts.append("all loaders gave equal batches" if same else "THE LOADERS' BATCHES DIFFER")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _too_noisy(row: dict[str, Any]) -> bool:
    """Whether repeats of torch alone differ by more than the two loaders do: then a ratio says
    nothing, and none is shown."""
    margin = row["spread"]
    return margin > NOISY and 1 / (1 + margin) <= row["ratio"] <= 1 + margin


def _words(row: dict[str, Any]) -> str:
    ratio, margin = row["ratio"], max(EQUAL_WITHIN, row["spread"])
    if _too_noisy(row):
        return f"unclear (the machine is too busy: repeats differ by {margin:.0%})"
    if ratio > 1 + margin:
        return f"{ratio:.1f} times as fast as torch" if ratio >= 1.5 else f"faster ({ratio:.2f}x)"
    if ratio < 1 / (1 + margin):
        return f"slower than torch ({ratio:.2f}x)"
    return f"equal to torch ({ratio:.2f}x, repeats agree within {margin:.0%})"


def table(rows: Sequence[dict[str, Any]], bold: Any) -> Iterator[str]:
    """A table per scene."""
    columns = "{:>7}  {:<9} {:>10}  {:>7}  {:>11}  {:>8}  {:<7} {:>8}"
    names = ("workers", "loader", "samples/s", "waiting", "first batch", "memory", "path", "ratio")
    for scene, settings in SCENES.items():
        yield ""
        yield bold(f"{scene}: {settings['title']}")
        yield f"batches of {settings['batch_size']}, a training step of {settings['step_ms']:g} ms"
        yield columns.format(*names).rstrip()
        for row in (r for r in rows if r["scene"] == scene):
            cells = (
                row["workers"],
                row["loader"],
                f"{row['samples_per_s']:,.0f}",
                f"{row['wait_share']:.0%}",
                f"{row['first_batch_ms']:.0f} ms",
                f"{row['memory_mb']:.0f} MB",
                row["path"],
                ""
                if row["ratio"] is None
                else "too busy"
                if _too_noisy(row)
                else f"{row['ratio']:.2f}x",
            )
            yield columns.format(*cells).rstrip()


def show_progress(done: int, total: int, text: str) -> None:
    """One line on a terminal, nothing elsewhere."""
    if sys.stderr.isatty():
        print(
            f"\r\033[K{f'{done}/{total} {text}' if text else ''}",
            end="",
            file=sys.stderr,
            flush=True,
        )


def run_demo(loaders: Sequence[str]) -> list[dict[str, Any]]:
    """Make the data, run everything, tidy up."""
    total = REPEATS * len(SCENES) * len(WORKERS) * len(loaders)
    runs: list[dict[str, Any]] = []
    try:
        with tempfile.TemporaryDirectory(prefix="millhead-demo-") as directory:
            show_progress(0, total, "writing pictures")
            write_pictures(Path(directory))
            show_progress(0, total, "running")
            for run in run_all(Path(directory), loaders):
                runs.append(run)
                what = f"{run['scene']}, {run['workers']} workers, {run['loader']}"
                show_progress(len(runs), total, what)
    finally:
        show_progress(0, total, "")
    return summarise(runs)


def main(argv: Sequence[str] | None = None) -> int:
    """0 when all loaders gave equal batches, 1 when not or when a run failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--loaders", default=",".join(LOADERS), help="default: %(default)s")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.measure:
        print(json.dumps(measure(json.loads(args.measure))))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows = run_demo(args.loaders.split(","))
    if args.json:
        print(json.dumps({"rows": rows, "reading": reading(rows)}, indent=1))
    else:
        plain = "NO_COLOR" in os.environ or not sys.stdout.isatty()
        print("\n".join(table(rows, str if plain else "\033[1m{}\033[0m".format)))
        print(f"\n{reading(rows)}")
        print("waiting: share of the time the training loop waits for a batch; workers are running")
    return 0 if all(row["batches_equal"] for row in rows) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except RuntimeError as error:
        print(f"millhead: {error} (demo): see the message above", file=sys.stderr)
        sys.exit(1)
