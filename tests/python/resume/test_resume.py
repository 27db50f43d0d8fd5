"""state_dict and load_state_dict: the rest of an epoch is the same, and nothing is fetched twice."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from helpers import procs
from helpers.compare import describe
from helpers.resumed import (
    LENGTH,
    SAMPLERS,
    WORKERS,
    Augmented,
    CountingStream,
    HookedStream,
    Numbers,
    disturb,
    make_loader,
    own_generator,
    take,
)
from millhead import Advice
from millhead.torch import DataLoader, DistributedSampler, StatefulDataLoader
from millhead.torch.resume.rng_state import RngState
from millhead.torch.resume.saved_position import add_checksum
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at", [0, 1, 5])
def test_the_rest_of_the_epoch_is_the_same(sampler: str, workers: int, at: int) -> None:
    loader = make_loader(sampler, workers)
    iterator = iter(loader)
    take(iterator, at)
    state = loader.state_dict()
    expected = describe(list(iterator))
    disturb()
    resumed = make_loader(sampler, workers)
    resumed.load_state_dict(json.loads(json.dumps(state)))
    assert describe(list(resumed)) == expected


@pytest.mark.parametrize("sampler", ["shuffle", "own generator", "eager random"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_the_end_of_an_epoch_is_the_beginning_of_the_next(
    sampler: str, workers: int, persistent: bool
) -> None:
    extra = {"persistent_workers": True} if persistent and workers else {}
    loader = make_loader(sampler, workers, **extra)
    list(loader)
    state = loader.state_dict()
    expected = describe(list(loader))
    disturb()
    resumed = make_loader(sampler, workers, **extra)
    resumed.load_state_dict(state)
    assert describe(list(resumed)) == expected


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_own_generators_go_on_in_later_epochs(workers: int, persistent: bool) -> None:
    extra = {"persistent_workers": True} if persistent and workers else {}
    loader = make_loader("own generator", workers, **extra)
    list(loader)
    iterator = iter(loader)
    take(iterator, 3)
    state = loader.state_dict()
    expected = [describe(list(iterator)), describe(list(loader)), describe(list(loader))]
    resumed = make_loader("own generator", workers, **extra)
    resumed.load_state_dict(state)
    assert [describe(list(resumed)) for _ in range(3)] == expected


@pytest.mark.parametrize("workers", WORKERS)
def test_a_loader_that_nobody_iterated_has_a_state(workers: int) -> None:
    loader = make_loader("shuffle", workers)
    state = loader.state_dict()
    expected = describe(list(loader))
    disturb()
    resumed = make_loader("shuffle", workers)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert describe(list(resumed)) == expected


@pytest.mark.parametrize("workers", [0, 3])
def test_twice_in_an_epoch(workers: int) -> None:
    loader = make_loader("shuffle", workers)
    iterator = iter(loader)
    take(iterator, 2)
    state = loader.state_dict()
    expected = describe(list(iterator))
    seen: list[Any] = []
    for _ in range(3):
        loader = make_loader("shuffle", workers)
        loader.load_state_dict(state)
        seen += take(iter(loader), 2)
        state = loader.state_dict()
    loader = make_loader("shuffle", workers)
    loader.load_state_dict(state)
    assert describe(seen + list(loader)) == expected


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("every", [1, 4])
def test_augmentation_is_repeated_where_generators_are_saved(
    workers: int, persistent: bool, every: int
) -> None:
    extra: dict[str, Any] = {
        "persistent_workers": persistent and workers > 0,
        "snapshot_rng": True,
        "snapshot_every_n_steps": every,
    }
    loader = make_loader("shuffle", workers, Augmented(), **extra)
    if persistent:
        list(loader)
    iterator = iter(loader)
    take(iterator, 6)
    state = loader.state_dict()
    expected = describe(list(iterator))
    disturb()
    resumed = make_loader("shuffle", workers, Augmented(), **extra)
    resumed.load_state_dict(json.loads(json.dumps(state)))
    assert describe(list(resumed)) == expected


def test_augmentation_differs_but_reproducibly_where_they_are_not() -> None:
    loader = make_loader("shuffle", 2, Augmented())
    iterator = iter(loader)
    first = take(iterator, 4)
    state = loader.state_dict()
    rest = list(iterator)
    seen = []
    for _ in range(2):
        resumed = make_loader("shuffle", 2, Augmented())
        resumed.load_state_dict(state)
        seen.append(list(resumed))
    assert describe(seen[0]) == describe(seen[1])
    assert [b[0].tolist() for b in seen[0]] == [b[0].tolist() for b in rest]
    drawn = [b[1][0].item() for b in first + rest]
    assert not {b[1][0].item() for b in seen[0]} & set(drawn[:4])


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 0), (0, 2), (1, 2)])
def test_another_number_of_workers_goes_on_with_the_same_samples(before: int, after: int) -> None:
    loader = make_loader("shuffle", before)
    iterator = iter(loader)
    take(iterator, 4)
    state = loader.state_dict()
    expected = describe(list(iterator))
    resumed = make_loader("shuffle", after)
    resumed.load_state_dict(state)
    assert describe(list(resumed)) == expected


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 0), (0, 2)])
def test_another_number_of_workers_begins_the_next_epoch(before: int, after: int) -> None:
    def make(workers: int) -> DataLoader[Any]:
        return make_loader(
            "own generator", workers, persistent_workers=workers > 0, snapshot_rng=True
        )

    loader = make(before)
    list(loader)
    state = loader.state_dict()
    resumed = make(after)
    resumed.load_state_dict(state)
    assert sorted(torch.cat(list(resumed)).tolist()) == list(range(LENGTH))


def test_out_of_order_nothing_is_lost_or_repeated() -> None:
    loader = make_loader("sequential", 3, in_order=False)
    iterator = iter(loader)
    seen = take(iterator, 5)
    state = loader.state_dict()
    del iterator
    resumed = make_loader("sequential", 3, in_order=False)
    resumed.load_state_dict(state)
    seen += list(resumed)
    assert sorted(torch.cat(seen).tolist()) == list(range(LENGTH))


class Counted(Numbers):
    """Notes in shared memory which samples were asked for."""

    def __init__(self) -> None:
        self.calls = torch.zeros(LENGTH, dtype=torch.int64).share_memory_()

    def __getitem__(self, index: int) -> int:
        self.calls[index] += 1
        return index


@pytest.mark.parametrize("workers", WORKERS)
def test_what_was_consumed_is_not_fetched_again(workers: int) -> None:
    loader = make_loader("shuffle", workers)
    iterator = iter(loader)
    consumed = torch.cat(take(iterator, 6)).tolist()
    state = loader.state_dict()
    dataset = Counted()
    resumed = make_loader("shuffle", workers, dataset)
    resumed.load_state_dict(state)
    rest = torch.cat(list(resumed)).tolist()
    assert dataset.calls[consumed].sum() == 0
    assert dataset.calls[rest].tolist() == [1] * len(rest)


def test_the_callers_generators_are_left_alone() -> None:
    loader = make_loader("eager random", 2)
    iterator = iter(loader)
    take(iterator, 3)
    state = loader.state_dict()
    disturb()
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    resumed = make_loader("eager random", 2)
    resumed.load_state_dict(state)
    list(resumed)
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert before == after


def test_generators_put_back_to_the_beginning_move_on_as_in_the_first_run() -> None:
    torch.manual_seed(3)
    loader = make_loader("shuffle", 0)
    state = loader.state_dict()
    list(loader)
    expected = torch.get_rng_state()
    torch.manual_seed(3)
    resumed = make_loader("shuffle", 0)
    resumed.load_state_dict(state)
    list(resumed)
    assert torch.equal(torch.get_rng_state(), expected)


def test_the_state_outlives_its_iterator() -> None:
    loader = make_loader("shuffle", 2)
    seen = []
    for batch in loader:
        seen.append(batch)
        if len(seen) == 3:
            break
    state = loader.state_dict()
    resumed = make_loader("shuffle", 2)
    resumed.load_state_dict(state)
    seen += list(resumed)
    assert sorted(torch.cat(seen).tolist()) == list(range(LENGTH))


# --- what cannot be ---


def _state() -> dict[str, Any]:
    loader = make_loader("shuffle", 0)
    take(iter(loader), 2)
    return loader.state_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"length": 99}, "of a dataset of 99 samples, this one has 37"),
        ({"millhead": 7}, "version 7, this millhead reads 1"),
        ({"_num_yielded": "two"}, "damaged"),
        ({"_sampler_iter_yielded": -1}, "damaged"),
        ({"generators": {"global": "zzz", "own": {}}}, "damaged"),
        ({"generators": {"global": "AAAA", "own": {}}}, "damaged"),
        ({"worker_states": [None]}, "damaged"),
        ({"ended": [3]}, "damaged"),
        ({"next_worker": 7}, "damaged"),
        ({"_sampler_iter_yielded": 10**30}, "damaged"),
        ({"base_seed": 10**30}, "damaged"),
        ({"base_seed": -1}, "damaged"),
        ({"_iterator_finished": "no"}, "damaged"),
        ({"at_end": None}, "damaged"),
        ({"length": None}, "of a dataset without a length, this one has 37"),
    ],
)
def test_a_wrong_state_is_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make_loader("shuffle", 0).load_state_dict({**_state(), **change})
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("millhead: cannot resume: ")


def _other_text(text: str) -> str:
    """One character of a generator's state in another one's place."""
    return text[:700] + ("A" if text[700] != "A" else "B") + text[701:]


_CHANGES: dict[str, Any] = {
    "epoch": lambda state: state.update(epoch=state["epoch"] + 1),
    "one of two counts": lambda state: state.update(_num_yielded=1),
    "the other": lambda state: state.update(_sampler_iter_yielded=3),
    "seed": lambda state: state.update(base_seed=state["base_seed"] ^ 1),
    "end": lambda state: state.update(at_end=True),
    "workers": lambda state: state.update(workers=0),
    "turn": lambda state: state.update(next_worker=1 - state["next_worker"]),
    "ended": lambda state: state.update(ended=[1]),
    "skip": lambda state: state["worker_states"][0].update(skip=1),
    "hooks": lambda state: state["worker_states"][0].update(dataset={}),
    "a worker's generators": lambda state: state["worker_states"][0].update(
        generators=_other_text(state["worker_states"][0]["generators"])
    ),
    "generators": lambda state: state["generators"].update(
        {"global": _other_text(state["generators"]["global"])}
    ),
    "the loader's own": lambda state: state["generators"]["own"].update(
        loader=_other_text(state["generators"]["own"]["loader"])
    ),
}


@pytest.mark.parametrize("change", _CHANGES)
def test_a_state_that_was_changed_is_damaged(change: str) -> None:
    loader = make_loader("own generator", 2, snapshot_rng=True)
    take(iter(loader), 2)
    state = json.loads(json.dumps(loader.state_dict()))
    _CHANGES[change](state)
    with pytest.raises(ValueError, match="the state is damaged") as caught:
        make_loader("own generator", 2, snapshot_rng=True).load_state_dict(state)
    assert "\n" not in str(caught.value)


def test_the_state_of_millheads_own_sampler_is_part_of_the_check() -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(Numbers(), batch_size=4, sampler=DistributedSampler(Numbers(), 2, 1))

    loader = make()
    take(iter(loader), 2)
    state = json.loads(json.dumps(loader.state_dict()))
    make().load_state_dict(state)
    state["_index_sampler_state"]["seed"] += 1
    with pytest.raises(ValueError, match="the state is damaged"):
        make().load_state_dict(state)


def test_counts_that_a_framework_adjusts_are_no_damage() -> None:
    loader = make_loader("sequential", 0)
    take(iter(loader), 3)
    state = loader.state_dict()
    state["_num_yielded"] -= 1
    state["_sampler_iter_yielded"] -= 1
    loader.load_state_dict(state)
    assert next(iter(loader)).tolist() == [8, 9, 10, 11]


class Shrinking(IterableDataset[int]):
    """A stream without hooks."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("batch_size", "left"), [(4, 5), (None, 2)])
