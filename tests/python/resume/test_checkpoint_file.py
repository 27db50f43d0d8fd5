"""``millhead.torch.Checkpoint``: the progress of training in a file that is always whole."""

from __future__ import annotations

import collections
import json
import math
import os
import random
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest
import torch
import torch.distributed as dist
from helpers import procs
from helpers.parity_cases import Items
from millhead.torch import Checkpoint, DataLoader
from millhead.torch.resume.json_values import dumps, loads

BEGINNING = {"epoch": 0, "global_step": 0, "epoch_step": 0, "running_loss": 0.0}

# --- values ---


def _alike(one: Any, other: Any) -> bool:
    """Equal, and of the same types all through."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray | np.generic):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other) or (math.isnan(one) and math.isnan(other))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        2**80,
        0.1,
        -0.0,
        math.inf,
        math.nan,
        "täxt \ud800 \n",
        b"\0\xff",
        bytearray(b"abc"),
        [1, [2.5, "x"]],
        (1, (2, [])),
        {"a": {"b": 1}},
        {1: "one", (2, 3): [None]},
        {"$": "tensor"},
        {},
        torch.arange(6).reshape(2, 3),
        torch.rand(3, 4).t(),
        torch.tensor(1.5),
        torch.empty(0, 3),
        torch.rand(2).to(torch.bfloat16),
        torch.tensor([True, False]),
        torch.rand(2, dtype=torch.complex64).conj(),
        np.float32(0.1),
        np.float64(0.1),
        np.arange(4, dtype=np.int16)[::2],
        np.zeros((0, 2)),
        np.datetime64("2020-01-01"),
    ],
    ids=repr,
)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    text = dumps({"value": value})
    json.loads(text, parse_constant=pytest.fail)  # what others read too
    assert _alike(loads(text)["value"], value)


def test_dictionaries_and_tuples_of_other_classes_become_plain() -> None:
    point = collections.namedtuple("point", "x y")
    assert _alike(loads(dumps(collections.OrderedDict(a=1))), {"a": 1})
    assert _alike(loads(dumps(point(1, 2))), (1, 2))


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, np.array([None]), torch.eye(2).to_sparse(), torch.empty(2, device="meta")],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_plain_is_refused_with_its_place(value: Any) -> None:
    with pytest.raises(TypeError, match=r"state\['a'\]\[1\] is a"):
        dumps({"a": [0, value]})


def test_what_is_read_runs_nothing() -> None:
    for text in ('{"$": "eval", "value": "1"}', '{"$": "tensor", "dtype": "load", "shape": []}'):
        with pytest.raises(ValueError, match="Error"):
            loads(text)


# --- one process ---


def _loader(workers: int, **options: Any) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(3)
    return DataLoader(
        Items("int", 23), 2, shuffle=True, num_workers=workers, generator=generator, **options
    )


def test_without_a_file_training_begins(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path / "none.json", _loader(0)).load() == BEGINNING


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("left_at", [0, 5, 11, 12, 20])
def test_training_goes_on_where_it_was_left(tmp_path: Path, left_at: int, workers: int) -> None:
    """Two epochs of 12 batches, left after some steps and gone on with by new objects."""
    path = tmp_path / "deeply" / "nested" / "progress.json"
    whole = [batch.tolist() for loader in [_loader(workers)] for _ in range(2) for batch in loader]
    seen: list[Any] = []
    for last in (left_at, 24):
        loader = _loader(workers)
        checkpoint = Checkpoint(path, loader)
        state = checkpoint.load()
        assert state["global_step"] == len(seen)
        while state["epoch"] < 2 and len(seen) < last:
            for batch in loader:
                seen.append(batch.tolist())
                state["global_step"] += 1
                state["epoch_step"] += 1
                state["running_loss"] += 0.5
                state["mine"] = {"at": (state["global_step"], b"x")}
                checkpoint.save(state)
                if len(seen) == last:
                    break
            else:
                state["epoch"], state["epoch_step"], state["running_loss"] = (
                    state["epoch"] + 1,
                    0,
                    0.0,
                )
    assert seen == whole
    final = Checkpoint(path).load()
    assert final == {
        "epoch": 1,
        "global_step": 24,
        "epoch_step": 12,
        "running_loss": 6.0,
        "mine": {"at": (24, b"x")},
    }


def test_the_file_is_json_that_others_read(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    Checkpoint(path, _loader(0)).save({**BEGINNING, "global_step": 7})
    found = json.loads(path.read_text())
    assert (found["millhead"], found["version"]) == ("checkpoint", 1)
    assert found["state"]["global_step"] == 7
    assert len(found["loaders"]) == 1
    assert os.listdir(tmp_path) == ["progress.json"]


def test_a_state_that_lacks_something_or_is_not_plain_changes_nothing(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "progress.json")
    checkpoint.save({**BEGINNING, "epoch": 4})
    with pytest.raises(ValueError, match="lacks epoch_step, running_loss"):
        checkpoint.save({"epoch": 5, "global_step": 1})
    with pytest.raises(TypeError, match=r"state\['model'\] is a Linear"):
        checkpoint.save({**BEGINNING, "model": torch.nn.Linear(1, 1)})
    assert checkpoint.load()["epoch"] == 4
    assert os.listdir(tmp_path) == ["progress.json"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "progress.json"
    link.symlink_to(tmp_path / "elsewhere" / "real.json")
    Checkpoint(link).save({**BEGINNING, "epoch": 1})
    assert link.is_symlink() and Checkpoint(link).load()["epoch"] == 1


FOREIGN = {
    "empty": b"",
    "cut": None,
    "binary": bytes(range(256)),
    "list": b"[1, 2]",
    "other json": b'{"epoch": 3}',
    "newer": b'{"millhead": "checkpoint", "version": 2, "state": {}, "loaders": []}',
    "partial": b'{"millhead": "checkpoint", "version": 1, "state": {}}',
    "no generators": b'{"millhead": "checkpoint", "version": 1, "state": {}, "loaders": [], '
    b'"generators": null}',
    "unknown kind": b'{"millhead": "checkpoint", "version": 1, "state": {"a": {"$": "b"}}}',
    "deep": b"[" * 100_000,
    "directory": None,
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_that_is_no_checkpoint_is_named_in_one_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "progress.json"
    checkpoint = Checkpoint(path, _loader(0))
    data = FOREIGN[kind]
    if kind == "directory":
        path.mkdir()
    elif kind == "cut":
        checkpoint.save(BEGINNING)
        path.write_bytes(path.read_bytes()[:-40])
    else:
        assert data is not None
        path.write_bytes(data)
    with pytest.raises(millhead.Error) as caught:
        checkpoint.load()
    assert str(caught.value).startswith("millhead: not a checkpoint that can be read: ")
    assert f"({path}): " in str(caught.value)
    assert caught.value.code == "corrupt data"
    assert "\n" not in str(caught.value)


def test_the_state_of_another_dataset_is_the_loaders_to_refuse(tmp_path: Path) -> None:
    Checkpoint(tmp_path / "progress.json", _loader(0)).save(BEGINNING)
    other = Checkpoint(tmp_path / "progress.json", DataLoader(range(5)))
    with pytest.raises(ValueError, match="a dataset of 23 samples"):
        other.load()


# --- generators ---


def _draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_generators_go_on_where_they_were_only_if_asked_for(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "progress.json", generators=True)
    checkpoint.save(BEGINNING)
    drawn = _draws()
    checkpoint.load()
    assert _draws() == drawn
    Checkpoint(checkpoint.path).load()
    assert _draws() != drawn


@pytest.mark.parametrize("damage", ["", "AAAA", 5])
def test_generators_that_are_damaged_are_told_and_nothing_is_set(
    tmp_path: Path, damage: Any
) -> None:
    checkpoint = Checkpoint(tmp_path / "progress.json", generators=True)
    checkpoint.save(BEGINNING)
    path = Path(checkpoint.path)
    found = json.loads(path.read_text())
    found["generators"][0]["global"] = damage
    path.write_text(json.dumps(found))
    before = random.getstate()
    with pytest.raises(millhead.Error, match=r"saved for rank 0 are damaged: .* \(/.*\): load"):
        checkpoint.load()
    assert random.getstate() == before


@pytest.mark.parametrize(
    ("saved", "said"),
    [
        ('"generators": [null]', "none were saved"),
        ('"generators": [{"global": ""}, null]', "of a world of 2, not 1"),
        ('"generators": [null, null]', "none were saved"),
        ('"of an older version": 0', "none were saved"),
    ],
)
def test_generators_that_are_not_there_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: str, said: str
) -> None:
    monkeypatch.setattr("millhead.torch.loader_stats._advised", set())
    path = tmp_path / "progress.json"
    Checkpoint(path).save(BEGINNING)
    path.write_text(path.read_text().replace('"generators": [null]', saved))
    with pytest.warns(millhead.Advice, match=f"generators stay as they are: .*{said}"):
        Checkpoint(path, generators=True).load()


def test_generators_of_more_devices_than_there_are_go_to_those_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: list(torch.eye(3).byte()))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", given.extend)
    checkpoint = Checkpoint(tmp_path / "progress.json", generators=True)
    checkpoint.save(BEGINNING)
    checkpoint.load()
    assert [state.tolist() for state in given] == [[1, 0, 0], [0, 1, 0]]


def test_a_rank_whose_loader_refuses_its_state_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "progress.json"
    Checkpoint(path, _loader(0), generators=True).save(BEGINNING)
    met: list[Any] = []

    def gather_from_all(mine: Any) -> list[Any]:
        met.append(mine)
        return [mine, mine]

    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr("millhead.torch.ranks.rank0_first.gather_from_all", gather_from_all)
    with pytest.warns(millhead.Advice, match="of a world of 1, not 2"):
        Checkpoint(path, _loader(0), generators=True).load()
    assert len(met) == 1  # to read the file: nobody meets after something that can fail


@pytest.mark.limit(300)
@pytest.mark.parametrize(
    ("workers", "dispatch"), [("0", "batch"), ("2", "batch"), ("2", "sample")], ids="-".join
)
def test_a_killed_training_goes_on_with_the_losses_it_would_have_had(
    tmp_path: Path, workers: str, dispatch: str
) -> None:
    curves = []
    for name, stops in (("whole", ["0"]), ("killed", ["7", "11", "25", "0"])):
        directory = tmp_path / name
        directory.mkdir()
        for kill_at in stops:
            program = [procs.HERE / "trained.py", directory, workers, dispatch, kill_at]
            done = procs.run([sys.executable, *map(str, program)], seconds=60)
            assert done.returncode == (0 if kill_at == "0" else -signal.SIGKILL), done.stderr
        curves.append((directory / "losses").read_text().split())
    assert curves[0] == curves[1]
    assert len(set(curves[0])) == 33  # three epochs of eleven batches


# --- crashes ---


def test_it_is_on_the_disk_before_it_has_its_name_and_the_name_is_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(fd: int) -> None:
        is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
        done.append("directory" if is_directory else f"{os.fstat(fd).st_size > 100}")
        fsync(fd)

    def noted_replace(old: Any, new: Any) -> None:
        done.append("name")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    Checkpoint(tmp_path / "progress.json").save(BEGINNING)
    assert done == ["True", "name", "directory"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_what_cannot_be_written_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    checkpoint = Checkpoint(tmp_path / "progress.json")
    checkpoint.save({**BEGINNING, "epoch": 1})

    def fails(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fails)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save({**BEGINNING, "epoch": 2})
    assert checkpoint.load()["epoch"] == 1
    assert os.listdir(tmp_path) == ["progress.json"]


WRITES = """
import sys
from millhead.torch import Checkpoint
checkpoint = Checkpoint(sys.argv[1])
state = checkpoint.load()
while True:
    state["global_step"] += 1
    state["padding"] = [state["global_step"]] * 20_000  # so that writing takes a while
    checkpoint.save(state)
    print(state["global_step"], flush=True)
"""


@pytest.mark.limit(300)
def test_a_kill_at_any_moment_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    moments = random.Random(5)
    told = 0
    for _ in range(12):
        command = [sys.executable, "-c", WRITES, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            told = int(writer.stdout.readline())
            with pytest.raises(subprocess.TimeoutExpired):
                writer.wait(moments.uniform(0, 0.1))
            writer.send_signal(signal.SIGKILL)
            told = int((writer.stdout.read().split() or [told])[-1])
        state = Checkpoint(path).load()
        assert state["global_step"] in (told, told + 1)
        assert state["padding"] == [state["global_step"]] * 20_000
        told = state["global_step"]
    assert told > 24  # it was the loop that was killed
