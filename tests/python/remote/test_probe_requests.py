"""`millhead probe URL` with several requests at a time, as loaders make them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from helpers import servers
from helpers.command import COMMAND
from helpers.fault_server import fault_server

DATA = np.random.default_rng(1).bytes(20_000_000)


def probe(address: str, *options: str, **environment: str) -> dict[str, Any]:
    settings = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [COMMAND, "probe", address, "--json", "--seconds", "4", *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**settings, "AWS_EC2_METADATA_DISABLED": "true", **environment},
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def tiers(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {tier["name"]: tier for tier in found["tiers"]}


def test_a_far_server_is_worth_many_requests_at_a_time() -> None:
    with fault_server({"/x.bin": DATA}) as server:
        server.latency_s = 0.05
        found = probe(f"{server.address}/x.bin")
        most = server.under_way_most
    tier = tiers(found)["network requests"]
    assert found["in_flight"] >= 4 and most >= 16
    assert tier["latency_us"] >= 50_000
    assert tier["mb_per_s"] > 2 * tiers(found)["network random"]["mb_per_s"]
    assert f"{found['in_flight']} at a time" in tier["how"]


def test_an_object_of_s3_is_measured(tmp_path: Path) -> None:
    bucket = tmp_path / "data" / "bucket"
    bucket.mkdir(parents=True)
    (bucket / "x.bin").write_bytes(DATA)
    with servers.s3(bucket.parent) as address:
        found = probe(
            "s3://bucket/x.bin",
            f"--storage=endpoint_url={address}",
            AWS_ACCESS_KEY_ID=servers.KEY,
            AWS_SECRET_ACCESS_KEY=servers.SECRET,
        )
    names = ["memory copy", "network sequential", "network random", "network requests"]
    assert list(tiers(found))[:4] == names
    assert all(tiers(found)[name]["mb_per_s"] > 0 for name in names)
    assert found["network"].startswith("s3") and found["file"] == "s3://bucket/x.bin"
    assert found["bytes"] == len(DATA)


def test_a_server_without_ranges_is_not_asked_for_parts() -> None:
    with fault_server({"/x.bin": DATA}, lambda number, path: "whole") as server:
        found = probe(f"{server.address}/x.bin")
    assert "in_flight" not in found and "network requests" not in tiers(found)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with fault_server({"/x.bin": DATA}) as server:
        done = subprocess.run(
            [COMMAND, "probe", "s3://bucket/y.bin"]
            + [f"--storage=endpoint_url={server.address},anon=true"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "s3://bucket/y.bin" in done.stderr