def test_a_stream_that_ends_before_its_place_is_named(
    workers: int, batch_size: int | None, left: int
) -> None:
    loader = DataLoader(Shrinking(40), batch_size=batch_size, num_workers=workers)
    take(iter(loader), 6)
    resumed = DataLoader(Shrinking(left), batch_size=batch_size, num_workers=workers)
    resumed.load_state_dict(loader.state_dict())
    with pytest.raises(ValueError, match=f"ended after 2 of the {3 if workers else 6} batches"):
        list(resumed)


@pytest.mark.parametrize("state", [None, [], {"_snapshot": {}}, {"epoch": 3}])
def test_what_is_no_state_is_refused(state: Any) -> None:
    if state == []:
        state = [1]
    with pytest.raises(ValueError, match="millhead: cannot resume"):
        make_loader("shuffle", 0).load_state_dict(state)


def test_a_state_without_a_key_is_damaged() -> None:
    for key in _state().keys() - {"cut", "sampler_ended", "samples", "batch_size", "check"}:
        state = _state()
        del state[key]
        with pytest.raises(ValueError, match="millhead: cannot resume"):
            make_loader("shuffle", 0).load_state_dict(state)


def test_a_state_from_before_some_keys_were_added_is_read() -> None:
    state = _state()
    del state["cut"], state["sampler_ended"], state["samples"], state["batch_size"], state["check"]
    for entry in state["worker_states"]:
        del entry["cut"], entry["began"]
    loader = make_loader("shuffle", 0)
    loader.load_state_dict(state)
    assert len(list(loader)) == len(loader) - 2


