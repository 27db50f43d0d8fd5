"""Datasets that are rows in memory: torch's batches, bit for bit, gathered at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from helpers import parity_cases as pc
from helpers import parity_data as pd
from helpers import procs
from helpers.compare import describe, describe_error
from millhead.torch import DataLoader
from torch._subclasses import FakeTensorMode
from torch.utils.data import Subset, TensorDataset
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

Torchs = torch.utils.data.DataLoader

LENGTH = 30
#: Once forwards, then with repetitions, and the last ones counted from the end.
ORDER = [*range(LENGTH), 3, 3, 29, 0, 17, -1, -LENGTH, -7, 5]


def _outcomes(loader: Any) -> Iterator[Any]:
    """Every batch or exception, described."""
    iterator = iter(loader)
    try:
        while True:
            try:
                batch = next(iterator)
            except StopIteration:
                return
            except Exception as error:  # noqa: BLE001 - an outcome to compare
                yield describe_error(error)
            else:
                yield describe(batch)
    finally:
        getattr(iterator, "_shutdown_workers", lambda: None)()


def _as_torch(dataset: Any, **arguments: Any) -> tuple[list[Any], dict[str, int]]:
    """Outcomes, after they were found to be torch's, and the paths they came by."""
    if "batch_sampler" not in arguments:
        arguments = {"batch_size": 4, "sampler": ORDER, **arguments}
    expected = list(_outcomes(Torchs(dataset, **arguments)))
    loader = DataLoader(dataset, **arguments)
    actual = list(_outcomes(loader))
    assert len(actual) == len(expected)
    for number, (left, right) in enumerate(zip(actual, expected, strict=True)):
        assert left == right, f"batch {number}"
    return actual, loader.stats()["paths"]


def _is_error(outcome: Any) -> bool:
    return outcome[0].startswith("builtins.") and outcome[0].endswith("Error")


# ---- tensors ---------------------------------------------------------------------------------------

TENSORS = pd.TENSOR_ROWS | pd.LOCAL_ROWS
#: What is no plain row of numbers after another, and comes the long way.
SCATTERED = {
    "every second column",
    "transposed",
    "transposed inside",
    "expanded inside",
    "channels last",
    "float8",
    *pd.LOCAL_ROWS,
}
GATHERED = [kind for kind in TENSORS if kind not in SCATTERED]


def _wrap(rows: Any, how: str) -> Any:
    """Rows as a dataset."""
    match how:
        case "columns":
            return TensorDataset(rows, torch.arange(len(rows)), rows)
        case "subset":
            return Subset(rows, [*range(1, LENGTH), 0])
        case "subset of columns":
            return Subset(TensorDataset(rows), list(range(-LENGTH, 0)))
    return rows


@pytest.mark.parametrize("how", ["rows", "columns", "subset", "subset of columns"])
@pytest.mark.parametrize("kind", TENSORS)
def test_rows_of_a_tensor_make_torchs_batches(kind: str, how: str) -> None:
    seen, _ = _as_torch(_wrap(TENSORS[kind](LENGTH), how))
    assert len(seen) == 10


@pytest.mark.parametrize("how", ["rows", "columns", "subset", "subset of columns"])
@pytest.mark.parametrize("kind", GATHERED)
def test_plain_rows_are_gathered(kind: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's ways to a sample gone, there is only one way left."""
    dataset = _wrap(TENSORS[kind](LENGTH), how)
    loader = DataLoader(dataset, batch_size=4, sampler=ORDER)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "stack", None)
        if how.endswith("columns"):
            patch.setattr(Subset, "__getitem__", None)
        batches = list(loader)
    assert len(batches) == 10
    assert loader.stats()["paths"] == {"slot": 10, "general": 0, "torch": 0}


def test_plain_columns_come_by_slot_from_workers_and_equal_torchs() -> None:
    # A batch with a leaf of no elements takes the general path.
    kinds = [kind for kind in GATHERED if kind != "zero-size rows"]
    dataset = TensorDataset(*(TENSORS[kind](LENGTH) for kind in kinds))
    seen, paths = _as_torch(dataset, num_workers=2, prefetch_factor=1, batch_size=2)
    assert len(seen) == 20
    assert paths["slot"] >= 20 - 4
    assert paths["torch"] == 0


