"""Token files: bare, Megatron's and NumPy's, against NumPy."""

import sys
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "helpers"))

from megatron import write_megatron

UNIT_TOKENS = 2 << 20  # of uint16: what is read at a time
rng = np.random.default_rng(7)


def loaded(data: Any, **options: Any) -> dict[str, np.ndarray]:
    """All samples in order."""
    with millhead.Loader(data, 16, output="numpy", **options) as loader:
        batches = list(loader)
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def windows(tokens: np.ndarray, size: int, stride: int) -> np.ndarray:
    """Of size + 1 tokens each, as nanoGPT cuts them."""
    return np.lib.stride_tricks.sliding_window_view(tokens, size + 1)[::stride]


def test_a_folder_of_megatrons_files_is_one_line_of_tokens(tmp_path: Path) -> None:
    tokens = rng.integers(0, 50000, 5000).astype("uint16")
    write_megatron(tmp_path / "a", [tokens[:2000]], 8)
    write_megatron(tmp_path / "b", [tokens[2000:]], 8)
    found = loaded(tmp_path, window={"token": 64}, stride={"token": 17})
    assert np.array_equal(found["x"], windows(tokens, 64, 17)[:, :-1])
    with pytest.raises(ValueError, match="how long are windows"):
        millhead.open(tmp_path)
    for index in tmp_path.glob("*.idx"):
        index.unlink()
    assert "bytes" in millhead.open(tmp_path).fields  # any files that are called .bin


@pytest.mark.parametrize("stored", ["uint16", "uint32", "int32"])
@pytest.mark.parametrize("delivered", [None, "int32", "int64", "uint16"])
def test_windows_are_what_numpy_cuts(tmp_path: Path, stored: str, delivered: str | None) -> None:
    tokens = rng.integers(0, 50000, 5000).astype(stored)
    tokens.tofile(tmp_path / "train.bin")
    text = f"tokens:{tmp_path}/train.bin,dtype={stored}" + (f",as={delivered}" if delivered else "")
    found = loaded(text, window={"token": 64}, stride={"token": 17})
    wanted = windows(tokens, 64, 17).astype(delivered or "int64")
    assert set(found) == {"x", "y"}
    assert found["x"].dtype == found["y"].dtype == np.dtype(delivered or "int64")
    assert np.array_equal(found["x"], wanted[:, :-1])
    assert np.array_equal(found["y"], wanted[:, 1:])


def test_one_field_holds_x_and_y(tmp_path: Path) -> None:
    tokens = rng.integers(0, 50000, 500).astype(np.uint16)
    tokens.tofile(tmp_path / "train.bin")
    text = f"tokens:{tmp_path}/train.bin,dtype=uint16,as=uint16"
    found = loaded(text, window={"token": 9}, stride={"token": 1}, fields=["tokens"])
    assert np.array_equal(found["tokens"], windows(tokens, 9, 1))


def test_windows_go_over_the_ends_of_units_and_files(tmp_path: Path) -> None:
    parts = [
        rng.integers(0, 60000, size).astype(np.uint16) for size in (UNIT_TOKENS + 700, 5, 1, 3000)
    ]
    for number, part in enumerate(parts):
        part.tofile(tmp_path / f"{number}.bin")
    texts = [f"tokens:{tmp_path}/{number}.bin,dtype=uint16" for number in range(len(parts))]
    first = UNIT_TOKENS - 2000
    found = loaded(
        texts,
        window={"token": 1000},
        stride={"token": 333},
        select={"token": slice(first, None)},
        shuffle=False,
    )
    wanted = windows(np.concatenate(parts)[first:], 1000, 333)
    assert np.array_equal(found["x"], wanted[:, :-1])
    assert np.array_equal(found["y"], wanted[:, 1:])


def test_npy_of_one_dimension(tmp_path: Path) -> None:
    tokens = rng.integers(0, 2**31, 900).astype(np.int64)
    np.save(tmp_path / "train.npy", tokens)
    found = loaded(f"tokens:{tmp_path}/train.npy", window={"token": 100})
    assert np.array_equal(found["x"], windows(tokens, 100, 100)[:, :-1])
    np.save(tmp_path / "square.npy", tokens.reshape(30, 30))
    with pytest.raises(millhead.Error, match=r"square\.npy is not one dimension"):
        millhead.open(f"tokens:{tmp_path}/square.npy", window={"token": 10})