@pytest.mark.parametrize("sampler", ["shuffle", "own generator", "eager random", "eager numpy"])
@pytest.mark.parametrize("at", [0, 3, None])
@pytest.mark.parametrize("new_workers", [0, 1, 2])
def test_a_later_epoch_of_persistent_workers_goes_on_in_any_number(
    sampler: str, at: int | None, new_workers: int
) -> None:
    """No seed was drawn for it, and new workers, or none, must not draw one before the order; nor
    before the order after that, for who has put the global generators back."""

    def make(workers: int) -> DataLoader[Any]:
        return make_loader(sampler, workers, persistent_workers=workers > 0)

    torch.manual_seed(1)
    random.seed(2)
    np.random.seed(3)
    loader = make(2)
    list(loader)
    iterator = iter(loader)
    list(iterator) if at is None else take(iterator, at)
    state, moment = loader.state_dict(), RngState.now()
    expected = describe(list(loader if at is None else iterator))
    afterwards = describe(list(loader))
    disturb()
    resumed = make(new_workers)
    resumed.load_state_dict(state)
    moment.put_back()
    assert describe(list(resumed)) == expected
    if new_workers:  # without, every epoch draws a seed
        assert describe(list(resumed)) == afterwards


@pytest.mark.parametrize("dispatch", ["batch", "sample"])
@pytest.mark.parametrize("limit", [None, 4])
def test_batches_consumed_out_of_order_are_not_given_again_without_workers(
    dispatch: str, limit: int | None
) -> None:
    def make(workers: int) -> DataLoader[Any]:
        order = {} if workers == 0 else {"in_order": False}
        dataset = Augmented() if dispatch == "sample" else Numbers()
        return make_loader(
            "own generator", workers, dataset, dispatch=dispatch, limit_batches=limit, **order
        )

    torch.manual_seed(1)
    whole = list(make(0))
    torch.manual_seed(1)
    loader = make(1)
    take(iter(loader), 1)
    state = loader.state_dict()
    state = add_checksum(
        {**state, "ahead": [2]}
    )  # as after a run whose workers were as fast as that
    resumed = make(0)
    resumed.load_state_dict(state)
    iterator = iter(resumed)
    found = take(iterator, 1)
    state = resumed.state_dict()
    assert (state["_sampler_iter_yielded"], state["ahead"]) == (3, [])
    found += list(iterator)
    assert describe(found) == describe([whole[1], *whole[3:]])