def test_other_columns_from_workers_equal_torchs() -> None:
    kinds = [kind for kind in SCATTERED if kind not in ("float8", *pd.LOCAL_ROWS)]
    dataset = TensorDataset(*(TENSORS[kind](LENGTH) for kind in sorted(kinds)))
    seen, paths = _as_torch(dataset, num_workers=2, prefetch_factor=1)
    assert len(seen) == 10
    assert paths["torch"] == 0


@pytest.mark.parametrize("kind", ["float8", *pd.LOCAL_ROWS])
def test_odd_tensors_from_workers_equal_torchs(kind: str) -> None:
    seen, _ = _as_torch(TENSORS[kind](LENGTH), num_workers=1)
    assert len(seen) == 10


@pytest.mark.parametrize("how", ["rows", "subset", "subset of columns"])
def test_every_way_to_hold_rows_works_in_workers(how: str) -> None:
    seen, paths = _as_torch(_wrap(TENSORS["matrix"](LENGTH), how), num_workers=2, batch_size=2)
    assert len(seen) == 20
    assert paths["slot"] >= 20 - 8


def test_spawned_workers_gather_too() -> None:
    rows = TENSORS["some columns"](LENGTH)
    dataset = TensorDataset(rows, torch.arange(LENGTH))
    loader = DataLoader(
        dataset, batch_size=3, num_workers=2, prefetch_factor=1, multiprocessing_context="spawn"
    )
    for number, (some, labels) in enumerate(loader):
        assert torch.equal(some, rows[3 * number : 3 * number + 3])
        assert labels.tolist() == [3 * number, 3 * number + 1, 3 * number + 2]
    assert loader.stats()["paths"]["slot"] >= 10 - 4


def test_a_gradient_reaches_the_dataset() -> None:
    rows = pd.LOCAL_ROWS["requires grad"](6)
    for batch in DataLoader(rows, batch_size=4):
        assert batch.requires_grad
        batch.sum().backward()
    assert rows.grad is not None
    assert torch.equal(rows.grad, torch.ones(6, 3))


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("kind", ["matrix", "vector", "requires grad", "transposed", "bool"])
def test_batches_are_made_in_the_callers_mode(kind: str, mode: Any) -> None:
    with mode():
        seen, _ = _as_torch(_wrap(TENSORS[kind](LENGTH), "columns"))
    assert len(seen) == 10


@pytest.mark.parametrize(
    "dataset",
    [
        list(range(6)),
        [0.5] * 6,
        [True] * 6,
        [np.float32(1)] * 6,
        [np.ones(2)] * 6,
        np.ones((6, 2)),
        np.ones(6),
    ],
    ids=["ints", "floats", "bools", "scalars", "arrays", "array", "vector array"],
)
def test_batches_are_made_on_the_callers_device(dataset: Any) -> None:
    def batch(cls: Any) -> Any:
        iterator = iter(cls(dataset, batch_size=2))
        with torch.device("meta"):
            return next(iterator)

    assert describe(batch(DataLoader)) == describe(batch(Torchs))


def _on_meta(worker: int) -> None:
    torch.set_default_device("meta")


@pytest.mark.parametrize(
    "dataset",
    [list(range(20)), [np.ones(2)] * 20, np.ones((20, 2)), torch.ones(20, 2)],
    ids=["ints", "arrays", "array", "tensor"],
)
def test_batches_are_made_on_the_workers_device(dataset: Any) -> None:
    arguments = {"batch_size": 2, "sampler": range(20), "worker_init_fn": _on_meta}
    seen, _ = _as_torch(dataset, num_workers=1, **arguments)
    assert len(seen) == 10


@pytest.mark.parametrize("dataset", [list(range(6)), np.ones((6, 2)), torch.ones(6, 2)], ids=type)
def test_batches_are_made_in_a_mode_without_memory(dataset: Any) -> None:
    """Where even a new tensor is none with memory that C could write to."""

    def outcome(cls: Any) -> Any:
        iterator = iter(cls(dataset, batch_size=2))
        with FakeTensorMode():
            try:
                batch = next(iterator)
            except Exception as error:  # noqa: BLE001 - an outcome to compare
                return describe_error(error)
        return type(batch), batch.shape, batch.dtype

    assert outcome(DataLoader) == outcome(Torchs)


@pytest.mark.parametrize("how", ["rows", "columns"])
def test_tensors_stay_where_they_are_whatever_the_callers_device(how: str) -> None:
    iterator = iter(DataLoader(_wrap(TENSORS["matrix"](LENGTH), how), batch_size=2))
    with torch.device("meta"):
        batch = next(iterator)
    assert {leaf.device.type for leaf in _leaves(batch)} == {"cpu"}


