"""``subset=`` and ``weights=`` of a native loader, beside an order written in NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import millhead
import numpy as np
import pytest
from helpers.pipeline_runs import reference_ops

COUNT = 203
GENERATOR = np.random.default_rng(11)
NUMBERS = GENERATOR.permutation(COUNT)[:60]
WEIGHTS = GENERATOR.random(COUNT) * (GENERATOR.random(COUNT) < 0.5)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("choice") / "x.npy"
    np.save(file, np.arange(COUNT))
    yield str(file)


def loader(path: str, batch_size: int = 7, **options: Any) -> millhead.Loader:
    return millhead.Loader(path, batch_size, output="numpy", **{"uneven": True} | options)


def epoch(of: millhead.Loader) -> list[int]:
    return [number for batch in of for number in batch["x"].tolist()]


def drawn(weights: np.ndarray, seed: int, epoch: int) -> list[int]:
    """As many draws by weight as there are weights, one for each position."""
    sums = np.cumsum(weights)
    last = int(np.searchsorted(sums, sums[-1]))
    units = [
        reference_ops.Draws(seed, epoch, at).of("weights", 0).unit(0) for at in range(len(weights))
    ]
    found = np.searchsorted(sums, np.array(units) * sums[-1], side="right")
    return np.minimum(found, last).tolist()


def test_a_subset_is_an_epoch_in_its_own_order(path: str) -> None:
    with loader(path, subset=NUMBERS) as chosen:
        assert len(chosen) == 9
        assert epoch(chosen) == NUMBERS.tolist()
    with loader(path, subset=slice(3, None, 50)) as chosen:
        assert epoch(chosen) == [3, 53, 103, 153]
    with loader(path, subset=[-1, 0]) as chosen:
        assert epoch(chosen) == [COUNT - 1, 0]


@pytest.mark.parametrize("shuffle", [True, "torch"])
def test_a_shuffled_subset_is_the_shuffle_of_its_places(path: str, shuffle: bool | str) -> None:
    with loader(path, subset=range(60), shuffle=shuffle, seed=4) as places:
        order = epoch(places)
    assert sorted(order) == list(range(60))
    with loader(path, subset=NUMBERS, shuffle=shuffle, seed=4) as chosen:
        assert epoch(chosen) == NUMBERS[order].tolist()


def test_a_part_is_chosen_once_by_its_seed(path: str) -> None:
    with loader(path, subset=0.25) as one, loader(path, subset=(0.25, 9)) as other:
        first, second = epoch(one), epoch(other)
        assert epoch(one) == first
    assert len(first) == len(second) == round(COUNT / 4)
    assert first == sorted(set(first))
    assert first != second


def test_weights_draw_as_numpy_does_in_every_epoch(path: str) -> None:
    with loader(path, weights=WEIGHTS, seed=5) as chosen:
        assert epoch(chosen) == drawn(WEIGHTS, 5, 0)
        assert epoch(chosen) == drawn(WEIGHTS, 5, 1)
    with loader(path, subset=NUMBERS, weights=np.arange(60), seed=5) as chosen:
        assert epoch(chosen) == NUMBERS[drawn(np.arange(60.0), 5, 0)].tolist()


@pytest.mark.parametrize("options", [{"weights": WEIGHTS}, {"subset": NUMBERS, "shuffle": True}])
def test_ranks_and_resumed_epochs_add_up(path: str, options: dict[str, Any]) -> None:
    with loader(path, 5, **options) as alone:
        whole = epoch(alone)
    for world in (1, 2, 3):
        parts = {}
        for rank in range(world):
            with loader(path, 5, rank=rank, world=world, **options) as part:
                parts |= {rank + world * n: number for n, number in enumerate(epoch(part))}
        assert [parts[at] for at in sorted(parts)] == whole
    for steps in range(1, len(whole) // 5):
        with loader(path, 5, **options) as begun, loader(path, 3, **options) as resumed:
            iterator = iter(begun)
            for _ in range(steps):
                next(iterator)
            resumed.load_state_dict(begun.state_dict())
            assert epoch(resumed) == whole[5 * steps :]


def test_a_state_of_another_choice_is_refused(path: str) -> None:
    for one, other in (
        ({"subset": NUMBERS}, {"subset": NUMBERS[::-1]}),
        ({"weights": WEIGHTS}, {}),
        ({}, {"subset": range(COUNT)}),
    ):
        with loader(path, **one) as first, loader(path, **other) as second:
            state = first.state_dict()
            with pytest.raises(ValueError, match="another subset= or weights="):
                second.load_state_dict(state)


def test_what_stands_in_for_a_broken_draw_has_weight_too() -> None:
    weights = np.arange(300) % 3 == 0
    data = "synthetic:count=300,shape=2,broken=20%"
    with loader(data, weights=weights, fields=["x", "_index"], on_error="replace") as chosen:
        numbers = [number for batch in chosen for number in batch["_index"].tolist()]
    assert len(numbers) == 300
    assert chosen.stats()["errors"]["replaced"] > 0
    assert all(weights[number] for number in numbers)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"subset": []}, ValueError, "the subset has no samples"),
        ({"subset": [COUNT]}, ValueError, f"number {COUNT}, and there are {COUNT} samples"),
        ({"subset": 1.5}, ValueError, "above 0 and at most 1"),
        ({"subset": "0:10"}, TypeError, "subset should be"),
        ({"subset": 3}, TypeError, "subset should be"),
        ({"subset": [1], "shuffle": "blocks"}, ValueError, "blocks takes no subset"),
        ({"weights": [1.0]}, ValueError, f"1 weights for {COUNT} samples"),
        ({"weights": [-1.0] * COUNT}, ValueError, "weight 0 is -1"),
        ({"weights": WEIGHTS, "shuffle": True}, ValueError, "leave shuffle out"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused(
    path: str, options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        loader(path, **options)
