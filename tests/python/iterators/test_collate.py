"""default_collate: torch's result for every kind of sample, and the path each one takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from helpers import parity_cases as pc
from helpers.compare import describe, describe_error
from helpers.parity_cases import Items
from millhead.torch import DataLoader
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

Torchs = torch.utils.data.DataLoader

SIZE = 3
BATCHES = 8


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


def _expected(kind: str) -> list[Any]:
    """What torch's collate function gives when it is called by hand."""
    found: list[Any] = []
    for number in range(BATCHES):
        samples = [Items(kind, 99)[number * SIZE + place] for place in range(SIZE)]
        try:
            found.append(describe(default_collate(samples)))
        except Exception as error:  # noqa: BLE001 - an outcome to compare
            found.append(describe_error(error))
    return found


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("kind", pc.SAMPLES)
def test_without_workers_a_batch_is_what_default_collate_gives(kind: str) -> None:
    loader = DataLoader(Items(kind, SIZE * BATCHES), batch_size=SIZE)
    assert list(_outcomes(loader)) == _expected(kind)


# What torch's collate gives in a worker differs for some (it stacks into shared memory), so a
# worker is compared with torch's own worker. A few kinds at a time share the cost of starting.
SENDABLE = [kind for kind in pc.SAMPLES if kind not in pc.UNSENDABLE]
if torch.__version__ < "2.13":  # there torch's workers cannot send tensors without memory; ours can
    SENDABLE.remove("meta tensor")
GROUPS = [SENDABLE[first : first + 12] for first in range(0, len(SENDABLE), 12)]


class Several:
    """The batches of several kinds of samples, one kind after the other."""

    def __init__(self, kinds: list[str]) -> None:
        self.kinds = kinds

    def __len__(self) -> int:
        return len(self.kinds) * SIZE * BATCHES

    def __getitem__(self, index: int) -> Any:
        kind, number = divmod(index, SIZE * BATCHES)
        return pc.SAMPLES[self.kinds[kind]](number)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("kinds", GROUPS, ids=lambda kinds: f"{kinds[0]} to {kinds[-1]}")
