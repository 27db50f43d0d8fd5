"""Documents packed into samples by best fit, against the same done in Python."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "helpers"))

import reference_packing as packing
from megatron import write_megatron

STRETCH = 2 << 20  # tokens of uint16 that are packed together
EOS, IGNORED = 7, packing.IGNORED
rng = np.random.default_rng(3)


def documents_of(count: int, longest: int) -> list[np.ndarray]:
    """Each ends with EOS, which comes nowhere else."""
    lengths = np.minimum(rng.geometric(0.02, count), longest)
    return [
        np.append(rng.integers(8, 60000, length - 1), EOS).astype(np.uint16) for length in lengths
    ]


def wanted_of(documents: list[np.ndarray], length: int, pad: int = 0) -> list[dict[str, Any]]:
    line = np.concatenate(documents).astype(np.int64)
    samples = packing.samples_of([len(document) for document in documents], length, STRETCH)
    return [packing.fields_of(sample, line, length, pad) for sample in samples]


def check(batch: dict[str, Any], numbers: list[int], wanted: list[dict[str, Any]]) -> None:
    for place, number in enumerate(numbers):
        assert np.array_equal(batch["x"][place], wanted[number]["x"])
        assert np.array_equal(batch["y"][place], wanted[number]["y"])
        begins = batch["cu_seqlens"][place]
        assert begins.dtype == np.int32
        assert np.array_equal(begins, wanted[number]["cu_seqlens"])


@pytest.mark.parametrize("length", [1, 16, 64, 100, 1000])
@pytest.mark.parametrize("kind", ["bare", "megatron"])
def test_packing_is_best_fit(tmp_path: Path, length: int, kind: str) -> None:
    documents = documents_of(300, 700)
    path = f"tokens:{tmp_path}/data.bin,pack=bestfit,pad=3"
    if kind == "bare":
        np.concatenate(documents).tofile(tmp_path / "data.bin")
        path += f",dtype=uint16,eos={EOS}"
    else:
        write_megatron(tmp_path / "data", documents, 8)
    data = millhead.open(path, window={"token": length}, output="numpy")
    wanted = wanted_of(documents, length, pad=3)
    assert len(data) == len(wanted)
    numbers = list(range(len(data)))
    check(data[numbers], numbers, wanted)


def test_stretches_and_units_are_crossed(tmp_path: Path) -> None:
    documents = documents_of(50_000, 5000)
    documents += [rng.integers(8, 60000, 3 * STRETCH // 2).astype(np.uint16)]
    documents += documents_of(40_000, 300)
    write_megatron(tmp_path / "data", documents, 8)
    wanted = wanted_of(documents, 1024)
    with millhead.Loader(
        f"tokens:{tmp_path}/data.bin,pack=bestfit,as=int32",
        64,
        window={"token": 1024},
        shuffle="blocks",
        fields=["_index", "x", "y", "cu_seqlens"],
        output="numpy",
        memory="64MB",
    ) as loader:
        seen = []
        for batch in loader:
            numbers = batch["_index"].tolist()
            check(batch, numbers, wanted)
            seen += numbers
    assert sorted(seen) == list(range(len(wanted)))
    tokens = sum(map(len, documents))
    assert tokens / (len(wanted) * 1024) > 0.97  # hardly any padding


def test_a_document_that_the_file_ends_is_one_and_files_are_not_mixed(tmp_path: Path) -> None:
    first, second = np.arange(10, 15, dtype="u2"), np.arange(20, 23, dtype="u2")
    first.tofile(tmp_path / "a.bin")
    second.tofile(tmp_path / "b.bin")
    paths = [f"tokens:{tmp_path}/{name}.bin,dtype=uint16,pack=bestfit,eos={EOS}" for name in "ab"]
    batch = millhead.open(paths, window={"token": 8}, output="numpy")[[0, 1]]
    assert batch["x"].tolist() == [[10, 11, 12, 13, 14, 0, 0, 0], [20, 21, 22, 0, 0, 0, 0, 0]]
    assert batch["y"][1].tolist() == [21, 22, *[IGNORED] * 6]
    assert batch["cu_seqlens"][0].tolist() == [0, 5, 8]


@pytest.mark.parametrize("threads", [0, 2])
def test_ranks_and_resume_deliver_every_sample_once(tmp_path: Path, threads: int) -> None:
    documents = documents_of(2000, 300)
    write_megatron(tmp_path / "data", documents, 8)
    seen: list[int] = []

    def loader(rank: int, world: int) -> millhead.Loader:
        return millhead.Loader(
            f"tokens:{tmp_path}/data.bin,pack=bestfit",
            5,
            window={"token": 128},
            shuffle=True,
            uneven=True,
            rank=rank,
            world=world,
            threads=threads,
            fields=["_index", "x"],
            output="numpy",
        )

    for rank in range(2):
        with loader(rank, 2) as first:
            iterator = iter(first)
            for _ in range(4):
                seen += next(iterator)["_index"].tolist()
            state = first.state_dict()
    for rank in range(3):
        with loader(rank, 3) as rest:
            rest.load_state_dict(state)
            for batch in rest:
                seen += batch["_index"].tolist()
    assert sorted(seen) == list(range(len(wanted_of(documents, 128))))


@pytest.mark.parametrize(
    ("parts", "options", "words"),
    [
        ("pack=bestfit", {}, "where do documents end"),
        ("pack=bestfit,eos=1", {"stride": {"token": 1}}, "take no stride"),
        ("pack=bestfit,eos=1,as=uint16", {}, "give as=int32"),
        ("pack=firstfit", {}, "'pack=firstfit' is not part"),
        ("pack=bestfit,eos=x", {}, "'eos=x' is not part"),
        ("pack=bestfit,eos=1", {"window": None}, "how long are samples"),
        ("pack=bestfit,eos=1", {"window": {"token": 3 << 20}}, "too long to be packed"),
    ],
)
def test_mistakes_are_named(
    tmp_path: Path, parts: str, options: dict[str, Any], words: str
) -> None:
    np.arange(10, dtype=np.uint16).tofile(tmp_path / "train.bin")
    with pytest.raises(ValueError, match=words):
        millhead.open(
            f"tokens:{tmp_path}/train.bin,dtype=uint16,{parts}",
            **({"window": {"token": 4}} | options),
        )


def test_another_packing_is_another_dataset(tmp_path: Path) -> None:
    write_megatron(tmp_path / "data", documents_of(50, 90), 8)
    states = []
    for text in ("pack=bestfit", "pack=bestfit,pad=1", "pack=bestfit,as=int32"):
        with millhead.Loader(
            f"tokens:{tmp_path}/data.bin,{text}", window={"token": 64}, output="numpy"
        ) as loader:
            states.append(loader.state_dict()["fingerprint"])
    assert len(set(states)) == 3
