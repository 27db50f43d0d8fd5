"""``millhead plan whatif``: what a measured run would do with other settings, against doing it."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import millhead
import millhead.torch
import pytest
from helpers.command import COMMAND
from millhead.data import Dummy
from torch.utils.data import DataLoader


def whatif(run: Path, *arguments: str) -> dict[str, Any]:
    """The plan for a run."""
    command = [COMMAND, "plan", "whatif", str(run), "--json", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    plan: dict[str, Any] = json.loads(done.stdout)
    return plan


def measure(run: Path, loader: type[DataLoader[Any]], workers: int) -> Path:
    """A run of 40 batches that wait 60 ms each, in a loop whose steps take 2 ms."""
    dataset: Any = Dummy(length=160, shape=(8,), latency=0.015, tensors=True)
    for _batch in millhead.watch(loader(dataset, batch_size=4, num_workers=workers), run=str(run)):
        time.sleep(0.002)
    return run


@pytest.mark.parametrize("loader", [DataLoader, millhead.torch.DataLoader])
def test_more_workers_are_foreseen(tmp_path: Path, loader: type[DataLoader[Any]]) -> None:
    one = measure(tmp_path / "one", loader, 1)
    foreseen = whatif(one, "--workers", "3")
    then = whatif(measure(tmp_path / "three", loader, 3))["measured"]
    assert foreseen["measured"]["workers"] == 1
    assert foreseen["asked"]["workers"] == then["workers"] == 3
    assert foreseen["asked"]["samples_per_s"] > foreseen["measured"]["samples_per_s"]
    assert then["samples_per_s"] > foreseen["measured"]["samples_per_s"]
    assert foreseen["asked"]["wait_share"] < foreseen["measured"]["wait_share"]
    # samples that only wait: what was planted is what is counted
    assert foreseen["making_blocked_s"] > 0.045
    assert foreseen["making_blocked_s"] > foreseen["making_cpu_s"]
    assert foreseen["needed"]["workers"] > 3


def test_fewer_workers_are_enough_for_a_slow_step(tmp_path: Path) -> None:
    run = measure(tmp_path / "run", DataLoader, 3)
    assert whatif(run, "--step", "60")["needed"]["workers"] == 0
    quick = whatif(run, "--step", "0.002", "--cpus", "64")["needed"]["workers"]
    slow = whatif(run, "--step", "0.02", "--cpus", "64")["needed"]["workers"]
    assert 1 <= slow < quick


@pytest.mark.parametrize("loader", [DataLoader, millhead.torch.DataLoader])
def test_memory_is_planned_from_the_batches_that_were(
    tmp_path: Path, loader: type[DataLoader[Any]]
) -> None:
    run = measure(tmp_path / "run", loader, 1)
    sample = measured_bytes(run) // 4
    assert sample == 8 * 4  # of float32
    plan = whatif(run, "--workers", "3", "--prefetch", "4", "--gpus", "2", "--batch-size", "8")
    assert plan["measured"]["memory_bytes"] == (1 * 2 + 3) * 4 * sample
    assert plan["asked"]["memory_bytes"] == 2 * (3 * 4 + 3) * 8 * sample
    rate = plan["asked"]["samples_per_s"] * sample
    assert plan["asked"]["delivered_bytes_per_s"] == pytest.approx(rate, rel=0.01)
    given = whatif(run, "--batch-bytes", "1000")
    assert given["measured"]["memory_bytes"] == (1 * 2 + 3) * 1000


def measured_bytes(run: Path) -> int:
    """The bytes of a batch as the events tell them: of batches 0, 1, 2, 4, 8 and so on."""
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    told = {line["batch"]: line["bytes"] for line in lines if "bytes" in line}
    assert sorted(told) == [0, 1, 2, 4, 8, 16, 32]
    assert len(set(told.values())) == 1
    return int(told[0])


def test_what_tells_nothing_of_workers_is_refused(tmp_path: Path) -> None:
    for _batch in millhead.watch([1, 2, 3], run=str(tmp_path / "bare")):
        pass
    (tmp_path / "empty").mkdir()
    for name, why in (("bare", "only how long the loop waited"), ("empty", ""), ("none", "")):
        command = [COMMAND, "plan", "whatif", str(tmp_path / name)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert not done.stdout
        assert done.stderr.startswith("millhead: ")
        assert why in done.stderr
        assert done.stderr.count("\n") == 1
