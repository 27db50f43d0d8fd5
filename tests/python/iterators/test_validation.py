"""The constructor: torch's arguments, torch's refusals, torch's protected attributes."""

from __future__ import annotations

import inspect
import multiprocessing
from collections.abc import Iterator
from typing import Any

import millhead.torch
import pytest
import torch
from helpers.parity_cases import Items
from helpers.parity_data import Stream
from torch.utils.data import BatchSampler, RandomSampler, Sampler, SequentialSampler

Torchs = torch.utils.data.DataLoader
Ours = millhead.torch.DataLoader

MAP = Items("int", 8)
STREAM = Stream("int", 8)
SAMPLER = SequentialSampler(range(8))
BATCHES = BatchSampler(SAMPLER, 2, False)

INVALID: list[tuple[Any, dict[str, Any]]] = [
    (MAP, {"num_workers": -1}),
    (MAP, {"timeout": -1}),
    (MAP, {"timeout": -0.5, "num_workers": 2}),
    (MAP, {"prefetch_factor": 2}),
    (MAP, {"prefetch_factor": 0}),
    (MAP, {"prefetch_factor": -1, "num_workers": 1}),
    (MAP, {"persistent_workers": True}),
    (MAP, {"sampler": SAMPLER, "shuffle": True}),
    (MAP, {"batch_sampler": BATCHES, "batch_size": 2}),
    (MAP, {"batch_sampler": BATCHES, "batch_size": None}),
    (MAP, {"batch_sampler": BATCHES, "shuffle": True}),
    (MAP, {"batch_sampler": BATCHES, "sampler": SAMPLER}),
    (MAP, {"batch_sampler": BATCHES, "drop_last": True}),
    (MAP, {"batch_size": None, "drop_last": True}),
    (MAP, {"batch_size": 0}),
    (MAP, {"batch_size": -3}),
    (MAP, {"batch_size": True}),
    (MAP, {"batch_size": 2.0}),
    (MAP, {"batch_size": "2"}),
    (MAP, {"batch_size": 2, "drop_last": 1}),
    (MAP, {"num_workers": 1, "multiprocessing_context": "thread"}),
    (MAP, {"num_workers": 1, "multiprocessing_context": 7}),
    (MAP, {"multiprocessing_context": "fork"}),
    (MAP, {"multiprocessing_context": multiprocessing.get_context("fork")}),
    (MAP, {"num_workers": "2"}),
    (MAP, {"num_workers": None}),
    (MAP, {"no_such_argument": 1}),
    (STREAM, {"shuffle": True}),
    (STREAM, {"sampler": SAMPLER}),
    (STREAM, {"batch_sampler": BATCHES}),
    (STREAM, {"batch_size": None, "drop_last": True}),
    (Items("int", 0), {"shuffle": True}),
    (object(), {"shuffle": True}),
]


def _refusal(cls: type, dataset: Any, arguments: dict[str, Any]) -> tuple[type, str]:
    with pytest.raises(Exception) as caught:
        cls(dataset, **arguments)
    return caught.type, str(caught.value)


def _name_of(value: Any) -> str:
    if isinstance(value, dict):
        return "-".join(f"{key}={str(item)[:12]}" for key, item in value.items())
    return type(value).__name__


@pytest.mark.parametrize(("dataset", "arguments"), INVALID, ids=_name_of)
def test_an_invalid_combination_is_refused_in_torchs_words(
    dataset: Any, arguments: dict[str, Any]
) -> None:
    kind, text = _refusal(Torchs, dataset, arguments)
    assert _refusal(Ours, dataset, arguments) == (kind, text.replace("Torchs", "Ours"))


def test_too_many_positional_arguments_are_refused() -> None:
    arguments = [MAP, 1, None, None, None, 0, None, False, False, 0, None, None, None]
    Ours(*arguments)
    with pytest.raises(TypeError):
        Ours(*arguments, 2)


def test_torchs_parameters_are_an_exact_prefix_of_ours() -> None:
    def shape(cls: type) -> list[tuple[str, Any, Any]]:
        parameters = inspect.signature(cls).parameters.values()
        return [(item.name, item.kind, item.default) for item in parameters]

    theirs, ours = shape(Torchs), shape(Ours)
    assert ours[: len(theirs)] == theirs


def test_parameters_beyond_torchs_are_keyword_only() -> None:
    count = len(inspect.signature(Torchs).parameters)
    extra = list(inspect.signature(Ours).parameters.values())[count:]
    assert extra
    assert {item.kind for item in extra} == {inspect.Parameter.KEYWORD_ONLY}


def test_the_class_is_a_generic_subclass_of_torchs() -> None:
    assert issubclass(Ours, Torchs)
    assert Ours[int] is not None


def test_the_class_has_no_slots() -> None:
    loader = Ours(MAP)
    loader.anything = 3  # type: ignore[attr-defined]
    assert loader.anything == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "name",
    ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"],
)
def test_an_attribute_torch_protects_cannot_be_set(name: str) -> None:
    theirs, ours = Torchs(MAP), Ours(MAP)
    with pytest.raises(ValueError) as expected:
        setattr(theirs, name, None)
    with pytest.raises(ValueError) as actual:
        setattr(ours, name, None)
    assert str(actual.value) == str(expected.value)


