"""Loops over the native loader, watched: what they waited for, in the loader's own terms."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import millhead

COMMAND = os.path.join(sysconfig.get_path("scripts"), "millhead")

LOOP = """
import sys, time
import torch
import millhead
loader = millhead.Loader(sys.argv[1], 8, simulate=sys.argv[2] or None, threads=1)
for batch in loader:
    time.sleep(0.002)
"""


def verdict(data: str, step_s: float = 0.002, **options: Any) -> dict[str, Any]:
    with millhead.Loader(data, 8, threads=1, **options) as loader:
        watched = millhead.watch(loader)
        for _ in watched:
            time.sleep(step_s)
        return watched.verdict()


def test_a_slow_link_asks_for_reads_in_flight() -> None:
    found = verdict("synthetic:count=800,shape=10", simulate="latency=20ms")
    assert found["cause"] == "latency-bound", found
    assert found["fix_settings"]["in_flight"] > 16
    assert found["predicted_gain"] > 1.5
    assert any(" in flight give at most " in line for line in found["evidence"]), found["evidence"]


def test_a_loop_that_keeps_up_is_healthy() -> None:
    assert verdict("synthetic:count=800,shape=10", step_s=0.02)["cause"] == "device-bound"


def test_doctor_sees_the_native_loader_of_a_program(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(LOOP)
    arguments = [sys.executable, str(program), "synthetic:count=800,shape=10", "latency=20ms"]
    done = subprocess.run(
        [COMMAND, "doctor", "--json", "--", *arguments],
        capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert found["cause"] == "latency-bound", found
    assert found["fix_settings"]["in_flight"] > 16


def test_the_gain_is_called_a_bound(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(LOOP)
    arguments = [sys.executable, str(program), "synthetic:count=800,shape=10", "latency=20ms"]
    done = subprocess.run(
        [COMMAND, "doctor", "-o", str(tmp_path / "run"), "--", *arguments],
        capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
    )  # fmt: skip
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert "  at most " in text and "expected: " not in text
