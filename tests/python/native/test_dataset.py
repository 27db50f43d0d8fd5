"""millhead.open: samples by number, in any thread, process and worker."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import millhead
import millhead.torch
import numpy as np
import pytest
import torch
import torch.utils.data

COUNT = 60


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    draw = np.random.default_rng(4)
    np.save(tmp_path / "x.npy", draw.random((COUNT, 3), np.float32))
    np.save(tmp_path / "label.npy", np.arange(COUNT) * 10)
    return [str(tmp_path / "x.npy"), str(tmp_path / "label.npy")]


def label_and_sum(sample: dict[str, Any]) -> tuple[int, float]:
    """A function of a sample that spawned workers can import."""
    return int(sample["label"]), float(sample["x"].sum())


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_samples_and_batches_are_numpys(paths: list[str], output: str) -> None:
    x = np.load(paths[0])
    data = millhead.open(paths, output=output)
    assert len(data) == COUNT
    assert data.fields == {"label": ("int64", (), False), "x": ("float32", (3,), False)}
    for index in (0, 17, -1, np.int64(4), torch.tensor(5)):
        sample = data[index]
        assert list(sample) == ["label", "x"]
        assert np.array_equal(np.asarray(sample["x"]), x[int(index)])
        assert sample["label"] == range(COUNT)[int(index)] * 10
    for indices in ([3, 3, -2], slice(1, 9, 2), np.array([5, 1]), torch.tensor([2]), [], range(4)):
        batch = data[indices]
        rows = indices if isinstance(indices, slice) else np.array(list(indices), int)
        assert np.array_equal(np.asarray(batch["x"]), x[rows])
    assert len(list(data)) == COUNT


def test_fields_are_those_asked_for_in_their_order(paths: list[str]) -> None:
    data = millhead.open(paths, fields=["x", "_index"])
    assert list(data.fields) == list(data[7]) == ["x", "_index"]
    alone = millhead.open(paths, fields=["_index"])
    assert alone[7] == {"_index": 7} and list(alone.fields) == ["_index"]
    assert data[7]["_index"] == 7 and data[[7, 8]]["_index"].tolist() == [7, 8]


def test_what_is_not_there_has_its_exception(paths: list[str], tmp_path: Path) -> None:
    data = millhead.open(paths)
    for index in (COUNT, -COUNT - 1, [0, COUNT]):
        with pytest.raises(IndexError, match="no sample"):
            data[index]
    for index in (1.5, "x", {"a": 1}, None):
        with pytest.raises(TypeError):
            data[index]
    with pytest.raises(FileNotFoundError):
        millhead.open(tmp_path / "nothing.npy")
    with pytest.raises(ValueError, match="unknown field 'images': there are label, x$"):
        millhead.open(paths, fields=["images"])
    with pytest.raises(ValueError, match=r"there are label, x; did you mean 'label'\?"):
        millhead.open(paths, fields=["labels"])
    with pytest.raises(ValueError, match="cupy"):
        millhead.open(paths, output="cupy")
    with pytest.raises(TypeError, match="list of names"):
        millhead.open(paths, fields="x")


def test_a_file_that_changed_is_an_error(paths: list[str]) -> None:
    data = millhead.open(paths)
    np.save(paths[0], np.zeros((COUNT, 3), np.float32) + 1)
    with pytest.raises(OSError, match="changed since"):
        data[0]


def test_pickling_opens_the_same_data_again(paths: list[str]) -> None:
    data = millhead.open(paths, fields=["x"], output="numpy")
    again = pickle.loads(pickle.dumps(data))
    assert list(again[3]) == ["x"] and np.array_equal(again[3]["x"], data[3]["x"])
    mapped = pickle.loads(pickle.dumps(millhead.open(paths).map(label_and_sum)))
    assert mapped[2][0] == 20


def test_map_changes_each_sample(paths: list[str]) -> None:
    data = millhead.open(paths).map(label_and_sum).map(lambda pair: pair[0] + 1)
    assert len(data) == COUNT and list(data.fields) == ["label", "x"]
    assert data[4] == 41 and data[[1, 2]] == [11, 21]
    assert list(data)[-1] == (COUNT - 1) * 10 + 1


def test_many_threads_read_one_dataset(paths: list[str]) -> None:
    data = millhead.open(paths, output="numpy")
    wrong: list[int] = []

    def read() -> None:
        wrong.extend(i for i in range(COUNT) if data[i]["label"] != i * 10)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("kind", [torch.utils.data.DataLoader, millhead.torch.DataLoader])
def test_workers_of_any_loader_read_it(paths: list[str], kind: Any, start: str) -> None:
    data = millhead.open(paths)
    x = torch.from_numpy(np.load(paths[0]))
    assert torch.equal(data[0]["x"], x[0])  # files are open before the workers start
    loader = kind(data, batch_size=8, num_workers=2, multiprocessing_context=start)
    batches = list(loader)
    assert torch.equal(torch.cat([batch["x"] for batch in batches]), x)
    assert torch.cat([batch["label"] for batch in batches]).tolist() == list(range(0, 600, 10))
    mapped = kind(
        data.map(label_and_sum), batch_size=30, num_workers=1, multiprocessing_context=start
    )
    assert torch.cat([labels for labels, _ in mapped]).tolist() == list(range(0, 600, 10))
