"""``millhead.data.Dummy`` gives what it promises: costs known beforehand, the same every time."""

from __future__ import annotations

import pickle
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest
import torch
from helpers import procs
from millhead.data import Dummy
from millhead.torch import DataLoader

COUNT = 2000


def _waits(monkeypatch: pytest.MonkeyPatch, dataset: Dummy) -> list[float]:
    """Seconds each sample asks to sleep."""
    asked: list[float] = []
    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", asked.append)
        for index in range(len(dataset)):
            before = len(asked)
            dataset[index]
            if len(asked) == before:
                asked.append(0.0)
    return asked


def test_millhead_has_it_and_does_not_import_numpy_or_torch_for_it() -> None:
    assert millhead.data.Dummy is Dummy
    done = procs.run_python(
        "import millhead, sys\n"
        "print(sorted({'torch', 'numpy'} & set(sys.modules)))\n"
        "print(millhead.data.Dummy(3, (2,), 'int64')[2], 'torch' in sys.modules)\n"
        "batch = millhead.data.Dummy(3, [(2,), ()]).collate([(1, 2), (3, 4)])\n"
        "print([leaf.tolist() for leaf in batch])\n"
    )
    assert done.stdout.splitlines() == ["[]", "[2 2] False", "[[1, 3], [2, 4]]"], done.stderr


@pytest.mark.parametrize("tensors", [False, True])
def test_shapes_make_one_array_a_tuple_or_a_dictionary(tensors: bool) -> None:
    kind: Any = torch.Tensor if tensors else np.ndarray
    one = Dummy(10, (3, 2), "uint8", tensors=tensors)[7]
    assert isinstance(one, kind) and one.shape == (3, 2) and one.tolist() == [[7, 7]] * 3
    image, label = Dummy(10, [(3, 2), ()], tensors=tensors)[7]
    assert image.shape == (3, 2) and label.shape == () and label == 7.0
    named = Dummy(10, {"image": (4,), "label": (1,)}, "int64", tensors=tensors)[7]
    assert {name: leaf.tolist() for name, leaf in named.items()} == {
        "image": [7] * 4,
        "label": [7],
    }


@pytest.mark.parametrize(
    ("latency", "mean", "median"),
    [
        (0.5, 0.5, 0.5),
        (("constant", 0.5), 0.5, 0.5),
        (("uniform", 1.0, 3.0), 2.0, 2.0),
        (("exponential", 2.0), 2.0, 1.386),
        (("lognormal", 2.0, 0.5), 2.266, 2.0),
    ],
)
def test_latencies_are_spread_as_told(
    monkeypatch: pytest.MonkeyPatch, latency: Any, mean: float, median: float
) -> None:
    waits = _waits(monkeypatch, Dummy(COUNT, (1,), latency=latency))
    assert statistics.mean(waits) == pytest.approx(mean, rel=0.1)
    assert statistics.median(waits) == pytest.approx(median, rel=0.1)


