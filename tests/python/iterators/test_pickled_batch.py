"""The general path keeps what pickling alone would lose: shared memory, strides, writability."""

from __future__ import annotations

import pickle
from typing import Any

import numpy
import pytest
import torch
from millhead.torch import DataLoader
from millhead.torch.workers import pickled_batch


class Numbers:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> float:
        return float(index)


def _views(samples: list[float]) -> dict[str, Any]:
    whole = torch.tensor(samples * 4).reshape(4, -1)
    return {"whole": whole, "row": whole[1], "again": whole, "turned": whole.t(), "name": "x"}


def _roundtrip(batch: Any) -> Any:
    """What the consumer gets when the pieces are copied as the consumer end copies them."""
    head, *rest = pickled_batch.dumps(batch)
    copies: list[Any] = [bytes(head)]
    for piece in rest:
        copies.append(piece.clone() if isinstance(piece, torch.Tensor) else bytearray(piece))
    return pickled_batch.loads(copies)


@pytest.mark.parametrize("workers", [0, 1])
def test_tensors_that_share_memory_still_do(workers: int) -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=workers, collate_fn=_views)
    for batch in loader:
        assert batch["again"] is batch["whole"]
        batch["whole"][1] = 7.0
        assert batch["row"].tolist() == [7.0] * 4
        assert batch["turned"][:, 1].tolist() == [7.0] * 4
    assert loader.stats()["path"] == "general"


def _overlapping(samples: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    whole = torch.tensor(samples * 3)
    return whole[:8], whole[4:]


@pytest.mark.parametrize("workers", [0, 1])
def test_tensors_that_overlap_still_do(workers: int) -> None:
    numbers = [float(number) for number in range(40)]  # enough for batches by slot
    loader = DataLoader(numbers, batch_size=4, num_workers=workers, collate_fn=_overlapping)
    for first, second in loader:
        first[4:] = 7.0
        assert second[:4].tolist() == [7.0] * 4
    assert loader.stats()["path"] == "general"


def test_tensors_that_do_not_share_memory_are_separate() -> None:
    storage = torch.zeros(10)
    left, right = _roundtrip((storage[:4], storage[4:]))
    left[:] = 1
    assert right.tolist() == [0.0] * 6


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24).reshape(2, 3, 4).permute(2, 0, 1),
        torch.arange(24).reshape(4, 6)[:, ::3],
        torch.arange(3).expand(5, 3),
    ],
)
def test_strides_are_kept(tensor: torch.Tensor) -> None:
    found = _roundtrip([tensor])[0]
    assert found.stride() == tensor.stride()
    assert torch.equal(found, tensor)


def _grey_images(samples: list[float]) -> torch.Tensor:
    images = torch.tensor(samples).reshape(-1, 1, 1, 1).expand(-1, 1, 4, 3)
    return images.contiguous(memory_format=torch.channels_last)


def test_strides_of_one_element_are_kept_in_every_batch() -> None:
    images = DataLoader(
        Numbers(), batch_size=1, num_workers=1, prefetch_factor=1, collate_fn=_grey_images
    )
    strides = [batch.stride() for batch in images]
    assert strides == [_grey_images([0.0]).stride()] * 8
    assert strides[0] != torch.empty(1, 1, 4, 3).stride()


def test_one_column_of_a_large_matrix_does_not_send_the_matrix() -> None:
    matrix = torch.arange(1_000_000.0).reshape(1000, 1000)
    pieces = pickled_batch.dumps(matrix[:, 3])
    sent = sum(len(piece) for piece in pieces if isinstance(piece, torch.Tensor))
    assert sent <= 4 * 1000 + 16
    assert torch.equal(_roundtrip(matrix[:, 3]), matrix[:, 3])


def test_no_bytes_of_tensors_or_arrays_enter_the_pickle_stream() -> None:
    batch = {"t": torch.zeros(100_000), "a": numpy.zeros(100_000), "s": "text"}
    assert len(pickled_batch.dumps(batch)[0]) < 1500


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("dtype", ["<i4", ">i4"])
def test_arrays_are_writable_and_as_torchs_queues_give_them(dtype: str, read_only: bool) -> None:
    array = numpy.arange(12, dtype=dtype)
    array.flags.writeable = not read_only
    expected = pickle.loads(pickle.dumps(array, pickle.DEFAULT_PROTOCOL))
    found = _roundtrip({"array": array})["array"]
    assert found.dtype == expected.dtype
    found += 1
    assert (found == array + 1).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.complex128, torch.uint8])
def test_every_dtype_survives_at_odd_offsets(dtype: torch.dtype) -> None:
    values = torch.arange(9).to(dtype)
    found = _roundtrip((values[1:], values[3:5]))
    assert torch.equal(found[0], values[1:])
    assert torch.equal(found[1], values[3:5])


def test_tensors_of_several_types_over_one_memory_survive() -> None:
    memory = torch.arange(64, dtype=torch.uint8)
    batch = memory[4:12].view(torch.int32), memory[8:24].view(torch.float64)
    found = _roundtrip(batch)
    assert torch.equal(found[0], batch[0])
    assert torch.equal(found[1], batch[1])


def test_empty_and_scalar_tensors_survive() -> None:
    batch = (torch.empty(0, 3), torch.empty(3, 0), torch.tensor(2.5))
    found = _roundtrip(batch)
    assert found[0].shape == (0, 3)
    assert found[1].shape == (3, 0)
    assert found[2].item() == 2.5


def _unpicklable(samples: list[float]) -> Any:
    return lambda: samples


def test_a_batch_that_cannot_be_pickled_is_an_error_that_names_its_samples() -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=1, collate_fn=_unpicklable)
    with pytest.raises(Exception, match=r"indices \[0, 1, 2, 3\]"):
        next(iter(loader))
