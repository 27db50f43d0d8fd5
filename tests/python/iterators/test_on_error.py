"""Samples that cannot be loaded: on_error= raise, skip and replace."""

from __future__ import annotations

import warnings
from typing import Any

import millhead
import pytest
import torch
from helpers import procs
from millhead.torch import DataLoader, IterableDataset, Subset, SubsetRandomSampler

BAD = (3, 7, 8, 9)


class Flawed:
    """Numbers, some of which raise an exception."""

    def __init__(self, length: int = 20, bad: Any = BAD, error: type[BaseException] = ValueError):
        self.length, self.bad, self.error = length, bad, error

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index in self.bad:
            raise self.error(f"sample {index} is torn")
        return index


class Together(Flawed):
    """Fetches a batch at once."""

    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]


class Endless(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(4))


def _loader(dataset: Any, **options: Any) -> Any:
    options = {"batch_size": 4, "generator": torch.Generator().manual_seed(5), **options}
    return DataLoader(dataset, **options)


def _outcomes(loader: Any) -> list[Any]:
    iterator = iter(loader)
    seen: list[Any] = []
    while len(seen) < 100:
        try:
            seen.append(next(iterator).tolist())
        except StopIteration:
            return seen
        except Exception as error:  # noqa: BLE001 - an outcome to look at
            seen.append(error)
    raise AssertionError("no end")


@pytest.fixture(autouse=True)
def quiet() -> None:
    """What is skipped or replaced is told of; here it is meant."""
    warnings.simplefilter("ignore", millhead.Advice)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_skip_leaves_bad_samples_out_and_keeps_every_batch_in_its_place(workers: int) -> None:
    loader = _loader(Flawed(), num_workers=workers, on_error="skip")
    assert _outcomes(loader) == [
        [0, 1, 2],
        [4, 5, 6],
        [10, 11],
        [12, 13, 14, 15],
        [16, 17, 18, 19],
    ]
    assert loader.stats()["errors"] == {"raised": 0, "skipped": 4, "replaced": 0}
    assert loader.stats()["samples"] == 16


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_of_which_nothing_is_left_raises_its_first_error_in_its_place(workers: int) -> None:
    loader = _loader(Flawed(bad=(8, 9, 10, 11)), num_workers=workers, on_error="skip")
    seen = _outcomes(loader)
    assert [item for item in seen if isinstance(item, list)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [12, 13, 14, 15],
        [16, 17, 18, 19],
    ]
    assert isinstance(seen[2], ValueError)
    text = str(seen[2]) + "".join(getattr(seen[2], "__notes__", []))
    assert "sample 8 is torn" in text
    assert "sample index 8" in text
    assert loader.stats()["errors"]["raised"] == 1


