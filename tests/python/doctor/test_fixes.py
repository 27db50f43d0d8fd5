"""Every setting that a verdict's fix names is one that can be set as it is written there."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array
import millhead
import millhead.torch
import numpy as np
import pytest
import torch
from millhead.data import Dummy
from PIL import Image
from torch.utils.data import DataLoader

SOURCES = Path(__file__).resolve().parents[3] / "src" / "diagnose"
#: Where the texts of fixes are made.
FILES = ("fixes.c", "verdict_native.c", "verdict_outside.c", "warnings.c", "recipes.c")
#: Variables of the environment, which others read.
VARIABLES = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}

_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
#: Calls that are written out, "..." for what the program passes already.
_CALL = re.compile(r"millhead\.torch\.DataLoader\(\.\.\., (.*?)\)[:;]")
_SETTING = re.compile(r"\b([A-Za-z_]{3,})=(True|False|\d+|%d|\"[a-z]+\")")


def _texts() -> list[str]:
    """The strings of the sources, as they are shown."""
    texts: list[str] = []
    for file in FILES:
        joined = re.sub(r'"\s*\n\s*"', "", (SOURCES / file).read_text())
        texts += [literal.replace('\\"', '"') for literal in _LITERAL.findall(joined)]
    return texts


def _named() -> set[tuple[str, str]]:
    """The settings in the texts, with what they are set to: a number stands for any."""
    found = {pair for text in _texts() for pair in _SETTING.findall(_CALL.sub("", text))}
    return {(name, "2" if value == "%d" else value) for name, value in found}


def _calls() -> list[str]:
    return [call for text in _texts() for call in _CALL.findall(text)]


def _settings() -> list[tuple[str, Any]]:
    named = sorted(_named())
    return [(name, ast.literal_eval(value)) for name, value in named if name not in VARIABLES]


def _torchs(kind: type[DataLoader[Any]], **settings: Any) -> int:
    dataset: Any = Dummy(length=40, shape=(8,), tensors=True)
    loader = kind(dataset, **{"batch_size": 4, "num_workers": 2, **settings})
    return sum(1 for _epoch in range(2) for _batch in loader)


def _native(directory: Path, **settings: Any) -> int:
    np.save(directory / "rows.npy", np.zeros((80, 4), np.float32))
    with millhead.Loader(str(directory / "rows.npy"), 1, **settings) as loader:
        return sum(1 for _batch in loader)


def _mapped(directory: Path, **settings: Any) -> int:
    np.save(directory / "rows.npy", np.zeros((80, 4), np.float32))
    return len(np.load(directory / "rows.npy", **settings))


def _prefetched(**settings: Any) -> int:
    return sum(1 for _item in millhead.prefetch(range(20), 2, **settings))


def _apply(name: str, value: Any, directory: Path) -> int:
    """Runs with the setting; how many batches there were."""
    ours = millhead.torch.DataLoader
    who: dict[str, Callable[[], int]] = {
        "num_workers": lambda: _torchs(DataLoader, num_workers=value),
        "prefetch_factor": lambda: _torchs(DataLoader, prefetch_factor=value),
        "persistent_workers": lambda: _torchs(DataLoader, persistent_workers=value),
        "in_order": lambda: _torchs(DataLoader, in_order=value),
        "dispatch": lambda: _torchs(ours, dispatch=value),
        "worker_threads": lambda: _torchs(ours, worker_threads=value),
        "threads": lambda: _native(directory, threads=value),
        "in_flight": lambda: _native(directory, in_flight=value),
        "shuffle": lambda: _native(directory, shuffle=value),
        "mode": lambda: _prefetched(mode=value),
        "mmap_mode": lambda: _mapped(directory, mmap_mode=value),
        "reducing_gap": lambda: Image.new("RGB", (64, 64)).resize((16, 16), **{name: value}).width,
        "scheduler": lambda: int(dask.array.ones(16).sum().compute(scheduler=value)),
    }
    return who[name]()


@pytest.mark.parametrize("arguments", _calls())
def test_a_call_that_a_fix_writes_out_works(arguments: str) -> None:
    settings = eval(f"dict({arguments})", {"dict": dict, "torch": torch})
    assert _torchs(millhead.torch.DataLoader, **settings) == 20


def test_the_texts_are_found() -> None:
    assert len(_calls()) == 1
    assert {"num_workers", "persistent_workers", "in_flight"} <= {name for name, _ in _settings()}


@pytest.mark.parametrize(("name", "value"), _settings())
def test_a_setting_that_a_fix_names_can_be_set(name: str, value: Any, tmp_path: Path) -> None:
    assert _apply(name, value, tmp_path) >= 10