def test_the_tail_is_as_long_and_as_frequent_as_told(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = _waits(monkeypatch, Dummy(COUNT, (1,), latency=0.1, tail=(0.05, 3.0)))
    assert set(waits) == {0.1, 3.1}
    assert waits.count(3.1) / COUNT == pytest.approx(0.05, rel=0.3)


def test_costs_depend_on_seed_and_index_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(seed: int, **more: Any) -> Dummy:
        return Dummy(50, (1,), latency=("exponential", 1.0), seed=seed, **more)

    first = _waits(monkeypatch, make(1))
    assert _waits(monkeypatch, make(1)) == first
    assert _waits(monkeypatch, make(1, python_cpu=1e-6)) == first
    assert _waits(monkeypatch, make(2)) != first
    with monkeypatch.context() as patch:
        asked: list[float] = []
        patch.setattr(time, "sleep", asked.append)
        assert make(1)[30].tolist() == [30.0]
        assert asked == [first[30]]


def test_no_global_generator_is_touched() -> None:
    states = random.getstate(), str(np.random.get_state()), torch.get_rng_state()
    dataset = Dummy(20, (1,), latency=("uniform", 0.0, 1e-4), tail=(0.5, 1e-4), native_cpu=1e-4)
    dataset.collate([dataset[index] for index in range(20)])
    assert (random.getstate(), str(np.random.get_state())) == states[:2]
    assert torch.equal(torch.get_rng_state(), states[2])


@pytest.mark.parametrize("kind", ["python_cpu", "native_cpu"])
def test_cpu_is_spent_to_the_amount_told(kind: str) -> None:
    dataset = Dummy(10, (1,), **{kind: 0.02})
    dataset[0]  # the speed of native code is found out once
    for index in range(5):
        began = time.thread_time()
        dataset[index]
        # the thread's own clock: no other load on the machine counts
        assert 0.0195 <= time.thread_time() - began < 0.04


def test_python_cpu_runs_bytecode_and_native_cpu_does_not() -> None:
    def lines(**cost: float) -> int:
        count = 0

        def trace(*_: Any) -> Any:
            nonlocal count
            count += 1
            return trace

        dataset = Dummy(10, (1,), **cost)
        dataset[0]
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            dataset[1]
        finally:
            sys.settrace(before)
        return count

    assert lines(native_cpu=0.02) < 200
    assert lines(python_cpu=0.02) > 2000


def test_collate_has_its_own_cost_and_gives_torchs_batches() -> None:
    dataset = Dummy(8, [(2,), ()], collate_cpu=0.01)
    samples = [dataset[index] for index in range(4)]
    began = time.thread_time()
    images, labels = dataset.collate(samples)
    assert time.thread_time() - began >= 0.01
    assert images.shape == (4, 2) and labels.tolist() == [0.0, 1.0, 2.0, 3.0]
    loader = DataLoader(dataset, 4, collate_fn=dataset.collate, num_workers=1)
    assert [labels.tolist() for _, labels in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def _read_from_disk() -> int:
    text = Path("/proc/self/io").read_text()
    return int(text.partition("\nread_bytes: ")[2].split()[0])


def test_bytes_are_read_from_a_file_of_its_own(tmp_path: Path) -> None:
    dataset = Dummy(16, (1,), read=65536, file=str(tmp_path / "bytes"))
    assert (tmp_path / "bytes").stat().st_size == 16 * 65536
    before = (tmp_path / "bytes").stat().st_mtime_ns
    Dummy(16, (1,), read=65536, file=dataset.file)[15]  # what is there is used
    assert (tmp_path / "bytes").stat().st_mtime_ns == before
    (tmp_path / "bytes").write_bytes(b"short")
    with pytest.raises(OSError, match="shorter than 1048576 bytes"):
        dataset[0]


def test_cold_reads_ask_the_disk_every_time(tmp_path: Path) -> None:
    warm = Dummy(16, (1,), read=65536, file=str(tmp_path / "bytes"))
    cold = Dummy(16, (1,), read=65536, file=warm.file, cold=True)
    amounts = []
    for dataset in (cold, cold, warm, warm):
        before = _read_from_disk()
        for index in range(16):
            dataset[index]
        amounts.append(_read_from_disk() - before)
    if not any(amounts):
        pytest.skip("the filesystem of the temporary directory is not on a disk")
    assert amounts[:2] == [16 * 65536] * 2
    assert amounts[3] == 0  # the third pass warmed the cache


def test_its_temporary_file_goes_with_it_and_not_with_its_workers() -> None:
    dataset = Dummy(8, (1,), read=4096)
    file = Path(str(dataset.file))
    assert [batch.shape for batch in DataLoader(dataset, 4, num_workers=2)] == [(4, 1)] * 2
    assert pickle.loads(pickle.dumps(dataset))[3].tolist() == [3.0]
    assert file.exists()
    del dataset
    assert not file.exists()


def test_failing_samples_fail_every_time() -> None:
    dataset = Dummy(COUNT, (1,), failure_rate=0.1)

    def failing() -> list[int]:
        found = []
        for index in range(COUNT):
            try:
                dataset[index]
            except ValueError as error:
                assert str(error) == f"dummy sample {index} cannot be loaded (failure_rate)"
                found.append(index)
        return found

    first = failing()
    assert len(first) / COUNT == pytest.approx(0.1, rel=0.25)
    assert failing() == first


def test_memory_grows_by_the_bytes_told_and_is_not_pickled() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    dataset = Dummy(100, (1,), growth=1 << 20)
    before = resident()
    for index in range(64):
        dataset[index]
    assert 56 << 20 < resident() - before < 80 << 20
    assert len(pickle.dumps(dataset)) < 2000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"latency": ("gamma", 1.0)}, "latency 'gamma' is unknown: one of constant, uniform"),
        ({"latency": ("uniform", 1.0)}, r"'uniform' takes \(least, most\), each 0 or more"),
        ({"latency": -1.0}, r"'constant' takes \(seconds\), each 0 or more"),
        ({"length": -1}, "length should be 0 or more, got -1"),
        ({"failure_rate": 1.5}, "failure_rate should be a probability of 0 to 1, got 1.5"),
        ({"tail": (2, 0.1)}, "tail should be a probability of 0 to 1, got 2"),
    ],
)
def test_what_it_cannot_do_it_refuses_by_name(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Dummy(**arguments)


def test_an_index_outside_ends_iteration() -> None:
    assert [int(sample) for sample in Dummy(3, ())] == [0, 1, 2]
    with pytest.raises(IndexError, match="index -1 is outside of 3 samples"):
        Dummy(3)[-1]
