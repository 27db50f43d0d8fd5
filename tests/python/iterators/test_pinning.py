"""Pinned memory: what is pinned and when, on a faked accelerator; and what is said without one."""

from __future__ import annotations

import collections
import gc
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import parity_cases as pc
from helpers import procs
from helpers.accelerator import Accelerator, needs_no_accelerator
from helpers.compare import describe, describe_error
from helpers.parity_cases import Items
from millhead.torch import DataLoader
from torch.utils.data import IterableDataset, TensorDataset, get_worker_info

Torchs = torch.utils.data.DataLoader


def _leaves(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "pin" in thread.name]


def _outcomes(loader: Any) -> list[Any]:
    """Every batch or exception, described."""
    iterator = iter(loader)
    seen: list[Any] = []
    try:
        while len(seen) < 60:
            try:
                seen.append(describe(next(iterator)))
            except StopIteration:
                return seen
            except Exception as error:  # noqa: BLE001 - an outcome to compare
                seen.append(describe_error(error))
        raise AssertionError("no end after 60 outcomes")
    finally:
        getattr(iterator, "_shutdown_workers", lambda: None)()


def _as_torch(dataset: Any, **arguments: Any) -> list[Any]:
    """The outcomes, after they were found to be torch's."""
    arguments = {"pin_memory": True, **arguments}
    expected = _outcomes(Torchs(dataset, **arguments))
    actual = _outcomes(DataLoader(dataset, **arguments))
    assert actual == expected
    return actual


# ---- without an accelerator --------------------------------------------------------------------------


def _said(cls: Any, **arguments: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in cls(Items("int", 4), batch_size=2, **arguments):
            assert not batch.is_pinned()
    return [str(item.message) for item in caught]


@needs_no_accelerator
@pytest.mark.parametrize("workers", [0, 2])
def test_without_an_accelerator_torchs_one_warning_comes_and_plain_batches(workers: int) -> None:
    said = _said(DataLoader, pin_memory=True, num_workers=workers)
    assert said == _said(Torchs, pin_memory=True, num_workers=workers)
    assert len(said) == 1
    assert "no accelerator is found" in said[0]
    assert _threads() == []


@needs_no_accelerator
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("pin", [False, True])
def test_a_device_to_pin_for_is_deprecated_in_torchs_words(pin: bool, workers: int) -> None:
    arguments: dict[str, Any] = {"pin_memory": pin, "pin_memory_device": "cuda:1"}
    said = _said(DataLoader, num_workers=workers, **arguments)
    assert said == _said(Torchs, num_workers=workers, **arguments)
    assert len(said) == (2 if pin else 0)
    assert not pin or "pin_memory_device is deprecated" in said[0]


@pytest.mark.parametrize("workers", [0, 1])
def test_on_mps_nothing_is_pinned_and_torchs_warning_comes(
    accelerator: Accelerator, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("mps"))
    said = _said(DataLoader, pin_memory=True, num_workers=workers)
    assert said == _said(Torchs, pin_memory=True, num_workers=workers)
    assert len(said) == 1
    assert accelerator.pinned == []


# ---- what is pinned ----------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "kind", ["tensor", "dict", "nested", "nested namedtuple", "list", "large", "many leaves"]
)
def test_every_tensor_of_a_batch_is_pinned_and_the_order_kept(
    accelerator: Accelerator, kind: str, workers: int
) -> None:
    loader = DataLoader(Items(kind, 24), batch_size=2, num_workers=workers, pin_memory=True)
    plain = [describe(batch) for batch in DataLoader(Items(kind, 24), batch_size=2)]
    seen = []
    for batch in loader:
        leaves = list(_leaves(batch))
        assert leaves
        assert all(accelerator.has_pinned(leaf) for leaf in leaves)
        seen.append(describe(batch))
    assert seen == plain
    assert loader.stats()["path"] == "slot"
    assert loader.stats()["samples"] == 24