@pytest.mark.parametrize("shuffle", [False, True])
def test_replace_draws_the_same_substitutes_for_any_number_of_workers(shuffle: bool) -> None:
    runs = {}
    for workers in (0, 1, 2, 3):
        loader = _loader(Flawed(), num_workers=workers, shuffle=shuffle, on_error="replace")
        runs[workers] = _outcomes(loader)
        assert loader.stats()["errors"] == {"raised": 0, "skipped": 0, "replaced": 4}
    assert [len(batch) for batch in runs[0]] == [4] * 5
    flat = [number for batch in runs[0] for number in batch]
    assert not set(flat) & set(BAD)
    if not shuffle:
        assert [n for at, n in enumerate(flat) if at not in BAD] == [
            n for n in range(20) if n not in BAD
        ]
    assert runs[1] == runs[0]
    assert runs[2] == runs[0]
    assert runs[3] == runs[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_replace_gives_up_after_eight_substitutes_with_the_samples_own_error(workers: int) -> None:
    calls: list[int] = []

    class Counted(Flawed):
        def __getitem__(self, index: int) -> int:
            calls.append(index)
            return super().__getitem__(index)

    loader = _loader(Counted(8, range(8)), num_workers=workers, on_error="replace")
    seen = _outcomes(loader)
    assert [type(item) for item in seen] == [ValueError, ValueError]
    assert "sample 0 is torn" in str(seen[0])
    assert "sample 4 is torn" in str(seen[1])
    if workers == 0:
        assert len(calls) == 2 * (1 + 8)


def test_a_substitute_comes_from_the_subset_that_is_sampled() -> None:
    chosen = [0, 1, 2, 3, 4, 5]
    loader = _loader(
        Flawed(1000, (3,)), sampler=SubsetRandomSampler(chosen), batch_size=2, on_error="replace"
    )
    for _ in range(20):
        assert {number for batch in _outcomes(loader) for number in batch} <= set(chosen) - {3}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_that_fetches_together_is_asked_one_by_one_where_that_fails(workers: int) -> None:
    loader = _loader(Together(), num_workers=workers, on_error="skip")
    assert _outcomes(loader)[:3] == [[0, 1, 2], [4, 5, 6], [10, 11]]
    assert loader.stats()["errors"]["skipped"] == 4


@pytest.mark.parametrize("workers", [0, 2])
def test_a_subset_skips_the_right_sample(workers: int) -> None:
    subset: Any = Subset(Flawed(), [1, 3, 15, 2, 9, 5])
    loader = _loader(subset, batch_size=3, num_workers=workers, on_error="skip")
    assert _outcomes(loader) == [[1, 15], [2, 5]]


@pytest.mark.parametrize("workers", [0, 2])
def test_without_batches_replace_works_and_skip_raises(workers: int) -> None:
    dataset = Flawed(6, (2,))
    options: dict[str, Any] = {"batch_size": None, "num_workers": workers}
    plain = [int(sample) for sample in _loader(dataset, on_error="replace", **options)]
    assert len(plain) == 6
    assert 2 not in plain
    iterator = iter(_loader(dataset, on_error="skip", **options))
    assert [int(next(iterator)) for _ in range(2)] == [0, 1]
    with pytest.raises(ValueError, match="sample 2 is torn"):
        next(iterator)
    assert [int(sample) for sample in iterator] == [3, 4, 5]


def test_an_interrupt_is_no_bad_sample() -> None:
    iterator = iter(_loader(Flawed(error=KeyboardInterrupt), on_error="skip"))
    with pytest.raises(KeyboardInterrupt):
        next(iterator)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_in_collate_is_raised_whatever_the_policy(workers: int) -> None:
    def collate(samples: list[int]) -> Any:
        raise LookupError("no way to collate")

    loader = _loader(Flawed(), num_workers=workers, on_error="skip", collate_fn=collate)
    with pytest.raises(LookupError, match="no way to collate"):
        next(iter(loader))


@pytest.mark.parametrize("workers", [0, 2])
def test_one_advice_names_the_first_bad_sample(workers: int) -> None:
    loader = _loader(Flawed(), num_workers=workers, on_error="skip")
    with pytest.warns(millhead.Advice) as told:
        _outcomes(loader) + _outcomes(loader)
    (text,) = [str(one.message) for one in told if issubclass(one.category, millhead.Advice)]
    assert text.startswith("millhead: a sample was skipped (sample index 3: ValueError: sample 3")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_long_message_is_cut_at_a_character(workers: int) -> None:
    class Wordy(Flawed):
        def __getitem__(self, index: int) -> int:
            if index == 1:
                raise ValueError("\N{SNOWMAN}" * 500)
            return index

    with pytest.warns(millhead.Advice, match="\N{SNOWMAN}{60}") as told:
        _outcomes(_loader(Wordy(), num_workers=workers, on_error="skip"))
    assert "\N{REPLACEMENT CHARACTER}" not in str(told[0].message)


def test_the_line_of_an_epoch_mentions_them() -> None:
    code = (
        "from millhead.torch import DataLoader\n"
        "from test_on_error import Flawed\n"
        "for workers in (0, 2):\n"
        "    list(DataLoader(Flawed(), batch_size=4, num_workers=workers, on_error='skip'))\n"
        "list(DataLoader(range(4)))\n"
    )
    done = procs.run_python(code, env={"MILLHEAD_VERBOSE": "1"})
    lines = [line for line in done.stderr.splitlines() if line.startswith("millhead: epoch")]
    assert len(lines) == 3, done.stderr
    assert lines[0].endswith("; 4 samples skipped")
    assert lines[1].endswith("; 4 samples skipped")
    assert "skipped" not in lines[2]


def test_a_reset_forgets_them() -> None:
    loader = _loader(Flawed(), on_error="skip")
    list(loader)
    assert loader.stats(reset=True)["errors"]["skipped"] == 4
    assert loader.stats()["errors"]["skipped"] == 0
    list(loader)
    assert loader.stats()["errors"]["skipped"] == 4


def test_persistent_workers_go_on_counting() -> None:
    loader = _loader(Flawed(), num_workers=2, persistent_workers=True, on_error="skip")
    for epoch in (1, 2, 3):
        list(loader)
        assert loader.stats()["errors"]["skipped"] == 4 * epoch


@pytest.mark.parametrize(
    ("dataset", "policy", "words"),
    [
        (Flawed(), "ignore", "on_error should be one of"),
        (Endless(), "skip", "needs a map-style dataset"),
        (Endless(), "replace", "needs a map-style dataset"),
    ],
)
def test_what_cannot_be_is_refused_at_once(dataset: Any, policy: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        DataLoader(dataset, on_error=policy)


def test_replace_needs_something_to_draw_from() -> None:
    class Unmeasured:
        def __getitem__(self, index: int) -> int:
            return index

    unmeasured: Any = Unmeasured()
    with pytest.raises(ValueError, match="dataset with a length"):
        DataLoader(unmeasured, sampler=[1, 2], on_error="replace")
    assert DataLoader(unmeasured, sampler=[1, 2], on_error="skip").on_error == "skip"