def test_a_state_before_the_first_draw_goes_on_to_the_same_later_epochs_in_workers() -> None:
    torch.manual_seed(1)
    loader = make_loader("shuffle", 0)
    iterator = iter(loader)
    state, moment = loader.state_dict(), RngState.now()
    expected = [describe(list(iterator)), describe(list(loader))]
    disturb()
    resumed = make_loader("shuffle", 2)
    resumed.load_state_dict(state)
    moment.put_back()
    assert [describe(list(resumed)) for _ in range(2)] == expected


def test_another_batch_size_is_told_where_batches_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millhead.torch.loader_stats._advised", set())
    state = _state()
    make_loader("shuffle", 0).load_state_dict(state)  # the same one: not a word
    finished = DataLoader(Numbers(), batch_size=4, shuffle=True)
    list(finished)
    DataLoader(Numbers(), batch_size=5).load_state_dict(finished.state_dict())
    hooked = DataLoader(Numbers(), batch_size=4, sampler=DistributedSampler(Numbers(), 1, 0))
    next(iter(hooked))
    other = DataLoader(Numbers(), batch_size=5, sampler=DistributedSampler(Numbers(), 1, 0))
    other.load_state_dict(hooked.state_dict())
    assert sum(len(batch) for batch in other) == LENGTH - 4
    with pytest.warns(
        Advice, match=r"batch_size=4, this loader has 5: 2 batches of 5 are skipped"
    ) as told:
        DataLoader(Numbers(), batch_size=5, shuffle=True).load_state_dict(state)
    assert [warning.filename for warning in told] == [__file__]  # the line that can be changed