def test_a_tensor_of_many_dimensions_is_collated_as_ever() -> None:
    rows = torch.arange(LENGTH * 2).reshape(LENGTH, *[1] * 40, 2)
    assert len(_as_torch(rows)[0]) == 10


@pytest.mark.parametrize("workers", [0, 1])
def test_a_tensor_without_memory_is_no_trouble(workers: int) -> None:
    dataset = TensorDataset(torch.empty(LENGTH, 3, device="meta"), torch.arange(LENGTH))
    assert len(_as_torch(dataset, num_workers=workers)[0]) == 10


#: A segmentation fault would end the tests themselves.
WITHOUT_MEMORY = """
import torch, torch.utils.data, millhead.torch

def freed():
    tensor = torch.ones(6, 2)
    tensor.untyped_storage().resize_(0)
    return tensor

def outcome(cls, dataset):
    try:
        return [str(batch) for batch in cls(dataset, batch_size=3)]
    except Exception as error:
        return type(error)

for make in (
    lambda: torch._efficientzerotensor((6, 2)),
    lambda: torch._to_functional_tensor(torch.ones(6, 2)),
    freed,
):
    for wrap in (lambda tensor: tensor, torch.utils.data.TensorDataset):
        ours = outcome(millhead.torch.DataLoader, wrap(make()))
        assert ours == outcome(torch.utils.data.DataLoader, wrap(make())), ours

def collate(samples):
    return torch.ones(6, 2) if samples[0] < 20 else freed()

loader = millhead.torch.DataLoader(range(40), batch_size=2, num_workers=1, collate_fn=collate)
assert [tuple(batch.shape) for batch in loader] == [(6, 2)] * 20
"""


def test_tensors_without_their_memory_do_not_crash() -> None:
    result = procs.run_python(WITHOUT_MEMORY)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_tensor_longer_than_its_storage_is_not_read_beyond_it(workers: int) -> None:
    rows = torch.ones(LENGTH, 2)
    rows.untyped_storage().resize_(5 * 2 * 4)
    seen, _ = _as_torch(rows, num_workers=workers)
    assert not _is_error(seen[0])
    assert _is_error(seen[1])


def test_a_batch_longer_than_its_storage_is_not_copied_to_a_slot() -> None:
    def collate(samples: list[int]) -> torch.Tensor:
        batch = torch.ones(7, 3)[1:]  # the last element begins at byte 80
        if samples[0] >= 10:
            batch.untyped_storage().resize_(83 if samples[0] % 2 else 84)
        return batch

    loader = DataLoader(range(20), num_workers=1, prefetch_factor=1, collate_fn=collate)
    whole = [torch.equal(batch, torch.ones(6, 3)) for batch in loader]
    assert whole[:10] == [True] * 10
    assert whole[10::2] == [True] * 5
    # All but the first by slot, those of odd numbers no more: torch makes their storage longer.
    assert loader.stats()["paths"]["slot"] == 9 + 5


@pytest.mark.parametrize(
    "dtype",
    [
        torch.uint4,
        torch.int3,
        torch.bits8,
    ],
    ids=str,
)
def test_a_dtype_is_never_taken_for_another(dtype: torch.dtype) -> None:
    def collate(samples: list[int]) -> torch.Tensor:
        return torch.zeros(6, 2, dtype=torch.uint8).view(dtype)

    loader = DataLoader(range(8), num_workers=1, prefetch_factor=1, collate_fn=collate)
    assert [batch.dtype for batch in loader] == [dtype] * 8


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("dtype", [torch.uint4, torch.int3], ids=str)
def test_rows_of_small_integers_make_torchs_batches(dtype: torch.dtype, workers: int) -> None:
    rows = torch.zeros(LENGTH, 2, dtype=torch.uint8).view(dtype)

    def outcome(cls: Any, dataset: Any) -> Any:
        loader = cls(dataset, batch_size=4, num_workers=workers)
        try:
            return {leaf.dtype for batch in loader for leaf in _leaves(batch)}
        except TypeError as error:  # torch cannot collate them in workers
            return type(error)

    expected = outcome(Torchs, rows)  # once: torch waits 5 s for a worker that failed so
    assert expected == (TypeError if workers else {dtype})
    for dataset in (rows, TensorDataset(rows), list(rows)):
        assert outcome(DataLoader, dataset) == expected


