"""Loops over the native loader, watched: what they waited for, in the loader's own terms."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import millhead
import millhead.report
import numpy as np
import pytest
from helpers.fault_server import fault_server

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


def test_slow_decoding_asks_for_threads_and_says_what_was_waited_for() -> None:
    found = verdict("synthetic:count=800,shape=10,chunk=4,burn=6ms", shuffle=True)
    stages = found["stages"]
    assert found["cause"] == "cpu-bound", found
    assert stages["wait_decode"] > 0.5 and stages["wait_decode"] > 5 * stages["wait_read"]
    assert stages["wait_other"] < 0.1


def test_a_slow_link_is_waited_for_while_reading() -> None:
    stages = verdict("synthetic:count=800,shape=10", simulate="latency=20ms")["stages"]
    assert stages["wait_read"] > 0.5 and stages["wait_read"] > 5 * stages["wait_decode"]


def test_a_slow_map_is_named() -> None:
    def slow(batch: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.01)
        return batch

    found = verdict("synthetic:count=400,shape=10", map=slow)
    assert found["cause"] == "main-bound", found
    assert found["stages"]["wait_map"] > 0.5
    assert any("map= takes " in line for line in found["evidence"]), found["evidence"]


def watched_run(directory: Path, threads: int) -> list[dict[str, Any]]:
    """The events of a loop over a slow link, its last batch included."""
    data = "synthetic:count=800,shape=10,chunk=4,burn=1ms"
    with millhead.Loader(data, 8, threads=threads, simulate="latency=5ms") as loader:
        watched = millhead.watch(loader, run=directory)
        for _ in watched:
            time.sleep(0.001)
        watched.close()
    return [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("threads", [0, 2])
def test_a_run_holds_what_every_thread_did(tmp_path: Path, threads: int) -> None:
    events = watched_run(tmp_path / "run", threads)
    kinds = {kind: [e for e in events if e["event"] == kind] for kind in ("decode", "storage")}
    (sums,) = (e for e in events if e["event"] == "stages")
    assert sum(e["tasks"] for e in kinds["decode"]) >= 200
    assert {e["worker"] for e in kinds["decode"]} <= set(range(max(1, threads)))
    assert {e["worker"] for e in kinds["storage"]} == {-1}
    assert sum(e["tasks"] for e in kinds["storage"]) >= 190
    begin = min(e["t"] for e in events if e["event"] == "setup") - 50_000_000
    end = max(e["t"] + e.get("ns", 0) for e in events if e["event"] == "epoch")
    assert all(begin < e["t"] and e["t"] + e["ns"] <= end + 10_000_000 for e in kinds["decode"])
    assert sums["threads"] == threads and sums["bytes"] > 0


def test_the_report_has_a_row_for_every_thread(tmp_path: Path) -> None:
    watched_run(tmp_path / "run", 2)
    page = millhead.report.make(tmp_path / "run")
    data = json.loads(page.split('id="data">', 1)[1].split("</script>", 1)[0])
    (run,) = data["runs"]
    assert run["loader"]["kind"] == "native" and run["timeline"]["rows"] == 2
    lanes = {(lane["kind"], lane["worker"]) for lane in run["timeline"]["lanes"]}
    assert {("decode", 0), ("decode", 1), ("storage", -1), ("wait", -1), ("train", -1)} <= lanes
    stages = {stage["name"]: stage for stage in run["stages"]}
    assert stages["decode"]["count"] >= 200 and stages["decode"]["of_workers"]
    assert 0.0005 < stages["decode"]["mean_s"] < 0.1


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


def watched_remote(address: str, cache: Path | None, run: Path) -> tuple[dict[str, Any], Path]:
    with millhead.Loader(f"{address}/x.npy", 8, cache=cache, in_flight=1, output="numpy") as loader:
        watched = millhead.watch(loader, run=run)
        for _ in range(2):
            for _ in watched:
                time.sleep(0.0005)
        found = watched.verdict()
        watched.close()
    return found, run


def test_a_cache_is_named_for_data_behind_a_url(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.save(file, np.zeros((400, 200_000), np.uint8))
    with fault_server({"/x.npy": file.getvalue()}) as server:
        server.latency_s = 0.01
        found, run = watched_remote(server.address, None, tmp_path / "uncached")
        assert found["cause"] == "latency-bound", found
        assert "cache=" in found["fix"] and "second epoch" in found["fix"]
        stages = [line for line in events_of(run) if line["event"] == "stages"]
        assert sum(line["requests"] for line in stages) >= 90  # some were before it was watched
        assert sum(line["cache_misses"] for line in stages) == 0
        found, run = watched_remote(server.address, tmp_path / "cache", tmp_path / "cached")
        stages = [line for line in events_of(run) if line["event"] == "stages"]
        # the first two batches may have been read before the loader was watched
        assert 400 - 2 * 8 <= sum(line["cache_misses"] for line in stages) <= 400
        hits = sum(line["cache_hits"] for line in stages)
        assert hits >= 400
        assert sum(line["cache_bytes"] for line in stages) == hits * 200_000


def events_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