def test_another_batch_size_is_told_between_two_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millhead.torch.loader_stats._advised", set())
    options: dict[str, Any] = {"num_workers": 1, "snapshot_rng": True, "snapshot_every_n_steps": 4}
    loader = DataLoader(Numbers(), batch_size=4, **options)
    take(iter(loader), 3)
    with pytest.warns(Advice, match="3 batches of 5 are skipped"):
        DataLoader(Numbers(), batch_size=5, **options).load_state_dict(loader.state_dict())


class NotPrepared(list[int]):
    """A sampler whose attributes are not there yet."""

    @property
    def batch_sampler(self) -> Any:
        raise RuntimeError("call prepare() first")

    generator = batch_sampler


def test_samplers_may_refuse_to_tell_their_attributes() -> None:
    loader = DataLoader(Numbers(), batch_size=4, sampler=NotPrepared(range(8)))
    assert len(list(loader)) == 2
    assert loader.state_dict()["_num_yielded"] == 2


def test_keys_of_others_and_an_empty_state_are_no_trouble() -> None:
    loader = make_loader("shuffle", 0)
    loader.load_state_dict({**_state(), "of somebody else": 1})
    loader.load_state_dict({})
    assert len(list(loader)) == len(loader) - 2


class EverySecond:
    """A rank's part of a batch sampler, as frameworks wrap it."""

    def __init__(self, batch_sampler: Any) -> None:
        self.batch_sampler = batch_sampler

    def __iter__(self) -> Any:
        return itertools.islice(self.batch_sampler, 0, None, 2)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_generator_of_a_sampler_within_another_is_put_back(workers: int) -> None:
    def build(seed: int) -> Any:
        generator = torch.Generator().manual_seed(seed)
        batches = BatchSampler(RandomSampler(Numbers(), generator=generator), 3, False)
        return DataLoader(Numbers(), batch_sampler=EverySecond(batches), num_workers=workers)

    loader = build(1)
    iterator = iter(loader)
    take(iterator, 2)
    state = loader.state_dict()
    expected = [describe(list(iterator)), describe(list(loader))]
    resumed = build(2)
    resumed.load_state_dict(state)
    assert [describe(list(resumed)) for _ in range(2)] == expected