@pytest.mark.parametrize(
    "make",
    [torch.nn.Parameter, lambda rows: rows.as_subclass(pc.Marked)],
    ids=["parameter", "subclass"],
)
def test_subclasses_of_tensors_are_collated_as_ever(make: Callable[[Any], Any]) -> None:
    rows = make(TENSORS["matrix"](LENGTH))
    for dataset in (rows, TensorDataset(rows), Subset(rows, range(LENGTH))):
        assert len(_as_torch(dataset)[0]) == 10


# ---- arrays ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("how", ["rows", "subset"])
@pytest.mark.parametrize("kind", pd.ARRAY_ROWS)
def test_rows_of_an_array_make_torchs_batches(kind: str, how: str) -> None:
    seen, _ = _as_torch(_wrap(pd.ARRAY_ROWS[kind](LENGTH), how))
    assert len(seen) == 10


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize(
    "kind",
    [
        "float vector",
        "matrix",
        "five dimensions",
        "large rows",
        "fortran",
        "rows backwards",
        "columns backwards",
        "read-only",
        "big-endian",
        "object",
        "?",
        "u2",
        "c16",
    ],
)
def test_rows_of_an_array_from_workers_equal_torchs(kind: str) -> None:
    seen, paths = _as_torch(pd.ARRAY_ROWS[kind](LENGTH), num_workers=1, prefetch_factor=1)
    assert len(seen) == 10
    fits = not any(_is_error(outcome) for outcome in seen)
    assert (paths["slot"] > 0) == fits


def test_a_memory_mapped_array_is_a_dataset(tmp_path: Any) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, pd.ARRAY_ROWS["matrix"](LENGTH))
    rows = np.load(path, mmap_mode="r+")
    for workers in (0, 1):
        assert len(_as_torch(rows, num_workers=workers)[0]) == 10
    del rows


# ---- indices -----------------------------------------------------------------------------------------


class Indexable:
    """An index of the user's own."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


#: Made anew each time: torch moves index tensors to shared memory when it sends them.
INDICES: dict[str, Callable[[], list[Any]]] = {
    "numpy int64": lambda: [np.int64(n) for n in ORDER],
    "numpy uint8": lambda: [np.uint8(n % LENGTH) for n in ORDER],
    "tensors": lambda: [torch.tensor(n) for n in ORDER],
    "tensors of one": lambda: [torch.tensor([n]) for n in ORDER],
    "own class": lambda: [Indexable(n) for n in ORDER],
    "bools": lambda: [True, False, True, True, False],
    "floats": lambda: [0.0, 1.5],
    "lists": lambda: [[0, 1], [2, 3]],
    "slices": lambda: [slice(0, 2), slice(2, 4)],
    "tuples": lambda: [(0, 1), (2, 1)],
    "none": lambda: [None, None],
    "ellipsis": lambda: [...],
    "strings": lambda: ["a", "b"],
    "mixed": lambda: [0, np.int32(3), torch.tensor(5), Indexable(7), True],
    "too far": lambda: [0, 1, 2, 3, 4, LENGTH, 5, 6, 7],
    "too far back": lambda: [0, 1, 2, 3, -LENGTH - 1, 4, 5, 6],
    "huge": lambda: [0, 1, 2**63, 3, 4, 5, 6, 7, -(2**63) - 1, 3],
    "largest": lambda: [2**63 - 1, 1, 2, 3, -(2**63), 0, 1, 2],
}


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence for multidimensional indexing")
@pytest.mark.parametrize("rows", ["tensor", "columns", "array", "vector array"])
@pytest.mark.parametrize("indices", INDICES)
def test_indices_of_any_kind_give_what_torch_gives(indices: str, rows: str) -> None:
    dataset = {
        "tensor": TENSORS["matrix"](LENGTH),
        "columns": tensor_columns(),
        "array": pd.ARRAY_ROWS["matrix"](LENGTH),
        "vector array": pd.ARRAY_ROWS["vector"](LENGTH),
    }[rows]
    seen, _ = _as_torch(dataset, sampler=INDICES[indices]())
    assert len(seen) == -(-len(INDICES[indices]()) // 4)


def tensor_columns() -> TensorDataset:
    return TensorDataset(TENSORS["matrix"](LENGTH), TENSORS["vector"](LENGTH))


@pytest.mark.parametrize("indices", ["numpy int64", "own class", "too far", "huge", "slices"])
def test_indices_of_any_kind_in_workers_give_what_torch_gives(indices: str) -> None:
    dataset = tensor_columns()
    seen, _ = _as_torch(dataset, sampler=INDICES[indices](), num_workers=1, batch_size=2)
    assert len(seen) == -(-len(INDICES[indices]()) // 2)


@pytest.mark.parametrize("indices", ["tensors", "mixed"])
def test_tensors_as_indices_reach_workers(indices: str) -> None:
    """Not compared with torch's workers: to send tensors, torch leaves a socket open for good."""
    dataset = tensor_columns()
    wanted, _ = _as_torch(dataset, sampler=INDICES[indices]())
    loader = DataLoader(dataset, batch_size=4, sampler=INDICES[indices](), num_workers=1)
    assert list(_outcomes(loader)) == wanted


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("rows", ["tensor", "columns", "array", "subset"])
def test_an_index_out_of_range_raises_torchs_class_and_is_named(rows: str, workers: int) -> None:
    dataset: Any = {
        "tensor": TENSORS["matrix"](LENGTH),
        "columns": tensor_columns(),
        "array": pd.ARRAY_ROWS["matrix"](LENGTH),
        "subset": Subset(tensor_columns(), [0, 1, 2, 3, 99]),
    }[rows]
    wrong = 4 if rows == "subset" else LENGTH
    loader = DataLoader(dataset, batch_size=2, sampler=[0, 1, 2, wrong, 3, 0], num_workers=workers)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(IndexError) as caught:
        next(iterator)
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert f"sample index {wrong}" in text
    assert next(iterator) is not None
    with pytest.raises(StopIteration):
        next(iterator)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", pc.BATCH_TYPES)
