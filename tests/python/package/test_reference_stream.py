"""`millhead read --hash` against a stream made without millhead's C (tests/reference_stream.py)."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

from megatron import write_megatron

COMMAND = os.path.join(sysconfig.get_path("scripts"), "millhead")
REFERENCE = Path(__file__).resolve().parents[2] / "reference_stream.py"
DTYPES = ["float32", "float64", "float16", "uint8", "int16", "bool", "complex64", "S5", "<M8[s]"]


def _hashes(*command: object) -> dict[str, str]:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, timeout=120
    )
    if "made without xxhash" in done.stderr:
        pytest.skip("millhead was built without xxhash")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    return {name: said[name] for name in ("stream_xxh3", "samples_xxh3")}


def _data(directory: Path, draw: random.Random) -> list[Path]:
    """A few arrays of random types and shapes, as many samples in each."""
    count = draw.choice([1, 2, 10, 97, draw.randint(100, 1500)])
    paths = []
    for name in draw.sample(["b", "a", "Z", "image", "label", "é"], draw.randint(1, 4)):
        shape = (count, *draw.choices([1, 2, 3, 5], k=draw.randrange(4)))
        dtype = np.dtype(draw.choice(DTYPES))
        size = int(np.prod(shape)) * dtype.itemsize
        # bytes of ASCII are good for every type; booleans have to be 0 or 1
        content = bytes(draw.choices(range(2 if dtype == bool else 128), k=size))
        paths.append(directory / f"{name}.npy")
        np.save(paths[-1], np.frombuffer(content, dtype).reshape(shape))
    return paths


def _settings(paths: list[Path], draw: random.Random) -> list[object]:
    count = len(np.load(paths[0]))
    world = draw.randint(1, 5)
    settings: list[object] = ["--batch-size", draw.randint(1, 40), "--seed", draw.getrandbits(64)]
    settings += ["--world", world, "--rank", draw.randrange(world), "--epoch", draw.randrange(5)]
    settings += draw.choice([[], ["--drop-last"], ["--uneven"]])
    settings += draw.choice([[], ["--start", draw.randint(0, count)]])
    settings += draw.choice([[], ["--limit-batches", draw.randint(1, 20)]])
    if draw.random() < 0.5:
        names = [path.stem for path in draw.sample(paths, draw.randint(1, len(paths)))]
        settings += ["--fields", ",".join(names)]
    return settings


@pytest.mark.parametrize("shuffle", [[], ["--shuffle"], ["--shuffle=torch"]], ids=str)
@pytest.mark.parametrize("trial", range(4))
def test_the_stream_is_that_of_the_reference(
    tmp_path: Path, shuffle: list[str], trial: int
) -> None:
    seed = random.randrange(10**9)
    draw = random.Random(seed)
    paths = _data(tmp_path, draw)
    settings = [*paths, *_settings(paths, draw), *shuffle]
    how = ["--threads", draw.randrange(4), "--prefetch", draw.randint(1, 4)]
    ours = _hashes(COMMAND, "read", *settings, *how, "--hash", "--json")
    reference = _hashes(sys.executable, REFERENCE, *settings)
    assert ours == reference, f"seed {seed}: {settings}"


@pytest.mark.parametrize("trial", range(6))
def test_blocks_and_tokens_are_those_of_the_reference(tmp_path: Path, trial: int) -> None:
    seed = random.randrange(10**9)
    draw = random.Random(seed)
    world = draw.randint(1, 8)
    settings: list[object] = [f"synthetic:count={draw.randint(1, 900)},shape=5,chunk=20,seed=3"]
    shuffles = ["--shuffle=blocks"]
    if trial % 2:
        tokens = np.random.default_rng(seed).integers(0, 60000, draw.randint(500, 5_000_000))
        tokens.astype(np.uint16).tofile(tmp_path / "train.bin")
        window = draw.randint(1, 400)
        settings = [f"tokens:{tmp_path}/train.bin,dtype=uint16", "--window", f"token={window}"]
        settings += ["--stride", f"token={draw.randint(5000, 9000)}"]
        shuffles += ["--shuffle"]
    settings += ["--batch-size", draw.randint(1, 40), "--seed", draw.getrandbits(64)]
    settings += ["--world", world, "--rank", draw.randrange(world), "--epoch", draw.randrange(5)]
    settings += draw.choice([[], ["--drop-last"], ["--uneven"]])
    settings += [draw.choice(shuffles)]
    ours = _hashes(COMMAND, "read", *settings, "--threads", draw.randrange(3), "--hash", "--json")
    reference = _hashes(sys.executable, REFERENCE, *settings)
    assert ours == reference, f"seed {seed}: {settings}"


@pytest.mark.parametrize("kind", ["bare", "two files", "megatron"])
@pytest.mark.parametrize("shuffle", [[], ["--shuffle"], ["--shuffle=blocks"]], ids=str)
def test_packed_documents_are_those_of_the_reference(
    tmp_path: Path, kind: str, shuffle: list[str]
) -> None:
    seed = random.randrange(10**9)
    numbers = np.random.default_rng(seed)
    draw = random.Random(seed)
    window = draw.choice([16, 100, 2048])
    lengths = numbers.integers(1, 700, draw.randint(1, 12_000)).tolist()
    documents = [numbers.integers(8, 60000, length).astype(np.uint16) for length in lengths]
    paths = [f"tokens:{tmp_path}/a.bin,pack=bestfit,pad=5,as=int32"]
    if kind == "megatron":
        write_megatron(tmp_path / "a", documents, 8)
    else:
        for document in documents:
            document[-1] = 7
        np.concatenate(documents).tofile(tmp_path / "a.bin")
        paths = [f"{paths[0]},dtype=uint16,eos=7"]
    if kind == "two files":
        numbers.integers(0, 500, 30_000).astype(np.uint16).tofile(tmp_path / "b.bin")
        paths.append(paths[0].replace("a.bin", "b.bin"))
    settings = [*paths, "--window", f"token={window}", "--seed", seed, *shuffle]
    settings += ["--batch-size", draw.randint(1, 40), "--world", 3, "--rank", draw.randrange(3)]
    settings += draw.choice([[], ["--fields", "x,cu_seqlens"], ["--uneven"], ["--start", "3"]])
    ours = _hashes(COMMAND, "read", *settings, "--threads", draw.randrange(3), "--hash", "--json")
    reference = _hashes(sys.executable, REFERENCE, *settings)
    assert ours == reference, f"seed {seed}: {settings}"
