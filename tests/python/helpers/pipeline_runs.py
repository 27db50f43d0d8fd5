"""Runs build/tests/unit/run_pipeline, and compares what it gives with tests/reference_ops.py."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))

import reference_ops

PROGRAM = ROOT / "build" / "tests" / "unit" / "run_pipeline"
FILTERS = list(reference_ops.FILTERS)
DTYPES = {"1.8": np.uint8, "2.16": np.float16, "4.16": np.uint16, "2.32": np.float32}


@dataclass
class Made:
    """What came of one job: values, or an error."""

    array: np.ndarray | None
    ragged: bool
    error: str


def run(
    text: str,
    jobs: list[tuple[int, str, Path]],
    *,
    profile: str = "exact",
    kernels: str = "best",
    seed: int = 0,
    epoch: int = 0,
) -> list[Made]:
    """Results of (position, field, path), in order."""
    lines = "".join(f"{position} {name} {path}\n" for position, name, path in jobs)
    done = subprocess.run(
        [PROGRAM, text, profile, kernels, str(seed), str(epoch)],
        input=lines.encode(),
        capture_output=True,
        timeout=240,
        check=False,
    )
    if done.returncode == 2:
        raise ValueError(done.stdout.decode().strip())
    assert done.returncode == 0, done.stderr.decode()
    made, at = [], 0
    for _ in jobs:
        line = done.stdout.index(b"\n", at)
        head, at = done.stdout[at:line], line + 1
        words = head.decode().split()
        if words[0] != "ok":
            made.append(Made(None, False, head.decode()))
            continue
        dtype, shape, size = DTYPES[words[1]], [int(n) for n in words[3:-1]], int(words[-1])
        array = np.frombuffer(done.stdout[at : at + size], dtype).reshape(shape)
        at += size
        made.append(Made(array, words[2] == "1", ""))
    assert at == len(done.stdout)
    return made


def different(text: str, jobs: list[tuple[int, str, Path]], **options: object) -> list[str]:
    """Jobs whose values are not the reference's, each as a line."""
    seed, epoch = int(str(options.get("seed", 0))), int(str(options.get("epoch", 0)))
    plans = reference_ops.parse(text)
    problems = []
    for job, made in zip(jobs, run(text, jobs, **options), strict=True):  # type: ignore[arg-type]
        position, name, path = job
        expected = reference_ops.apply(
            plans.get(name, []), path, reference_ops.Draws(seed, epoch, position)
        )
        place = f"{text} ({path.name}, seed {seed}, epoch {epoch}, position {position})"
        if made.array is None:
            problems.append(f"{place}: {made.error}")
        elif made.array.shape != expected.shape or made.array.dtype != expected.dtype:
            problems.append(
                f"{place}: {made.array.shape} {made.array.dtype}, "
                f"not {expected.shape} {expected.dtype}"
            )
        elif not np.array_equal(made.array, expected):
            wrong = made.array != expected
            problems.append(f"{place}: {wrong.sum()} of {wrong.size} values differ")
    return problems