def test_a_batch_of_indices_may_be_of_any_type(kind: str, workers: int) -> None:
    def batches() -> list[Any]:
        return [pc.BATCH_TYPES[kind](batch) for batch in ([3, 4], [0, 1, 2], [9, 10])]

    wanted, _ = _as_torch(tensor_columns(), batch_sampler=batches())
    loader = DataLoader(tensor_columns(), batch_sampler=batches(), num_workers=workers)
    assert list(_outcomes(loader)) == wanted
    assert len(wanted) == 3


@pytest.mark.parametrize("rows", ["tensor", "columns", "array"])
def test_an_empty_batch_raises_what_torch_raises(rows: str) -> None:
    dataset = {
        "tensor": TENSORS["matrix"](LENGTH),
        "columns": tensor_columns(),
        "array": pd.ARRAY_ROWS["matrix"](LENGTH),
    }[rows]
    seen, _ = _as_torch(dataset, batch_sampler=[[0, 1], [], [2]])
    assert [_is_error(outcome) for outcome in seen] == [False, True, False]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_empty_dataset_gives_no_batch(workers: int) -> None:
    for dataset in (torch.zeros(0, 3), np.zeros((0, 3)), TensorDataset(torch.zeros(0, 3))):
        assert list(DataLoader(dataset, batch_size=2, num_workers=workers)) == []


def test_rows_without_elements_are_batches_without_elements() -> None:
    seen, paths = _as_torch(torch.zeros(LENGTH, 2, 0, dtype=torch.int16))
    assert len(seen) == paths["slot"] == 10