@pytest.mark.parametrize("name", ["data.bin", "data.idx", "tokens:data"])
def test_megatron_files(tmp_path: Path, name: str) -> None:
    documents = [rng.integers(0, 60000, size).astype(np.uint16) for size in (5, 100, 1, 400)]
    write_megatron(tmp_path / "data", documents, 8)
    path = name.replace("data", f"{tmp_path}/data")
    found = loaded(path, window={"token": 50}, stride={"token": 10})
    assert np.array_equal(found["x"], windows(np.concatenate(documents), 50, 10)[:, :-1])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda index: index[:20], "does not begin"),
        (lambda index: index[:-3], "too few"),
        (lambda index: index + b"xyz12", "5 bytes too many"),
        (lambda index: index[:9] + b"\2" + index[10:], "version 2"),
        (lambda index: index[:17] + b"\7" + index[18:], "dtype 7"),
        (lambda index: index[:34] + b"\6" + index[35:], "begins at byte 10"),
        (lambda index: index[:34] + b"\5\0\0\x80" + index[38:], "negative length"),
        (lambda index: index[:18] + b"\xff" * 8 + index[26:], "too few"),
        (lambda index: index[:-1] + b"\x7f", "document 4"),
    ],
)
def test_an_index_that_lies_is_refused(tmp_path: Path, change: Any, words: str) -> None:
    documents = [rng.integers(0, 60000, size).astype(np.uint16) for size in (5, 100, 1, 400)]
    write_megatron(tmp_path / "data", documents, 8)
    index = tmp_path / "data.idx"
    index.write_bytes(change(index.read_bytes()))
    with pytest.raises(millhead.Error, match=rf"data\.idx.*{words}"):
        millhead.open(tmp_path / "data.bin", window={"token": 8})


def test_an_index_of_another_bin_is_refused(tmp_path: Path) -> None:
    write_megatron(tmp_path / "data", [np.arange(9, dtype=np.uint16)], 8)
    (tmp_path / "data.bin").write_bytes(b"1234")
    with pytest.raises(millhead.Error, match="beyond the 4 bytes"):
        millhead.open(tmp_path / "data.bin", window={"token": 1})


@pytest.mark.parametrize(
    ("text", "options", "kind", "words"),
    [
        ("tokens:{}", {}, ValueError, "how long are windows"),
        ("{}", {"window": {"token": 4}}, ValueError, "does not say what its tokens are"),
        ("tokens:{},dtype=float32", {"window": {"token": 4}}, ValueError, "dtype=float32"),
        ("tokens:{},dtype=uint16", {"window": {"tokens": 4}}, ValueError, "did you mean 'token'"),
        ("tokens:{},dtype=uint16", {"window": {"token": 99}}, ValueError, "larger than the 10"),
        ("tokens:{},dtype=uint16", {"window": {"token": 10}}, ValueError, "leaves no window"),
        (
            "tokens:{},dtype=int64",
            {"window": {"token": 4}},
            millhead.Error,
            "whole number of int64",
        ),
    ],
)
def test_mistakes_are_named(
    tmp_path: Path, text: str, options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    path = tmp_path / "train.bin"
    np.arange(10, dtype=np.uint16).tofile(path)
    if not options:
        text += ",dtype=uint16"
    with pytest.raises(kind, match=words):
        millhead.open(text.format(path), **options)


@pytest.mark.parametrize("shuffle", [True, "blocks"])
def test_shuffles_deliver_each_window_once(tmp_path: Path, shuffle: bool | str) -> None:
    tokens = rng.integers(0, 60000, UNIT_TOKENS * 2).astype(np.uint16)
    tokens.tofile(tmp_path / "train.bin")
    text = f"tokens:{tmp_path}/train.bin,dtype=uint16,as=uint16"
    found = loaded(text, window={"token": 4000}, shuffle=shuffle, fields=["_index", "tokens"])
    wanted = windows(tokens, 4000, 4000)
    assert sorted(found["_index"]) == list(range(len(wanted)))
    assert list(found["_index"]) != sorted(found["_index"])
    assert np.array_equal(found["tokens"], wanted[found["_index"]])