@pytest.mark.parametrize("kind", ["nested", "large", "str in dict"])
@pytest.mark.parametrize("in_order", [True, False])
def test_batches_that_workers_share_are_pinned_too(
    accelerator: Accelerator, kind: str, in_order: bool
) -> None:
    dataset = Items(kind, 24, errors=((7, "ValueError"),))
    options: dict[str, Any] = {"batch_size": 2, "dispatch": "sample"}
    plain = _outcomes(DataLoader(dataset, **options))
    loader = DataLoader(dataset, num_workers=2, pin_memory=True, in_order=in_order, **options)
    seen = _outcomes(loader)
    if in_order:
        assert [one for one in seen if "ValueError" in one[0]] == [seen[3]]
    assert sorted(one for one in seen if "Error" not in one[0]) == sorted(
        one for one in plain if "Error" not in one[0]
    )
    assert len(accelerator.pinned) >= 11


def test_a_worker_that_fails_to_start_after_the_last_batch_is_told_of(
    accelerator: Accelerator, tmp_path: Path
) -> None:
    go = tmp_path / "go"

    def fail(worker: int) -> None:
        while worker == 1 and not go.exists():
            time.sleep(0.01)
        if worker == 1:
            raise LookupError("no licence")

    loader = DataLoader(
        Items("tensor", 4),
        batch_size=2,
        num_workers=2,
        worker_init_fn=fail,
        pin_memory=True,
        dispatch="sample",
    )
    iterator = iter(loader)
    assert len([next(iterator) for _ in range(2)]) == 2  # by worker 0 alone
    go.touch()
    assert iterator._consumer_end.ready(30_000_000_000) == 1
    with pytest.raises(LookupError, match="no licence"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_nothing_is_pinned_unless_it_is_asked_for(accelerator: Accelerator) -> None:
    for workers in (0, 1):
        assert len(list(DataLoader(Items("tensor", 4), num_workers=workers))) == 4
    assert accelerator.pinned == []
    assert accelerator.devices == []


class Custom:
    """A batch type that pins itself, as torch's documentation shows it."""

    def __init__(self, samples: list[Any]) -> None:
        self.inputs = torch.stack(samples)
        self.pins = 0

    def pin_memory(self) -> Custom:
        self.inputs = self.inputs.pin_memory()
        self.pins += 1
        return self


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_with_a_method_to_pin_it_is_pinned_by_it(
    accelerator: Accelerator, workers: int
) -> None:
    loader = DataLoader(
        Items("tensor", 12), batch_size=2, num_workers=workers, collate_fn=Custom, pin_memory=True
    )
    batches = list(loader)
    assert len(batches) == 6
    for number, batch in enumerate(batches):
        assert batch.pins == 1
        assert accelerator.has_pinned(batch.inputs)
        assert batch.inputs[0, 0] == 26 * number


def collate_oddly(samples: list[Any]) -> Any:
    tensor = torch.stack(samples)
    return {
        "text": "text",
        "bytes": b"bytes",
        "numbers": (1, 2.5, None, True, 3j),
        "set": {1, 2},
        "array": tensor.numpy(),
        "range": range(3),
        "class": pc.Bag(tensor, "not looked into"),
        "ordered": collections.OrderedDict(b=tensor, a=1),
        "default": collections.defaultdict(list, x=tensor + 1),
        "frozen": pc.Frozen(tensor, "x"),
        "words": pc.Words([tensor, 1]),
        "user list": collections.UserList([tensor]),
        "deque": collections.deque([tensor]),
        "point": pc.Point(tensor, [tensor * 2]),
        "doubling": pc.Doubling(1, tensor),
        "empty": [(), {}, []],
    }


@pytest.mark.parametrize("workers", [0, 1])
def test_odd_types_come_as_they_do_from_torch(accelerator: Accelerator, workers: int) -> None:
    seen = _as_torch(
        Items("tensor", 8), batch_size=2, num_workers=workers, collate_fn=collate_oddly
    )
    assert len(seen) == 4


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ["str", "sparse tensor", "ragged list", "int enum", "user dict"])
def test_samples_of_odd_types_come_as_they_do_from_torch(
    accelerator: Accelerator, kind: str, workers: int
) -> None:
    assert len(_as_torch(Items(kind, 8), batch_size=1, num_workers=workers)) == 8


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_in_memory_are_pinned_too(accelerator: Accelerator, workers: int) -> None:
    dataset = TensorDataset(torch.arange(24.0).reshape(12, 2), torch.arange(12))
    loader = DataLoader(dataset, batch_size=2, num_workers=workers, pin_memory=True)
    for number, (rows, labels) in enumerate(loader):
        assert accelerator.has_pinned(rows)
        assert accelerator.has_pinned(labels)
        assert labels.tolist() == [2 * number, 2 * number + 1]