def test_a_sampler_that_ends_early_is_named() -> None:
    loader = DataLoader(Numbers(), batch_size=4, sampler=range(37))
    take(iter(loader), 6)
    state = loader.state_dict()
    resumed = DataLoader(Numbers(), batch_size=4, sampler=range(10))
    resumed.load_state_dict(state)
    with pytest.raises(ValueError, match="ended after 3 of the 6 batches"):
        iter(resumed)


def test_an_iterable_dataset_keeps_its_number_of_workers() -> None:
    loader = DataLoader(CountingStream(), num_workers=2)
    take(iter(loader), 3)
    state = loader.state_dict()
    with pytest.raises(ValueError, match="as many workers as it was left in"):
        DataLoader(CountingStream(), num_workers=3).load_state_dict(state)


# --- neighbours ---


def test_torchdatas_name_and_arguments_are_there() -> None:
    assert StatefulDataLoader is DataLoader
    loader = StatefulDataLoader(Numbers(), snapshot_every_n_steps=3, num_workers=1)
    assert loader.snapshot_every_n_steps == 3


@pytest.mark.parametrize("workers", [0, 2])
def test_a_limit_of_batches_is_kept_over_a_resume(workers: int) -> None:
    dataset = Counted()
    loader = make_loader("sequential", workers, dataset, limit_batches=5)
    assert len(loader) == 5
    iterator = iter(loader)
    take(iterator, 2)
    state = loader.state_dict()
    assert len(list(iterator)) == 3
    assert dataset.calls.tolist() == [1] * 20 + [0] * 17
    resumed = make_loader("sequential", workers, limit_batches=5)
    resumed.load_state_dict(state)
    assert torch.cat(list(resumed)).tolist() == list(range(8, 20))
    assert torch.cat(list(resumed)).tolist() == list(range(20))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("limit", [0, 3, 1000])
def test_a_limit_counts_the_batches_of_a_stream(workers: int, limit: int) -> None:
    loader = DataLoader(HookedStream(), batch_size=4, num_workers=workers, limit_batches=limit)
    whole = len(list(DataLoader(HookedStream(), batch_size=4, num_workers=workers)))
    assert [len(list(loader)) for _ in range(2)] == [min(whole, limit)] * 2


def _epochs(cls: Any, at: int | None = None, **extra: Any) -> list[Any]:
    loader = cls(
        Augmented(),
        batch_size=4,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        generator=own_generator(),
        **extra,
    )
    seen = [describe(list(loader))]
    if at is not None:
        iterator = iter(loader)
        seen.append(describe(take(iterator, at)))
        del iterator
    return [*seen, describe(list(loader)), describe(list(loader))]


@pytest.mark.parametrize("at", [None, 3, 8])
def test_an_epoch_begun_ahead_of_time_is_the_same(at: int | None) -> None:
    ours = _epochs(DataLoader, at, prefetch_epoch=True)
    assert ours == _epochs(torch.utils.data.DataLoader, at)


