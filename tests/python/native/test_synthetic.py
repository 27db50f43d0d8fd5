"""Computed samples in chunks: the native loader's heart, against the reference that has none of its C."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
import reference_stream as reference

KINDS = [
    "count=120,shape=10",
    "count=121,shape=3x5,chunk=7,dtype=int32",
    "count=133,shape=9x2,chunk=4,span=3,ragged,dtype=float64,seed=9",
    "count=100,shape=5,chunk=3,span=2,broken=15%,seed=4",
    "count=100,shape=40x3,ragged,broken=15%,seed=4",
]


def options(**given: Any) -> argparse.Namespace:
    """What the reference takes."""
    standard = {
        "batch_size": 8,
        "shuffle": "keyed",
        "seed": 7,
        "epoch": 0,
        "rank": 0,
        "world": 1,
        "start": 0,
        "drop_last": False,
        "uneven": False,
        "limit_batches": None,
        "on_error": "raise",
    }
    return argparse.Namespace(**standard | given)


def expected(kind: str, **given: Any) -> list[list[int]]:
    """The sample numbers of each batch."""
    data = reference.Synthetic(kind)
    chosen = options(**given)
    positions = reference.batches(chosen, reference.share(chosen, data.count))
    batches = [[number for _, number in reference.chosen(data, chosen, each)] for each in positions]
    return [batch for batch in batches if batch]


def check(kind: str, batch: dict[str, Any]) -> list[int]:
    """That the values are the reference's; the samples' numbers."""
    data = reference.Synthetic(kind)
    numbers: list[int] = batch["_index"].tolist()
    assert batch["label"].tolist() == numbers
    for at, number in enumerate(numbers):
        found, wanted = np.asarray(batch["x"][at]), data.value("x", number)
        assert found.shape == wanted.shape
        assert found.tobytes() == wanted.tobytes()
    return numbers


FIELDS = ["label", "x", "_index"]


@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_value_is_the_references(kind: str, output: str) -> None:
    with millhead.Loader(
        f"synthetic:{kind}", 8, fields=FIELDS, shuffle=True, seed=7, on_error="skip", output=output
    ) as loader:
        found = [check(kind, batch) for batch in loader]
    assert found == expected(kind, on_error="skip")


@pytest.mark.parametrize("kind", KINDS[3:])
@pytest.mark.parametrize("threads", [0, 2])
def test_substitutes_are_the_same_for_every_number_of_threads(threads: int, kind: str) -> None:
    with millhead.Loader(
        f"synthetic:{kind}", 8, fields=FIELDS, shuffle=True, seed=7, on_error="replace",
        threads=threads, memory="20kB",
    ) as loader:  # fmt: skip
        assert [check(kind, batch) for batch in loader] == expected(kind, on_error="replace")
        assert loader.stats()["errors"]["replaced"] > 0


def test_replacing_gives_every_rank_the_same_number_of_steps() -> None:
    kind = KINDS[3]
    seen = []
    for rank in range(4):
        with millhead.Loader(
            f"synthetic:{kind}", 4, fields=FIELDS, seed=7, on_error="replace", rank=rank, world=4
        ) as loader:
            found = [check(kind, batch) for batch in loader]
        wanted = expected(kind, batch_size=4, shuffle=None, on_error="replace", rank=rank, world=4)
        assert found == wanted
        seen.append(len(found))
    assert len(set(seen)) == 1


def test_a_broken_sample_is_named_and_those_before_it_arrive() -> None:
    data = reference.Synthetic(KINDS[3])
    broken = [number for number in range(data.count) if data.broken(number)]
    arrived, raised = [], []
    with millhead.Loader(f"synthetic:{KINDS[3]}", 1) as loader:
        iterator = iter(loader)
        for number in range(data.count):
            try:
                arrived += next(iterator)["label"].tolist()
            except millhead.Error as error:
                assert str(error).startswith(f"sample {number}: chunk ")
                assert error.code == "corrupt data"
                raised.append(number)
    assert raised == broken
    assert sorted(arrived + raised) == list(range(data.count))
    with pytest.raises(ValueError, match="on_error should be"):
        millhead.Loader(f"synthetic:{KINDS[3]}", 1, on_error="ignore")


def test_every_position_can_be_resumed_from() -> None:
    kind = KINDS[2]
    with millhead.Loader(f"synthetic:{kind}", 8, fields=FIELDS, shuffle=True, seed=7) as loader:
        whole = [check(kind, batch) for batch in loader]
        loader.set_epoch(0)
        states = []
        for _ in loader:
            states.append(loader.state_dict())
        for done, state in enumerate(states[:-1], 1):
            loader.load_state_dict(state)
            assert [batch["_index"].tolist() for batch in loader] == whole[done:]


def test_ragged_arrays() -> None:
    loader = millhead.Loader(f"synthetic:{KINDS[2]}", 8, output="torch")
    ragged = next(iter(loader))["x"]
    loader.close()
    assert isinstance(ragged, millhead.Ragged)
    assert len(ragged) == len(list(ragged)) == 8
    assert "8 samples of torch.float64" in repr(ragged)
    padded = ragged.padded(-1)
    assert padded.shape == (8, int(ragged.shapes[:, 0].max()), 2)
    for at, sample in enumerate(ragged):
        # by bytes: some of the values are no numbers
        assert padded[at, : len(sample)].numpy().tobytes() == sample.numpy().tobytes()
        assert (padded[at, len(sample) :] == -1).all()
    rows = ragged.nested().unbind()
    assert [len(row) for row in rows] == [len(sample) for sample in ragged]
    assert ragged.to(torch.float32).values.dtype == torch.float32
    with pytest.raises(IndexError, match="no sample 8"):
        ragged[8]
    as_numpy = millhead.open(f"synthetic:{KINDS[2]}", output="numpy")[[3, 1]]["x"]
    assert as_numpy.padded().shape[0] == 2
    with pytest.raises(TypeError, match="output='torch'"):
        as_numpy.nested()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "needs count="),
        ("count=x", "'count=x' is not part of synthetic data"),
        ("count=10,chunks=3", "'chunks=3' is not part"),
        ("count=10,shape=0", "'shape=0' is not part"),
        ("count=10,dtype=object", "'dtype=object' is not part"),
        ("count=10,broken=120%", "'broken=120%' is not part"),
        ("count=1099511627776,shape=1099511627776", "too large"),
    ],
)
def test_texts_that_mean_nothing(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        millhead.open(f"synthetic:{text}")


def test_a_loader_that_nobody_closes_ends_with_the_program(tmp_path: Path) -> None:
    program = tmp_path / "left_open.py"
    program.write_text(
        "import millhead\n"
        "loader = millhead.Loader('synthetic:count=10000,shape=100,chunk=4', 8, shuffle=True,\n"
        "                         simulate='latency=5ms', in_flight=64)\n"
        "for number, batch in enumerate(loader):\n"
        "    if number == 3:\n"
        "        break\n"
        "print('over')\n"
    )
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr


def test_a_forked_child_reads_with_open_beside_a_loader() -> None:
    kind = KINDS[1]
    data = millhead.open(f"synthetic:{kind}", FIELDS)
    with millhead.Loader(f"synthetic:{kind}", 8, fields=FIELDS, shuffle=True, seed=7) as loader:
        iterator = iter(loader)
        next(iterator)
        child = os.fork()
        if child == 0:
            try:
                check(kind, data[[5, 7]])
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        found = [check(kind, batch) for batch in iterator]
    assert found == expected(kind)[1:]