@pytest.mark.parametrize(
    "name",
    ["num_workers", "prefetch_factor", "collate_fn", "worker_init_fn", "timeout", "generator"],
)
def test_an_attribute_torch_leaves_open_can_be_set(name: str) -> None:
    setattr(Ours(MAP), name, None)


@pytest.mark.parametrize("workers", [0, 1])
def test_public_instance_attributes_are_init_arguments(workers: int) -> None:
    loader = Ours(MAP, batch_size=2, num_workers=workers)
    for _ in loader:
        pass
    parameters = set(inspect.signature(Ours).parameters)
    public = {name for name in vars(loader) if not name.startswith("_")}
    assert public <= parameters


def test_every_added_argument_is_a_public_attribute() -> None:
    count = len(inspect.signature(Torchs).parameters)
    loader = Ours(MAP)
    for item in list(inspect.signature(Ours).parameters.values())[count:]:
        assert getattr(loader, item.name) == item.default


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"num_workers": 1},
        {"batch_size": None},
        {"batch_size": 3, "shuffle": True, "drop_last": True},
        {"batch_sampler": BATCHES},
        {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 5},
        {"num_workers": 1, "multiprocessing_context": "spawn", "timeout": 3.5},
    ],
    ids=_name_of,
)
def test_attributes_are_the_ones_torch_would_set(arguments: dict[str, Any]) -> None:
    theirs, ours = Torchs(MAP, **arguments), Ours(MAP, **arguments)
    names = {name for name in vars(theirs) if not name.startswith("_")}
    names |= {"multiprocessing_context"}
    for name in names:
        left, right = getattr(theirs, name), getattr(ours, name)
        assert type(left) is type(right), name
        if not isinstance(left, Sampler) or "sampler" in arguments:
            assert left == right, name


def test_the_real_sampler_and_a_plain_batch_sampler_stay_visible() -> None:
    sampler = RandomSampler(range(8))
    loader = Ours(MAP, batch_size=2, sampler=sampler)
    assert loader.sampler is sampler
    assert type(loader.batch_sampler) is BatchSampler
    assert loader.batch_sampler.sampler is sampler


class Lengthless(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(8))


@pytest.mark.parametrize(
    ("arguments", "length"),
    [
        ({}, 8),
        ({"batch_size": 3}, 3),
        ({"batch_size": 3, "drop_last": True}, 2),
        ({"batch_size": None}, 8),
        ({"batch_sampler": BATCHES}, 4),
        ({"batch_size": 3, "num_workers": 2}, 3),
    ],
    ids=_name_of,
)
def test_len_is_the_number_of_batches(arguments: dict[str, Any], length: int) -> None:
    loader = Ours(MAP, **arguments)
    assert len(loader) == length == len(list(loader))


def test_len_without_a_sampler_length_raises_typeerror() -> None:
    with pytest.raises(TypeError):
        len(Ours(MAP, sampler=Lengthless()))


def test_an_attribute_is_read_when_iteration_begins() -> None:
    loader = Ours(MAP, batch_size=8)
    loader.collate_fn = sum
    assert list(loader) == [28]
    loader.num_workers, loader.prefetch_factor = 1, 1
    assert list(loader) == [28]
    assert loader.stats()["workers"] == 1


@pytest.mark.parametrize("memory", ["2GB", "512 MiB", 10**9, None])
def test_a_memory_size_may_be_bytes_or_text(memory: Any) -> None:
    loader = Ours(MAP, memory=memory)
    assert loader.memory == memory


@pytest.mark.parametrize(
    ("memory", "size"),
    [
        (5, 5),
        ("17", 17),
        ("17 B", 17),
        ("2KB", 2000),
        ("2 kib", 2048),
        ("1.5MB", 1_500_000),
        ("512MiB", 512 * 2**20),
        ("2GB", 2 * 10**9),
        (" 2 GiB ", 2**31),
        ("1TB", 10**12),
        ("1TiB", 2**40),
        (None, None),
    ],
)
def test_a_memory_size_is_so_many_bytes(memory: Any, size: int | None) -> None:
    assert Ours(MAP, memory=memory)._memory_bytes == size


@pytest.mark.parametrize("memory", ["", "GB", "2 parsecs", "-1GB", 0, -5, "nan", "inf", "1e999"])
def test_a_memory_size_that_is_none_raises_valueerror(memory: Any) -> None:
    with pytest.raises(ValueError, match="memory"):
        Ours(MAP, memory=memory)


@pytest.mark.parametrize("memory", [2.5, True, [1]])
def test_a_memory_size_of_another_type_raises_typeerror(memory: Any) -> None:
    with pytest.raises(TypeError, match="memory"):
        Ours(MAP, memory=memory)


@pytest.mark.parametrize("dispatch", ["", "batches", None, 3])
def test_an_unknown_dispatch_raises_valueerror(dispatch: Any) -> None:
    with pytest.raises(ValueError, match="dispatch"):
        Ours(MAP, dispatch=dispatch)


def test_names_scripts_import_beside_the_loader_are_torchs_own() -> None:
    names = (
        "BatchSampler ConcatDataset Dataset IterableDataset RandomSampler "
        "Sampler SequentialSampler Subset SubsetRandomSampler TensorDataset "
        "WeightedRandomSampler default_collate default_convert get_worker_info random_split"
    )
    for name in names.split():
        assert getattr(millhead.torch, name) is getattr(torch.utils.data, name)
        assert name in millhead.torch.__all__