def test_an_epoch_begun_ahead_of_time_does_not_spoil_the_state() -> None:
    def make() -> DataLoader[Any]:
        return make_loader(
            "own generator", 2, Augmented(), persistent_workers=True, prefetch_epoch=True,
            snapshot_rng=True,
        )  # fmt: skip

    loader = make()
    iterator = iter(loader)
    take(iterator, 9)
    states = [loader.state_dict()]
    rest = describe(list(iterator))
    states.append(loader.state_dict())
    following = describe(list(loader))
    for state, expected in zip(states, [[rest, following], [following]], strict=True):
        resumed = make()
        resumed.load_state_dict(state)
        assert [describe(list(resumed)) for _ in expected] == expected


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        ({"num_workers": 2, "generator": own_generator()}, "persistent_workers=True"),
        ({"num_workers": 2, "persistent_workers": True}, "a generator of the loader's own"),
    ],
)
def test_what_beginning_ahead_of_time_needs_is_said(
    arguments: dict[str, Any], missing: str
) -> None:
    with pytest.raises(ValueError, match=f"prefetch_epoch needs {missing}"):
        DataLoader(Numbers(), prefetch_epoch=True, **arguments)


@pytest.mark.parametrize("name", ["limit_batches", "snapshot_every_n_steps"])
@pytest.mark.parametrize("value", [-1, 1.5, "many", True])
def test_counts_are_checked(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} should be a count"):
        DataLoader(Numbers(), **{name: value})


# --- many ranks, and new processes ---


def test_a_sampler_of_many_ranks_goes_on_and_then_heeds_set_epoch() -> None:
    def make(ranks: int, rank: int) -> tuple[DataLoader[Any], DistributedSampler[Any]]:
        sampler: DistributedSampler[Any] = DistributedSampler(Numbers(), ranks, rank)
        return DataLoader(Numbers(), batch_size=3, sampler=sampler, num_workers=1), sampler

    loader, sampler = make(2, 1)
    expected = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        iterator = iter(loader)
        if epoch == 1:
            take(iterator, 2)
            state = loader.state_dict()
        expected.append(describe(list(iterator)))
    loader, sampler = make(2, 1)
    loader.load_state_dict(state)
    for epoch in (1, 2):
        sampler.set_epoch(epoch)
        assert describe(list(loader)) == expected[epoch]


def test_the_end_of_a_ranks_epoch_leaves_the_next_to_set_epoch() -> None:
    sampler: DistributedSampler[Any] = DistributedSampler(Numbers(), 2, 0)
    loader = DataLoader(Numbers(), batch_size=3, sampler=sampler)
    list(loader)
    state = loader.state_dict()
    sampler.set_epoch(1)
    expected = describe(list(loader))
    sampler = DistributedSampler(Numbers(), 2, 0)
    loader = DataLoader(Numbers(), batch_size=3, sampler=sampler)
    loader.load_state_dict(state)
    sampler.set_epoch(1)
    assert describe(list(loader)) == expected


@pytest.mark.parametrize(
    ("arguments", "same"),
    [
        ("--workers 2", {"tail_equal", "remaining_equal", "augmentation_equal"}),
        ("--workers 0", {"tail_equal", "remaining_equal", "augmentation_equal"}),
        ("--workers 2 --new-workers 1", {"tail_equal", "remaining_equal"}),
        ("--workers 1 --world 2 --new-world 3", {"remaining_equal"}),
    ],
)
def test_a_new_process_goes_on(arguments: str, same: set[str]) -> None:
    program = [sys.executable, str(procs.PROGRAMS / "resume.py"), "--seed=77", "--at=21"]
    command = [*program, "--n=400", "--batch-size=8", *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    said = json.loads(done.stdout)
    assert said.pop("getitem_calls_before_first_batch") == 0
    assert {name for name, value in said.items() if value} == same


@pytest.mark.parametrize("wrong", ["--at=8", "--n=0 --at=0"])
def test_more_batches_than_there_are_cannot_be_consumed(wrong: str) -> None:
    program = [sys.executable, str(procs.PROGRAMS / "resume.py"), "--n=50", "--batch-size=8"]
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run([*program, *wrong.split()], check=False, **options)
    assert done.returncode == 2
    assert "resume.py: error: --" in done.stderr