def test_in_a_worker_a_batch_is_what_torchs_worker_gives(kinds: list[str]) -> None:
    arguments: dict[str, Any] = {"batch_size": SIZE, "num_workers": 1}
    expected = list(_outcomes(Torchs(Several(kinds), **arguments)))
    actual = list(_outcomes(DataLoader(Several(kinds), **arguments)))
    assert len(expected) == len(actual) == len(kinds) * BATCHES
    for number, (left, right) in enumerate(zip(actual, expected, strict=True)):
        assert left == right, kinds[number // BATCHES]


# ---- paths ---------------------------------------------------------------------------------------


def _paths(kind: str, workers: int, **arguments: Any) -> dict[str, int]:
    loader = DataLoader(Items(kind, SIZE * 12), batch_size=SIZE, num_workers=workers, **arguments)
    for _ in _outcomes(loader):
        pass
    return dict(loader.stats()["paths"])


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("kind", pc.PLAIN)
def test_without_workers_plain_samples_are_collated_in_c(kind: str) -> None:
    assert _paths(kind, 0) == {"slot": 12, "general": 0, "torch": 0}


@pytest.mark.parametrize(
    "kind",
    [
        "tensor",
        "dict",
        "namedtuple",
        "nested",
        "nested namedtuple",
        "tuple",
        "list",
        "bool",
        "bfloat16 tensor",
        "float16 scalar",
        "numpy float64",
        "array",
        "permuted tensor",
        "large",
        "many leaves",
    ],
)
def test_in_workers_plain_samples_come_by_slot_once_the_schema_is_known(kind: str) -> None:
    paths = _paths(kind, 1, prefetch_factor=2)
    assert paths["torch"] == 0
    assert paths["slot"] + paths["general"] == 12
    assert 12 - 2 * 2 <= paths["slot"] <= 12 - 1


@pytest.mark.parametrize("kind", ["str", "sparse tensor", "ragged", "object", "list subclass"])
@pytest.mark.parametrize("workers", [0, 1])
def test_samples_that_need_torchs_collate_never_come_by_slot(kind: str, workers: int) -> None:
    assert _paths(kind, workers)["slot"] == 0


@pytest.mark.parametrize("workers", [0, 1])
def test_the_last_short_batch_comes_by_slot_too(workers: int) -> None:
    loader = DataLoader(Items("dict", 31), batch_size=3, num_workers=workers, prefetch_factor=None)
    sizes = [len(batch["y"]) for batch in loader]
    assert sizes == [3] * 10 + [1]
    general = loader.stats()["paths"]["general"]
    assert general == 0 if workers == 0 else general <= 4


@pytest.mark.parametrize("collate", ["dict", "tuple", "namedtuple", "wrapped default"])
def test_a_custom_collates_tensors_come_by_slot_from_workers(collate: str) -> None:
    loader = DataLoader(
        Items("tensor", 36),
        batch_size=SIZE,
        num_workers=1,
        prefetch_factor=1,
        collate_fn=pc.COLLATES[collate],
    )
    batches = list(loader)
    assert len(batches) == 12
    assert loader.stats()["paths"]["slot"] >= 9


@pytest.mark.parametrize("workers", [0, 1])
def test_a_custom_collate_is_called_even_where_the_default_would_fit(workers: int) -> None:
    loader = DataLoader(
        Items("int", 40), batch_size=2, num_workers=workers, collate_fn=pc.collate_changed
    )
    assert [batch.tolist() for batch in loader] == [[2 * n + 1, 2 * n] for n in range(20)]


def test_batches_of_mixed_forms_take_the_path_each_one_needs() -> None:
    loader = DataLoader(
        Several(["int", "str", "int"]), batch_size=SIZE, num_workers=1, prefetch_factor=1
    )
    batches = list(loader)
    assert [type(batch) for batch in batches] == (
        [torch.Tensor] * BATCHES + [list] * BATCHES + [torch.Tensor] * BATCHES
    )
    paths = loader.stats()["paths"]
    assert paths["general"] >= BATCHES
    assert paths["slot"] >= BATCHES


# ---- what the batch is ----------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ["tensor", "large", "int", "dict"])
def test_every_leaf_is_writable_contiguous_and_has_its_own_storage(kind: str, workers: int) -> None:
    batches = list(DataLoader(Items(kind, 24), batch_size=2, num_workers=workers))
    storages = set()
    for batch in batches:
        for leaf in batch.values() if isinstance(batch, dict) else [batch]:
            assert leaf.is_contiguous()
            assert leaf.storage_offset() == 0
            assert leaf.untyped_storage().nbytes() == leaf.numel() * leaf.element_size()
            leaf.fill_(1)
            storages.add(leaf.data_ptr())
    assert len(storages) == len(batches) * (2 if kind == "dict" else 1)


@pytest.mark.parametrize("kind", ["tensor", "large"])
def test_without_workers_a_batch_can_be_resized(kind: str) -> None:
    for batch in DataLoader(Items(kind, 4), batch_size=2):
        before = batch.clone()
        batch.resize_(before.numel() * 2)
        assert torch.equal(batch[: before.numel()], before.flatten())


@pytest.mark.parametrize("workers", [0, 1])
def test_saving_a_batch_saves_only_the_batch(workers: int, tmp_path: Any) -> None:
    loader = DataLoader(Items("large", 12), batch_size=1, num_workers=workers)
    for number, batch in enumerate(loader):
        file = tmp_path / f"{number}.pt"
        torch.save(batch, file)
        assert file.stat().st_size < batch.nbytes + 8192
        assert torch.equal(torch.load(file), batch)


@pytest.mark.parametrize("workers", [0, 1])
def test_tensors_of_a_batch_that_share_memory_still_share_it(workers: int) -> None:
    loader = DataLoader(
        Items("int", 24), batch_size=2, num_workers=workers, collate_fn=pc.collate_twice
    )
    for batch in loader:
        assert batch["one"] is batch["same"]
        batch["one"].fill_(7)
        assert batch["part"].tolist() == [7]


@pytest.mark.parametrize("cls", [pc.ReusedBuffer, pc.ReusedArray])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_that_reuses_a_buffer_gives_its_last_value_in_every_row(
    cls: type[Items], workers: int
) -> None:
    loader = DataLoader(cls("int", 18), batch_size=3, num_workers=workers, prefetch_factor=None)
    last = []
    for batch in loader:
        rows = batch["x"] if isinstance(batch, dict) else batch
        assert rows.unique().numel() == 1
        last.append(int(rows[0, 0]))
    assert last == [2, 5, 8, 11, 14, 17]


class Shared:
    """Hands out a few tensors again and again, in turn."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.tensors = tensors

    def __len__(self) -> int:
        return 160  # enough for batches by slot

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.tensors[index % len(self.tensors)]


_ROW = torch.arange(6.0).reshape(2, 3)
SHARED = {
    "one": [_ROW],
    "three": [_ROW, _ROW + 10, _ROW + 20],
    "five": [_ROW + k for k in range(5)],
    "no dimension": [torch.tensor(7), torch.tensor(8)],
    "empty": [torch.empty(0, 3)],
    "part of another": [torch.arange(20.0)[5:9]],
    "strided": [_ROW.t(), (_ROW + 1).t()],
    "expanded": [torch.tensor([1.0]).expand(4)],
    "one column": [torch.arange(6.0).reshape(3, 2)[:, :1]],
    "bfloat16": [_ROW.bfloat16()],
    "bool": [torch.tensor([True, False]), torch.tensor([False, False])],
    "complex": [torch.tensor([1 + 2j])],
    "conjugate": [torch.tensor([1 + 2j]).conj()],
    "negative": [torch.tensor([1 + 2j]).conj().imag],
    "imaginary": [torch._neg_view(_ROW)],
    "gradient": [_ROW.clone().requires_grad_()],
    "one gradient": [_ROW, _ROW.clone().requires_grad_()],
    "two types": [_ROW, _ROW.int()],
    "two shapes": [_ROW, _ROW.t()],
    "sparse": [_ROW.to_sparse()],
    "parameter": [torch.nn.Parameter(_ROW, requires_grad=False)],
}


@pytest.mark.parametrize("kind", SHARED)
@pytest.mark.parametrize("workers", [0, 1])
def test_tensors_that_samples_share_are_collated_as_any(kind: str, workers: int) -> None:
    arguments = {"batch_size": 20, "num_workers": workers}  # each of five is often enough
    expected = list(_outcomes(torch.utils.data.DataLoader(Shared(SHARED[kind]), **arguments)))
    assert list(_outcomes(DataLoader(Shared(SHARED[kind]), **arguments))) == expected


def test_a_batch_of_shared_tensors_is_a_copy() -> None:
    tensor = torch.zeros(3)
    for batch in DataLoader(Shared([tensor]), batch_size=16):
        batch += 1
    assert tensor.tolist() == [0, 0, 0]


# ---- what the user may change ---------------------------------------------------------------------


class Celsius:
    def __init__(self, degrees: float) -> None:
        self.degrees = degrees


class Weather:
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return Celsius(float(index)), index


def collate_celsius(batch: list[Celsius], *, collate_fn_map: Any = None) -> Any:
    return torch.tensor([item.degrees for item in batch])


def collate_int_as_text(batch: list[int], *, collate_fn_map: Any = None) -> Any:
    return "+".join(str(item) for item in batch)


@pytest.fixture
def collate_map() -> Iterator[dict[Any, Any]]:
    before = dict(default_collate_fn_map)
    yield default_collate_fn_map
    default_collate_fn_map.clear()
    default_collate_fn_map.update(before)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_type_added_to_the_collate_map_is_collated(
    collate_map: dict[Any, Any], workers: int
) -> None:
    collate_map[Celsius] = collate_celsius
    batches = list(DataLoader(Weather(8), batch_size=2, num_workers=workers))
    assert [batch[0].tolist() for batch in batches] == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_replaced_entry_of_the_collate_map_is_honoured(
    collate_map: dict[Any, Any], workers: int
) -> None:
    collate_map[int] = collate_int_as_text
    batches = list(DataLoader(Items("int", 4), batch_size=2, num_workers=workers))
    assert batches == ["0+1", "2+3"]


def add_celsius(worker: int) -> None:
    default_collate_fn_map[Celsius] = collate_celsius
    default_collate_fn_map[int] = collate_int_as_text


def test_a_collate_map_changed_in_the_worker_is_honoured() -> None:
    loader = DataLoader(Weather(8), batch_size=2, num_workers=1, worker_init_fn=add_celsius)
    assert [batch[1] for batch in loader] == ["0+1", "2+3", "4+5", "6+7"]


def test_a_collate_map_changed_between_batches_is_honoured(collate_map: dict[Any, Any]) -> None:
    iterator = iter(DataLoader(Items("int", 4), batch_size=2))
    assert next(iterator).tolist() == [0, 1]
    collate_map[int] = collate_int_as_text
    assert next(iterator) == "2+3"


def test_a_default_device_is_honoured() -> None:
    for cls in (Torchs, DataLoader):
        iterator = iter(cls(Items("tuple", 4), batch_size=2))
        with torch.device("meta"):
            _, label = next(iterator)
        assert label.device.type == "meta", cls


def test_a_default_dtype_is_honoured() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        (batch,) = DataLoader(Items("int then float", 2), batch_size=2)
    finally:
        torch.set_default_dtype(torch.float32)
    assert batch.dtype is torch.float64


@pytest.mark.parametrize("workers", [0, 1])
def test_batch_size_none_converts_arrays_and_leaves_the_rest(workers: int) -> None:
    def outcome(cls: Any, kind: str) -> list[Any]:
        loader = cls(Items(kind, 6), batch_size=None, num_workers=workers)
        return list(_outcomes(loader))

    for kind in ("array", "tuple", "dict", "str", "int", "numpy float64", "namedtuple"):
        assert outcome(DataLoader, kind) == outcome(Torchs, kind), kind


def test_getitems_is_called_once_for_a_batch() -> None:
    calls: list[list[int]] = []

    class Counting:
        def __len__(self) -> int:
            return 7

        def __getitem__(self, index: int) -> int:
            raise AssertionError("__getitems__ should have been called")

        def __getitems__(self, indices: list[int]) -> list[int]:
            calls.append(indices)
            return indices

    assert [batch.tolist() for batch in DataLoader(Counting(), batch_size=3)] == [
        [0, 1, 2],
        [3, 4, 5],
        [6],
    ]
    assert calls == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_numpy_array_of_indices_reaches_getitem_unchanged() -> None:
    seen: list[type] = []

    class Recording:
        def __getitem__(self, index: Any) -> int:
            seen.append(type(index))
            return 0

    list(DataLoader(Recording(), sampler=[np.int32(3), True, "key"], batch_size=3))
    assert seen == [np.int32, bool, str]


def _whether_shared(samples: list[Any]) -> list[bool]:
    return [default_collate(samples).is_shared()]


def test_a_collate_function_that_uses_torchs_needs_no_shared_files() -> None:
    shared = {}
    for cls in (torch.utils.data.DataLoader, DataLoader):
        loader = cls(Items("tensor", 4), num_workers=1, collate_fn=_whether_shared)
        shared[cls.__module__.partition(".")[0]] = list(loader)
    assert shared == {"torch": [[True]] * 4, "millhead": [[False]] * 4}
