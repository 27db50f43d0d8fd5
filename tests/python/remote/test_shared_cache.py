"""Ranks of one node that share a cache: the server's own log says what they asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import zarr
from helpers import servers

CHUNKS, BYTES, EPOCHS = 80, 3000, 3

#: One rank; it says what it read in an epoch, and waits for a line before the next one.
RANK = """
import hashlib, json, sys, millhead
address, cache, rank = sys.argv[1:]
with millhead.Loader(
    address, 4, window={"y": 2, "x": 3000}, decode=None, shuffle=True, output="numpy", fields=["x", "_index"],
    rank=int(rank), world=2, cache=cache, in_flight=8,
) as loader:
    while sys.stdin.readline():
        read = {}
        for batch in loader:
            for number, x in zip(batch["_index"], batch["x"]):
                read[int(number)] = hashlib.md5(x.tobytes()).hexdigest()
        requests = loader.stats()["requests"]
        print(json.dumps([read, requests["hedged"] + requests["retried"]]), flush=True)
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    group = zarr.create_group(root / "x.zarr", zarr_format=2)
    array = group.create_array(
        "x", shape=(CHUNKS, BYTES), chunks=(1, BYTES), dtype="u1", compressors=None
    )
    array.attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]
    array[...] = np.random.default_rng(3).integers(1, 255, (CHUNKS, BYTES), dtype=np.uint8)
    zarr.consolidate_metadata(root / "x.zarr", zarr_format=2)
    return root


@pytest.mark.limit(120)
def test_two_ranks_fetch_each_object_once_in_all_epochs(files: Path, tmp_path: Path) -> None:
    read: list[list[dict[str, str]]] = []  # by epoch and rank: sample -> hash of its bytes
    with servers.nginx(tmp_path, files) as address, ExitStack() as stack:
        ranks = []
        for number in range(2):
            command = [sys.executable, "-c", RANK, f"{address}/x.zarr", f"{tmp_path}/cache:1GB"]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            ranks.append(stack.enter_context(subprocess.Popen([*command, str(number)], **pipes)))
        for _ in range(EPOCHS):
            for rank in ranks:
                rank.stdin.write("go\n")
                rank.stdin.flush()
            said = [json.loads(rank.stdout.readline()) for rank in ranks]
            read.append([samples for samples, _ in said])
        for rank in ranks:
            rank.stdin.close()
    again = sum(count for _, count in said)  # slow answers are asked for a second time
    lines = (tmp_path / "access").read_text().splitlines()
    asked = Counter(line.split()[1] for line in lines if line.split()[1].endswith(".0"))
    assert len(asked) == CHUNKS
    assert asked.total() <= CHUNKS + again and again <= CHUNKS // 10
    for first, second in read:
        assert len(first) == len(second) == CHUNKS // 4 and not set(first) & set(second)
        assert {**first, **second} == {**read[0][0], **read[0][1]}
    assert set(read[0][0]) & set(read[1][1])  # what one rank fetched the other read, too