@pytest.mark.parametrize("indices", [*pd.SUBSETS, "range"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_subsets_indices_may_be_of_any_type(indices: str, workers: int) -> None:
    dataset = tensor_columns()
    subset = (
        Subset(dataset, range(5, 25))
        if indices == "range"
        else pd.shuffled_subset(dataset, indices)
    )
    assert len(subset) == 20
    seen, _ = _as_torch(subset, sampler=[*range(20), -1, -20], num_workers=workers)
    assert len(seen) == 6


def test_a_subset_of_a_subset_and_a_split_give_what_torch_gives() -> None:
    dataset = Subset(Subset(tensor_columns(), range(0, LENGTH, 2)), [3, 1, 4, 1, 5])
    assert len(_as_torch(dataset, sampler=None)[0]) == 2
    split = torch.utils.data.random_split(tensor_columns(), [10, 20])[1]
    assert len(_as_torch(split, sampler=None)[0]) == 5


# ---- whose memory ------------------------------------------------------------------------------------


def _leaves(batch: Any) -> list[torch.Tensor]:
    return [batch] if isinstance(batch, torch.Tensor) else list(batch)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("rows", ["tensor", "columns", "array", "one row", "large"])
def test_a_batch_is_its_own_memory(rows: str, workers: int) -> None:
    dataset: Any = {
        "tensor": TENSORS["matrix"](LENGTH),
        "columns": tensor_columns(),
        "array": pd.ARRAY_ROWS["matrix"](LENGTH),
        "one row": torch.full((LENGTH, 3), 2.0),
        "large": TENSORS["large rows"](LENGTH),
    }[rows]
    columns = [torch.as_tensor(c) for c in getattr(dataset, "tensors", [dataset])]
    before = [column.clone() for column in columns]
    kept: list[torch.Tensor] = []
    for batch in DataLoader(dataset, batch_size=1, num_workers=workers):
        for leaf in _leaves(batch):
            assert leaf.storage_offset() == 0
            assert leaf.untyped_storage().nbytes() == leaf.numel() * leaf.element_size()
            leaf.add_(1)
            kept.append(leaf)
    for column, copy in zip(columns, before, strict=True):
        assert torch.equal(column, copy)
    assert len({leaf.data_ptr() for leaf in kept}) == len(kept)
    for number, leaf in enumerate(kept[:: len(columns)]):
        assert torch.equal(leaf[0], before[0][number] + 1)


def test_a_dataset_changed_between_epochs_is_read_as_it_is() -> None:
    rows = TENSORS["matrix"](LENGTH)
    loader = DataLoader(TensorDataset(rows), batch_size=LENGTH)
    (first,) = next(iter(loader))
    rows.mul_(2)
    (second,) = next(iter(loader))
    assert torch.equal(first * 2, second)
    loader.dataset.tensors = (rows + 1,)  # type: ignore[attr-defined]
    assert torch.equal(next(iter(loader))[0], second + 1)


def test_an_array_is_let_go_once_its_rows_are_gathered() -> None:
    rows = np.zeros((LENGTH, 3))
    before = sys.getrefcount(rows)
    assert len(list(DataLoader(rows, batch_size=2))) == LENGTH // 2
    assert sys.getrefcount(rows) == before
    rows.resize((2 * LENGTH, 3))  # refused while somebody looks at its memory


@pytest.mark.parametrize("workers", [0, 2])
def test_several_threads_gather_large_batches_from_one_dataset(workers: int) -> None:
    rows = torch.arange(64.0).reshape(64, 1).expand(64, 40_000).contiguous()
    dataset = TensorDataset(rows, torch.arange(64))
    wrong: list[Any] = []

    def read() -> None:
        for batch, labels in DataLoader(dataset, batch_size=16, shuffle=True, num_workers=workers):
            if not torch.equal(batch, labels.float().unsqueeze(1).expand(16, 40_000)):
                wrong.append(labels)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


# ---- the user's own code -------------------------------------------------------------------------------


class Doubled(TensorDataset):
    """Changes what a sample is."""

    def __getitem__(self, index: Any) -> Any:
        return tuple(tensor[index] * 2 for tensor in self.tensors)


class Together(TensorDataset):
    """Fetches whole batches in its own way."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [(self.tensors[0][index], index) for index in reversed(indices)]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("cls", [Doubled, Together])
def test_a_subclass_of_tensor_dataset_keeps_its_own_ways(cls: Any, workers: int) -> None:
    plain = describe(next(iter(DataLoader(tensor_columns(), batch_size=4))))
    for dataset in (
        cls(*tensor_columns().tensors),
        Subset(cls(*tensor_columns().tensors), range(30)),
    ):
        seen, _ = _as_torch(dataset, num_workers=workers)
        assert seen[0] != plain


@pytest.mark.parametrize("workers", [0, 1])
def test_a_patched_tensor_dataset_is_heeded(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        TensorDataset, "__getitem__", lambda self, index: self.tensors[0][index] * 3
    )
    seen, _ = _as_torch(tensor_columns(), num_workers=workers)
    assert seen[0] == describe(TENSORS["matrix"](LENGTH)[:4] * 3)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("where", ["class", "instance", "subset class"])
def test_getitems_given_to_a_plain_class_is_heeded(
    where: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset: Any = tensor_columns()
    if where == "class":
        monkeypatch.setattr(TensorDataset, "__getitems__", _in_reverse, raising=False)
    elif where == "instance":
        dataset.__getitems__ = lambda indices: _in_reverse(dataset, indices)
    else:
        dataset = Subset(dataset, range(LENGTH))
        monkeypatch.setattr(Subset, "__getitems__", _in_reverse)
    seen, _ = _as_torch(dataset, num_workers=workers)
    assert seen[0] == describe(
        [TENSORS["matrix"](LENGTH)[:4].flip(0), torch.tensor([24, 17, 10, 3])]
    )


def _in_reverse(dataset: Any, indices: list[int]) -> list[Any]:
    return [dataset[index] for index in reversed(indices)]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_collate_function_gets_the_samples(workers: int) -> None:
    def collate(samples: list[Any]) -> Any:
        assert all(type(sample) is tuple and len(sample) == 2 for sample in samples)
        return torch.stack([sample[0] for sample in samples]).flip(0)

    seen, _ = _as_torch(tensor_columns(), num_workers=workers, collate_fn=collate)
    assert seen[0] == describe(TENSORS["matrix"](LENGTH)[:4].flip(0))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("rows", ["tensor", "columns", "subset"])
def test_an_extended_table_of_collate_functions_is_heeded(
    rows: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collate(batch: Any, *, collate_fn_map: Any = None) -> Any:
        return collate_tensor_fn(batch, collate_fn_map=collate_fn_map) + 100

    dataset: Any = {
        "tensor": TENSORS["matrix"](LENGTH),
        "columns": tensor_columns(),
        "subset": Subset(TENSORS["matrix"](LENGTH), range(LENGTH)),
    }[rows]
    plain = list(_outcomes(DataLoader(dataset, batch_size=4)))
    monkeypatch.setitem(default_collate_fn_map, torch.Tensor, collate)
    seen, _ = _as_torch(dataset, num_workers=workers)
    assert seen[0] != plain[0]
    monkeypatch.undo()
    assert list(_outcomes(DataLoader(dataset, batch_size=4, num_workers=workers))) == plain


@pytest.mark.parametrize("workers", [0, 1])
def test_a_table_extended_for_arrays_is_heeded(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collate(batch: Any, *, collate_fn_map: Any = None) -> Any:
        return ["arrays", len(batch)]

    monkeypatch.setitem(default_collate_fn_map, np.ndarray, collate)
    seen, _ = _as_torch(pd.ARRAY_ROWS["matrix"](LENGTH), num_workers=workers)
    assert seen[0] == describe(["arrays", 4])


@pytest.mark.parametrize("workers", [0, 1])
def test_without_batches_the_rows_come_one_by_one(workers: int) -> None:
    for dataset in (TENSORS["matrix"](9), tensor_columns(), pd.ARRAY_ROWS["matrix"](9)):
        seen, _ = _as_torch(dataset, batch_size=None, sampler=[0, 3, -1], num_workers=workers)
        assert len(seen) == 3
    whole = [[0, 1, 2], [5, 4]]
    seen, _ = _as_torch(tensor_columns(), batch_size=None, sampler=whole, num_workers=workers)
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("cls", "count"), [(pc.ManyItems, 12), (pd.ManyFewer, 9), (pd.ManyMore, 24)]
)
@pytest.mark.parametrize("workers", [0, 1])
def test_samples_of_getitems_are_counted_as_they_came(
    cls: type[pc.Items], count: int, workers: int
) -> None:
    loader = DataLoader(cls("int", 12), batch_size=4, num_workers=workers)
    assert sum(len(batch) for batch in loader) == count
    assert loader.stats()["samples"] == count


# ---- stats -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", ["tensor", "columns", "array", "subset"])
@pytest.mark.parametrize("workers", [0, 2])
def test_gathered_batches_count_as_slot_with_all_their_samples(rows: str, workers: int) -> None:
    dataset: Any = {
        "tensor": TENSORS["matrix"](LENGTH),
        "columns": tensor_columns(),
        "array": pd.ARRAY_ROWS["matrix"](LENGTH),
        "subset": Subset(tensor_columns(), range(LENGTH)),
    }[rows]
    loader = DataLoader(dataset, batch_size=4, num_workers=workers, persistent_workers=workers > 0)
    for _ in range(3):
        assert sum(len(_leaves(batch)[0]) for batch in loader) == LENGTH
    stats = loader.stats()
    assert stats["path"] == "slot"
    assert (stats["batches"], stats["samples"], stats["epoch"]) == (24, 90, 3)
    assert stats["paths"]["general"] <= 4 * workers
    assert stats["wait_ms"]["count"] >= 24