class Uneven(IterableDataset[int]):
    """The second worker yields three times as much."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        worker = 0 if info is None else info.id
        return iter(range(100 * worker, 100 * worker + 4 + 8 * worker))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch_size", [None, 3])
def test_streams_are_pinned_too(
    accelerator: Accelerator, workers: int, batch_size: int | None
) -> None:
    seen = _as_torch(Uneven(), batch_size=batch_size, num_workers=workers)
    assert len(seen) == {(0, None): 4, (0, 3): 2, (2, None): 16, (2, 3): 6}[workers, batch_size]
    assert bool(accelerator.pinned) == (batch_size is not None)


def test_with_workers_a_thread_of_its_own_pins_for_the_callers_device(
    accelerator: Accelerator,
) -> None:
    list(DataLoader(Items("tensor", 8), num_workers=2, pin_memory=True))
    assert len(set(accelerator.threads)) == 1
    assert threading.current_thread().name not in accelerator.threads
    assert accelerator.devices == [(accelerator.threads[0], 3)]


def test_without_workers_the_caller_pins(accelerator: Accelerator) -> None:
    list(DataLoader(Items("tensor", 8), pin_memory=True))
    assert set(accelerator.threads) == {threading.current_thread().name}
    assert accelerator.devices == []


def test_batches_are_pinned_ahead_and_no_further_than_workers_times_prefetch(
    accelerator: Accelerator,
) -> None:
    loader = DataLoader(Items("tensor", 40), num_workers=2, prefetch_factor=3, pin_memory=True)
    iterator = iter(loader)
    for taken in (0, 1, 7):
        while int(iterator._num_yielded) < taken:
            next(iterator)
        wanted = taken + 6
        assert procs.wait_until(lambda wanted=wanted: len(accelerator.pinned) >= wanted)
        time.sleep(0.2)
        assert len(accelerator.pinned) == wanted


def test_a_kept_pinned_batch_holds_no_slot(accelerator: Accelerator) -> None:
    loader = DataLoader(Items("large", 40), num_workers=2, pin_memory=True)
    kept = []
    for batch in loader:
        kept.append(batch)
        assert loader.stats()["slots"]["held"] <= 2 * 2 + 1
    assert loader.stats()["slots"]["held"] == 0
    assert loader.stats()["batches_copied_out"] == 0
    for number, batch in enumerate(kept):
        assert torch.equal(batch[0], Items("large", 40)[number])


# ---- order -------------------------------------------------------------------------------------------


class WaitsFor(Items):
    """The first sample comes when all others have."""

    def __init__(self, length: int, flag: str) -> None:
        super().__init__("int", length)
        self.flag = flag

    def __getitem__(self, index: Any) -> Any:
        if index == 0:
            procs.wait_until(lambda: os.path.exists(self.flag), seconds=30)
        return torch.tensor(index)


def test_out_of_order_a_slow_sample_does_not_hold_the_others(
    accelerator: Accelerator, tmp_path: Path
) -> None:
    flag = tmp_path / "go on"
    loader = DataLoader(WaitsFor(12, str(flag)), num_workers=2, in_order=False, pin_memory=True)
    iterator = iter(loader)
    first = [next(iterator) for _ in range(10)]
    assert all(accelerator.has_pinned(batch) for batch in first)
    numbers = [int(batch) for batch in first]
    assert 0 not in numbers
    flag.touch()
    assert sorted(numbers + [int(batch) for batch in iterator]) == list(range(12))


def test_out_of_order_exceptions_and_ends_of_streams_come_too(accelerator: Accelerator) -> None:
    dataset = Items("int", 20, errors=((7, "ValueError"), (8, "KeyError")))
    seen = _outcomes(DataLoader(dataset, num_workers=2, in_order=False, pin_memory=True))
    classes = sorted(outcome[0] for outcome in seen)
    assert classes == ["builtins.KeyError", "builtins.ValueError", *["torch.Tensor"] * 18]
    loader = DataLoader(Uneven(), num_workers=2, in_order=False, pin_memory=True)
    assert sorted(int(batch) for batch in loader) == [*range(4), *range(100, 112)]


# ---- exceptions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_exceptions_come_in_their_place(accelerator: Accelerator, workers: int) -> None:
    dataset = Items("tensor", 20, errors=((7, "ValueError"), (12, "OSError")))
    seen = _as_torch(dataset, batch_size=2, num_workers=workers)
    errors = [place for place, outcome in enumerate(seen) if "Error" in outcome[0]]
    assert errors == [3, 6]
    assert len(seen) == 10


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_exception_while_pinning_comes_in_its_place_in_torchs_words(
    accelerator: Accelerator, workers: int
) -> None:
    accelerator.refused = float(Items("tensor", 12)[5][0])
    seen = _as_torch(Items("tensor", 12), num_workers=workers)
    assert len(seen) == 12
    errors = [outcome for outcome in seen if "MemoryError" in outcome[0]]
    wanted = "Caught MemoryError in pin memory thread for device 3."
    assert [error[1] for error in errors] == [wanted if workers else "no pinned memory is left"]
    assert seen.index(errors[0]) == 5


def test_the_samples_of_an_exception_are_named_behind_the_pinning(
    accelerator: Accelerator,
) -> None:
    dataset = Items("tensor", 8, errors=((5, "ValueError"),))
    iterator = iter(DataLoader(dataset, batch_size=2, num_workers=2, pin_memory=True))
    next(iterator)
    next(iterator)
    with pytest.raises(ValueError, match="millhead: sample index 5"):
        next(iterator)
    assert accelerator.has_pinned(next(iterator))


class FailsToUnpickle:
    def __reduce__(self) -> Any:
        return _refuse, (1,)


def _refuse(number: int) -> None:
    raise ZeroDivisionError("cannot be unpickled")


def test_a_batch_that_cannot_be_unpickled_is_an_error_in_its_place(
    accelerator: Accelerator,
) -> None:
    def collate(batch: list[int]) -> Any:
        return FailsToUnpickle() if batch[0] in (1, 2) else torch.tensor(batch)

    loader = DataLoader(Items("int", 12), num_workers=2, collate_fn=collate, pin_memory=True)
    seen = _outcomes(loader)
    assert [outcome[0] for outcome in seen[:4]] == [
        "torch.Tensor",
        "builtins.ZeroDivisionError",
        "builtins.ZeroDivisionError",
        "torch.Tensor",
    ]
    assert len(seen) == 12


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_cannot_reach_its_device_is_reported_as_torch_does(
    accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(index: int) -> None:
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(torch.accelerator, "set_device_index", refuse)

    iterator = iter(DataLoader(Items("int", 4), num_workers=1, pin_memory=True))
    with pytest.raises(RuntimeError, match="^Pin memory thread exited unexpectedly$"):
        next(iterator)
    iterator._shutdown_workers()


# ---- what is left ------------------------------------------------------------------------------------


def _live(loader: Any) -> tuple[Any, list[int]]:
    iterator = iter(loader)
    next(iterator)
    assert len(_threads()) == 1
    return iterator, [worker.pid for worker in iterator._workers]


def _all_gone(pids: list[int]) -> bool:
    return not _threads() and not any(procs.is_running(pid) for pid in pids)


@pytest.mark.parametrize("how", ["end", "drop", "drop in a cycle", "shutdown", "exception"])
def test_no_thread_and_no_process_is_left(accelerator: Accelerator, how: str) -> None:
    errors = ((3, "ValueError"),) if how == "exception" else ()
    loader = DataLoader(Items("tensor", 60, errors=errors), num_workers=2, pin_memory=True)
    iterator, pids = _live(loader)
    match how:
        case "end":
            assert len(list(iterator)) == 59
        case "shutdown":
            iterator._shutdown_workers()
        case "drop in a cycle":
            iterator.itself = iterator
        case "exception":
            with pytest.raises(ValueError, match="bad value"):
                list(iterator)
    if how != "end":
        del iterator
    gc.collect()
    assert procs.wait_until(lambda: _all_gone(pids))


def test_leaving_the_loop_ends_thread_and_workers_at_once(accelerator: Accelerator) -> None:
    pids: set[int] = set()
    for number, _ in enumerate(DataLoader(Items("tensor", 60), num_workers=2, pin_memory=True)):
        pids |= procs.children()
        if number == 5:
            break
    assert len(pids) == 2
    assert _all_gone(list(pids))


def test_persistent_workers_and_their_thread_live_from_epoch_to_epoch(
    accelerator: Accelerator,
) -> None:
    loader = DataLoader(
        Items("tensor", 20), num_workers=2, persistent_workers=True, pin_memory=True
    )
    alive: list[tuple[Any, list[int]]] = []
    for take in (20, 3, 0, 20):
        iterator = iter(loader)
        batches = [next(iterator) for _ in range(take)]
        alive.append((_pin_thread(), [worker.pid for worker in iterator._workers]))
        for number, batch in enumerate(batches):
            assert accelerator.has_pinned(batch)
            assert torch.equal(batch[0], Items("tensor", 20)[number])
        if take == 20:
            assert next(iterator, None) is None
    assert all(item == alive[0] for item in alive)
    pids = alive[0][1]
    del iterator
    loader._iterator = None
    assert procs.wait_until(lambda: _all_gone(pids))


def _pin_thread() -> threading.Thread:
    (found,) = (thread for thread in threading.enumerate() if "pin" in thread.name)
    return found


@pytest.mark.parametrize("in_order", [True, False])
def test_a_killed_worker_is_reported(accelerator: Accelerator, in_order: bool) -> None:
    loader = DataLoader(Items("tensor", 4000), num_workers=2, pin_memory=True, in_order=in_order)
    iterator, pids = _live(loader)
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(RuntimeError, match=rf"pid\(s\) {pids[1]}\) exited unexpectedly.*SIGKILL"):
        for _ in range(4000):
            next(iterator)
    assert procs.wait_until(lambda: _all_gone(pids))
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        next(iterator)


class Stuck(Items):
    def __getitem__(self, index: Any) -> Any:
        if index == 3:
            time.sleep(60)
        return torch.tensor(index)


@pytest.mark.parametrize("in_order", [True, False])
def test_a_timeout_is_raised_with_the_sample(accelerator: Accelerator, in_order: bool) -> None:
    loader = DataLoader(
        Stuck("int", 8), num_workers=1, pin_memory=True, timeout=1, in_order=in_order
    )
    iterator = iter(loader)
    assert [int(next(iterator)) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(RuntimeError, match="DataLoader timed out after 1 seconds") as caught:
        next(iterator)
    assert "sample index 3" in str(caught.value)
    assert "in __getitem__" in str(caught.value)
    iterator._workers[0].kill()
    iterator._shutdown_workers()
    assert _threads() == []


def test_a_program_that_ends_amid_persistent_pinned_epochs_ends_cleanly() -> None:
    code = (
        "import torch\n"
        "torch.accelerator.is_available = lambda: True\n"
        "torch.accelerator.current_accelerator = lambda: torch.device('cuda')\n"
        "torch.accelerator.current_device_index = lambda: 0\n"
        "torch.accelerator.set_device_index = lambda index: None\n"
        "torch.Tensor.pin_memory = lambda self, device=None: self.clone()\n"
        "from millhead.torch import DataLoader\n"
        "loader = DataLoader(range(99), num_workers=2, persistent_workers=True, pin_memory=True)\n"
        "iterator = iter(loader)\n"
        "print([int(next(iterator)) for _ in range(5)])\n"
    )
    result = procs.run_python(code)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "[0, 1, 2, 3, 4]\n"
    assert not result.left  # type: ignore[attr-defined]
