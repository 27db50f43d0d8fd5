"""``millhead.torch.DistributedSampler``: torch's indices, uneven ranks, launchers, resuming."""

from __future__ import annotations

import copy
import inspect
import io
import itertools
import json
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import millhead
import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.utils.data
from millhead.torch import DataLoader, DistributedSampler, TensorDataset, loader_stats

Torchs = torch.utils.data.DistributedSampler
Ours = DistributedSampler

#: Every way to share an epoch out.
MODES: list[dict[str, Any]] = [{}, {"drop_last": True}, {"uneven": True}]
ORDERS: list[dict[str, Any]] = [{"shuffle": False}, {"order": "torch"}, {"order": "keyed"}]

#: Said about some of the loops below, which is what one of them tests.
pytestmark = pytest.mark.filterwarnings("ignore:millhead. an epoch begins")

LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in itertools.chain(*LAUNCHERS):
        monkeypatch.delenv(name, raising=False)


def world(count: int, ranks: int, **arguments: Any) -> list[Ours[int]]:
    return [Ours(range(count), ranks, rank, **arguments) for rank in range(ranks)]


def given(samplers: list[Ours[int]]) -> list[int]:
    """What all ranks give, in the order of the epoch: in turn, one sample each."""
    rows = itertools.zip_longest(*samplers)
    return [index for row in rows for index in row if index is not None]


# --- torch's sampler ----------------------------------------------------------------------------


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_indices_and_lengths_are_torchs(shuffle: bool, drop_last: bool) -> None:
    for count, ranks in itertools.product(range(51), range(1, 10)):
        for rank in range(ranks):
            arguments = (range(count), ranks, rank, shuffle, 7, drop_last)
            theirs, ours = Torchs(*arguments), Ours(*arguments)
            assert len(theirs) == len(ours)
            assert vars(theirs).items() <= vars(ours).items()
            for epoch in (0, 1, 5):
                theirs.set_epoch(epoch)
                ours.set_epoch(epoch)
                assert list(theirs) == list(ours), (arguments, epoch)


@pytest.mark.parametrize("seed", [-1, -(2**63), 2**64 - 10, 2**32, 123456789])
def test_every_seed_torch_takes_gives_torchs_indices(seed: int) -> None:
    theirs, ours = Torchs(range(40), 3, 1, seed=seed), Ours(range(40), 3, 1, seed=seed)
    theirs.set_epoch(9)
    ours.set_epoch(9)
    assert list(theirs) == list(ours)


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, 1.5, "1", None])
def test_a_seed_torch_refuses_is_refused_alike(seed: Any) -> None:
    said = []
    for kind in (Torchs, Ours):
        with pytest.raises(Exception) as caught:
            iter(kind(range(4), 1, 0, seed=seed))
        said.append((caught.type, str(caught.value)))
    assert said[0] == said[1]
    assert list(Ours(range(4), 1, 0, shuffle=False, seed=seed)) == [0, 1, 2, 3]


def test_torchs_arguments_are_a_prefix_and_the_others_keyword_only() -> None:
    theirs = list(inspect.signature(Torchs.__init__).parameters.values())
    ours = list(inspect.signature(Ours.__init__).parameters.values())
    for left, right in zip(theirs, ours, strict=False):
        assert (left.name, left.kind, left.default) == (right.name, right.kind, right.default)
    assert [(item.name, item.kind) for item in ours[len(theirs) :]] == [
        ("uneven", inspect.Parameter.KEYWORD_ONLY),
        ("order", inspect.Parameter.KEYWORD_ONLY),
    ]
    public = {name for name in vars(Ours(range(4), 1, 0)) if not name.startswith("_")}
    assert public == {*vars(Torchs(range(4), 1, 0)), "uneven", "order"}
    assert issubclass(Ours, Torchs)


@pytest.mark.parametrize(("ranks", "rank"), [(2, 2), (2, -1), (1, 7)])
def test_a_rank_there_is_not_is_refused_in_torchs_words(ranks: int, rank: int) -> None:
    with pytest.raises(ValueError) as theirs:
        Torchs(range(4), ranks, rank)
    with pytest.raises(ValueError) as ours:
        Ours(range(4), ranks, rank)
    assert str(theirs.value) == str(ours.value)


def test_the_epoch_is_read_when_the_iterator_is_made() -> None:
    theirs, ours = Torchs(range(20), 2, 0), Ours(range(20), 2, 0)
    iterators = iter(theirs), iter(ours)
    theirs.set_epoch(3)
    ours.set_epoch(3)
    assert list(iterators[0]) == list(iterators[1])


class Growing:
    def __init__(self) -> None:
        self.length = 10

    def __len__(self) -> int:
        return self.length


def test_a_dataset_that_changed_its_length_is_refused() -> None:
    data = Growing()
    sampler = Ours(data, 2, 0)
    data.length = 11
    with pytest.raises(RuntimeError, match="had 10 samples when its sampler was made and has 11"):
        iter(sampler)


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_of_both_take_it_for_torchs(workers: int) -> None:
    data = TensorDataset(torch.arange(53))
    batches = []
    for loader, kind in ((torch.utils.data.DataLoader, Torchs), (DataLoader, Ours)):
        sampler = kind(data, 4, 1)
        found = loader(data, batch_size=4, sampler=sampler, num_workers=workers)
        sampler.set_epoch(1)
        batches.append((len(found), [batch.tolist() for (batch,) in found]))
    assert batches[0] == batches[1]


# --- keyed and uneven ---------------------------------------------------------------------------


def test_a_keyed_order_is_shared_out_like_torchs() -> None:
    for count, ranks in itertools.product(range(1, 30), range(1, 6)):
        whole = list(Ours(range(count), 1, 0, order="keyed", seed=2))
        assert sorted(whole) == list(range(count))
        padded = (whole * ranks)[: -(-count // ranks) * ranks]
        assert given(world(count, ranks, order="keyed", seed=2)) == padded
        cut = whole[: count // ranks * ranks]
        assert given(world(count, ranks, order="keyed", seed=2, drop_last=True)) == cut


def test_a_keyed_order_takes_no_memory_and_no_time() -> None:
    sampler = Ours(range(2**60), 8, 3, order="keyed", seed=5)
    assert len(sampler) == 2**57
    first = list(itertools.islice(sampler, 100))
    sampler.set_epoch(1)
    second = list(itertools.islice(sampler, 100))
    assert len({*first, *second}) == 200
    state = sampler.state_at(2**57 - 1)
    other = Ours(range(2**60), 4, 0, order="keyed")
    other.load_state_dict(state)
    assert len(list(itertools.islice(other, 10))) == 2


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_uneven_ranks_give_every_sample_once(order: dict[str, Any]) -> None:
    for count, ranks in itertools.product(range(30), range(1, 8)):
        samplers = world(count, ranks, uneven=True, **order)
        indices = [list(sampler) for sampler in samplers]
        assert sorted(itertools.chain(*indices)) == list(range(count))
        lengths = [len(each) for each in indices]
        assert lengths == sorted(lengths, reverse=True)
        assert lengths[0] - lengths[-1] <= 1
        for sampler, length in zip(samplers, lengths, strict=True):
            assert (len(sampler), sampler.total_size) == (length, count)
            assert sampler.lengths() == lengths


def test_lengths_tell_which_indices_are_padding() -> None:
    for count, ranks in itertools.product(range(1, 30), range(1, 8)):
        samplers = world(count, ranks)
        lengths = samplers[0].lengths()
        own = [list(each)[:length] for each, length in zip(samplers, lengths, strict=True)]
        assert sorted(itertools.chain(*own)) == list(range(count))
    assert world(10, 4, drop_last=True)[3].lengths() == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"order": "random"}, "order should be 'torch' or 'keyed', but got 'random'"),
        ({"order": None}, "order should be 'torch' or 'keyed', but got None"),
        ({"uneven": True, "drop_last": True}, "choose one"),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Ours(range(4), 1, 0, **arguments)


# --- which rank of how many ---------------------------------------------------------------------

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4"}
SLURM = {"SLURM_PROCID": "5", "SLURM_NTASKS": "6"}
MPI = {"OMPI_COMM_WORLD_RANK": "7", "OMPI_COMM_WORLD_SIZE": "8"}


@pytest.mark.parametrize(
    ("environment", "arguments", "expected"),
    [
        (TORCHRUN, {}, (4, 3)),
        (SLURM, {}, (6, 5)),
        (MPI, {}, (8, 7)),
        ({**TORCHRUN, **SLURM, **MPI}, {}, (4, 3)),
        ({"WORLD_SIZE": "4", **SLURM}, {}, (6, 5)),
        ({"SLURM_NTASKS": "6", **MPI}, {}, (8, 7)),
        ({**SLURM, "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6"}, {}, (6, 5)),
        (TORCHRUN, {"num_replicas": 2, "rank": 1}, (2, 1)),
        (TORCHRUN, {"num_replicas": 4}, (4, 3)),
        (TORCHRUN, {"rank": 0}, (4, 0)),
        ({"RANK": "x", "WORLD_SIZE": "y"}, {"num_replicas": 2, "rank": 1}, (2, 1)),
    ],
    ids=str,
)
def test_a_launcher_tells_the_rank(
    environment: dict[str, str],
    arguments: dict[str, int],
    expected: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    sampler = Ours(range(10), **arguments)
    assert (sampler.num_replicas, sampler.rank) == expected


@pytest.mark.parametrize(
    ("environment", "arguments", "said"),
    [
        ({}, {}, "RANK/WORLD_SIZE, .*: none set"),
        ({}, {"num_replicas": 2}, "none set"),
        ({}, {"rank": 0}, "none set"),
        ({"WORLD_SIZE": "4"}, {}, "only WORLD_SIZE set"),
        ({"RANK": "1", "SLURM_NTASKS": "4"}, {}, "only RANK, SLURM_NTASKS set"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, {}, "RANK='4' and WORLD_SIZE='4' name no rank"),
        ({"RANK": "-1", "WORLD_SIZE": "4"}, {}, "RANK='-1' and WORLD_SIZE='4' name no rank"),
        ({"RANK": "", "WORLD_SIZE": "4"}, {}, "RANK='' and WORLD_SIZE='4' name no rank"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4(x2)"}, {}, "name no rank"),
        ({**SLURM, **MPI}, {}, r"SLURM_\S+ say rank 5 of 6, OMPI_\S+ say rank 7 of 8"),
        (TORCHRUN, {"num_replicas": 2}, "num_replicas is 2, but this is rank 3 of 4"),
    ],
    ids=str,
)
def test_a_rank_nobody_knows_or_all_know_differently_is_one_line(
    environment: dict[str, str],
    arguments: dict[str, int],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=said) as caught:
        Ours(range(10), **arguments)
    assert "\n" not in str(caught.value)
    assert "num_replicas= and rank=" in str(caught.value) or "pass rank= too" in str(caught.value)


@pytest.fixture
def process_group() -> Iterator[None]:
    """A world of one, without a network."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_process_group_knows_better_than_the_launcher(
    process_group: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    sampler = Ours(range(10))
    assert (sampler.num_replicas, sampler.rank) == (1, 0)
    sampler.check()
    with pytest.raises(ValueError, match=r"this is rank 0 of 1 \(torch.distributed\)"):
        Ours(range(10), num_replicas=2)


def test_checking_without_a_process_group_says_so() -> None:
    with pytest.raises(RuntimeError, match="init_process_group"):
        Ours(range(10), 1, 0).check()


# --- set_epoch ----------------------------------------------------------------------------------


def _advice(monkeypatch: pytest.MonkeyPatch, sampler: Ours[int], *epochs: Any) -> list[str]:
    """Iterates; an epoch is a number to set, None, or "break" to leave early."""
    monkeypatch.setattr(loader_stats, "_advised", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for epoch in epochs:
            if isinstance(epoch, int):
                sampler.set_epoch(epoch)
            for _ in sampler:
                if epoch == "break":
                    break
    return [str(each.message) for each in caught if each.category is millhead.Advice]


@pytest.mark.parametrize("order", ["torch", "keyed"])
def test_a_second_epoch_in_the_same_order_is_said_once(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = _advice(monkeypatch, Ours(range(8), 2, 0, order=order), None, None, None)
    assert len(said) == 1
    assert said[0].startswith("millhead: an epoch begins in the same order as the one before (")
    assert said[0].endswith("): call sampler.set_epoch(epoch) before each epoch")


@pytest.mark.parametrize(
    ("arguments", "epochs"),
    [
        ({}, [None]),
        ({}, [0, 1, 2]),
        ({}, [None, 1, 2]),
        ({}, [0, None, None]),  # chosen, by somebody who knows of it
        ({}, ["break", "break", None]),  # a look at the first batch
        ({"shuffle": False}, [None, None]),
    ],
    ids=str,
)
def test_nothing_is_said_otherwise(
    arguments: dict[str, Any], epochs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _advice(monkeypatch, Ours(range(8), 2, 0, **arguments), *epochs) == []
    assert _advice(monkeypatch, Ours([], 2, 0, **arguments), *epochs) == []


def test_another_seed_or_epoch_set_by_hand_is_another_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampler = Ours(range(8), 2, 0)
    assert _advice(monkeypatch, sampler, None) == []
    sampler.seed = 1
    assert _advice(monkeypatch, sampler, None) == []
    sampler.epoch = 1
    assert _advice(monkeypatch, sampler, None) == []
    assert len(_advice(monkeypatch, sampler, None)) == 1


def test_a_loader_with_workers_is_advised_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_stats, "_advised", set())
    data = TensorDataset(torch.arange(8))
    loader = DataLoader(data, batch_size=None, sampler=Ours(data, 2, 0), num_workers=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(loader)) == 4
    with pytest.warns(millhead.Advice, match="set_epoch"):
        assert len(list(loader)) == 4


# --- resuming -----------------------------------------------------------------------------------


def _consume(samplers: list[Ours[int]], each: int) -> list[int]:
    """What all ranks give in step until each has given so many, or all it has."""
    parts = [list(itertools.islice(sampler, each)) for sampler in samplers]
    return list(itertools.chain(*parts))


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_world_of_another_size_shares_out_what_remains(
    mode: dict[str, Any], order: dict[str, Any]
) -> None:
    for count, old, new in itertools.product((1, 10, 23), range(1, 6), range(1, 6)):
        whole = given(world(count, 1, seed=5, **order))
        for each in range(count // old + 1):
            before = world(count, old, seed=5, **mode, **order)
            _consume(before, each)
            state = before[0].state_at(min(each, len(before[0])))
            after = world(count, new, **mode, **order)
            for sampler in after:
                sampler.load_state_dict(json.loads(json.dumps(state)))
            rest = given(after)
            position = min(each * old, count)
            remaining = whole[position:]
            lengths = {len(list(again)) for again in after}
            if mode.get("drop_last"):
                complete = each == count // old and each > 0
                expected = [] if complete else remaining[: len(remaining) // new * new]
                assert rest == expected
            elif mode.get("uneven"):
                assert rest == remaining
            else:
                assert rest[: len(remaining)] == remaining
                assert len(rest) == -(-len(remaining) // new) * new
            assert lengths == {len(sampler) for sampler in after}  # and then whole epochs again


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_the_same_world_goes_on_as_if_it_had_not_stopped(
    mode: dict[str, Any], order: dict[str, Any]
) -> None:
    for count, ranks in itertools.product((1, 10, 23), range(1, 6)):
        for rank in range(ranks):
            arguments = {"num_replicas": ranks, "rank": rank, **mode, **order}
            whole = list(Ours(range(count), **arguments))
            for consumed in range(len(whole) + 1):
                sampler = Ours(range(count), **arguments)
                state = sampler.state_at(consumed)
                sampler.load_state_dict(state)
                assert list(sampler) == whole[consumed:]


def test_a_second_resume_starts_from_the_first_ones_position() -> None:
    whole = list(Ours(range(50), 1, 0, seed=1))
    first = Ours(range(50), 5, 0, seed=1)
    second = Ours(range(50), 2, 0)
    second.load_state_dict(first.state_at(4))
    assert next(iter(second)) == whole[20]
    assert second.state_dict()["position"] == 20
    state = second.state_at(6)
    assert state["position"] == 32
    third = Ours(range(50), 1, 0)
    third.load_state_dict(state)
    assert list(third) == whole[32:]


def test_prefetched_indices_do_not_count() -> None:
    data = TensorDataset(torch.arange(60))
    whole = [batch.tolist() for (batch,) in DataLoader(data, 5, sampler=Ours(data, 2, 0))]
    sampler = Ours(data, 2, 0)
    iterator = iter(DataLoader(data, 5, sampler=sampler, num_workers=2, prefetch_factor=2))
    for _ in range(2):
        next(iterator)
    assert sampler.state_dict()["position"] == 0
    state = sampler.state_at(10)
    del iterator
    again = Ours(data, 2, 0)
    again.load_state_dict(state)
    rest = DataLoader(data, 5, sampler=again, num_workers=2)
    assert [batch.tolist() for (batch,) in rest] == whole[2:]


def test_set_epoch_goes_on_with_its_epoch_and_begins_any_other() -> None:
    state = Ours(range(20), 2, 0).state_at(7)
    state["epoch"] = 4
    sampler = Ours(range(20), 2, 0)
    sampler.load_state_dict(state)
    assert (sampler.epoch, sampler.state_dict()) == (4, state)
    sampler.set_epoch(4)
    assert len(sampler) == 10
    assert len(list(sampler)) == 3
    sampler.set_epoch(5)
    assert sampler.state_dict() == {**state, "epoch": 5, "position": 0}
    assert len(list(sampler)) == 10
    sampler.load_state_dict(state)
    sampler.set_epoch(5)
    assert len(list(sampler)) == 10
    sampler.set_epoch(4)
    assert len(list(sampler)) == 10  # the state was left behind


def test_a_complete_epoch_leaves_nothing_once() -> None:
    sampler = Ours(range(10), 4, 3, drop_last=True)
    state = sampler.state_at(2)
    assert state["position"] == 10
    sampler.load_state_dict(state)
    assert list(sampler) == []
    assert len(list(sampler)) == 2


def test_an_iterator_that_is_never_used_does_not_use_up_the_state() -> None:
    whole = list(Ours(range(20), 2, 1))
    sampler = Ours(range(20), 2, 1)
    sampler.load_state_dict(sampler.state_at(4))
    iter(sampler)  # torch's loader makes two of a sampler that is not batched
    assert list(sampler) == whole[4:]
    assert list(sampler) == whole


def test_a_state_of_an_earlier_epoch_counts_from_there() -> None:
    sampler = Ours(range(20), 2, 0)
    began = sampler.state_dict()
    sampler.set_epoch(1)
    next(iter(sampler))
    assert sampler.state_at(3, since=began) == {**began, "position": 6}
    assert sampler.state_at(3) == {**began, "epoch": 1, "position": 6}
    assert began["position"] == 0


def test_what_was_consumed_belongs_to_the_epoch_begun_last() -> None:
    sampler = Ours(range(20), 2, 0)
    began = sampler.state_dict()
    assert len(list(sampler)) == 10
    sampler.set_epoch(1)  # and a state is wanted before that epoch begins
    assert sampler.state_at(7) == {**began, "position": 14}
    assert sampler.state_at(10) == {**began, "position": 20}
    assert sampler.state_at(0) == sampler.state_dict() == {**began, "epoch": 1}
    next(iter(sampler))
    assert sampler.state_at(7) == {**began, "epoch": 1, "position": 14}


def test_a_resumed_epoch_and_the_same_one_again_have_their_own_beginnings() -> None:
    sampler = Ours(range(20), 2, 0, shuffle=False)
    sampler.load_state_dict(sampler.state_at(4))
    assert list(sampler) == [8, 10, 12, 14, 16, 18]
    assert sampler.state_at(2)["position"] == 12  # some may wait in a loader still
    iterator = iter(sampler)
    assert next(iterator) == 0
    assert sampler.state_at(2)["position"] == 4


@pytest.mark.parametrize("consumed", [-1, 11])
def test_more_than_there_is_was_not_consumed(consumed: int) -> None:
    with pytest.raises(ValueError, match=f"consumed should be 0 to 10, but got {consumed}"):
        Ours(range(20), 2, 0).state_at(consumed)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 2}, "version 2"),
        ({"length": 21}, "length=21, this sampler 20"),
        ({"shuffle": False}, "shuffle=False, this sampler True"),
        ({"order": "keyed"}, "order='keyed', this sampler 'torch'"),
        ({"position": -1}, "position should be 0 to 20"),
        ({"position": 21}, "position should be 0 to 20"),
        ({"position": None}, "damaged: position=None"),
        ({"seed": "x"}, "damaged: seed='x'"),
        ({"epoch": [1]}, r"damaged: epoch=\[1\]"),
        ({"seed": 10**30}, "damaged: seed=10000"),
        ({"seed": -(2**63) - 1}, "damaged: seed=-9223372036854775809"),
        ({"epoch": 10**30}, "damaged: epoch=10000"),
    ],
    ids=str,
)
def test_a_state_that_does_not_fit_is_refused(changes: dict[str, Any], said: str) -> None:
    sampler = Ours(range(20), 2, 0)
    before = sampler.state_dict()
    with pytest.raises(ValueError, match=said):
        sampler.load_state_dict({**before, "seed": 9, "epoch": 9, **changes})
    assert sampler.state_dict() == before
    with pytest.raises(ValueError, match="version None"):
        sampler.load_state_dict({"yielded": 3})
    with pytest.raises(ValueError, match="millhead: cannot resume: not a state of this sampler"):
        sampler.load_state_dict("yielded")


def test_a_state_has_plain_values_and_may_have_more_keys() -> None:
    state = Ours(range(20), 2, 0, seed=6).state_at(2)
    assert state == {
        "version": 1,
        "epoch": 0,
        "position": 4,
        "length": 20,
        "shuffle": True,
        "seed": 6,
        "order": "torch",
    }
    file = io.BytesIO()
    torch.save({**state, "note": "of mine"}, file)
    file.seek(0)
    sampler = Ours(range(20), 2, 0)
    sampler.load_state_dict(torch.load(file, weights_only=True))
    assert sampler.state_dict() == state


def test_integers_of_numpy_and_every_seed_of_torch_may_be_loaded_again() -> None:
    sampler = Ours(range(20), 2, 0, seed=np.int64(7), order="keyed")  # torch's order takes none
    sampler.set_epoch(np.int64(1))
    other = Ours(range(20), 2, 0, order="keyed")
    other.load_state_dict(json.loads(json.dumps(sampler.state_dict())))
    assert list(other) == list(sampler)
    other = Ours(range(20), 2, 0)
    for seed in (-(2**63), 2**64 - 1):
        sampler = Ours(range(20), 2, 0, seed=seed)
        other.load_state_dict(sampler.state_dict())
        assert list(other) == list(sampler)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_in_use_begins_where_the_epoch_began(copied: Any) -> None:
    sampler = Ours(range(20), 2, 0, seed=3)
    sampler.load_state_dict(sampler.state_at(4))
    iterator = iter(sampler)
    next(iterator)
    other = copied(sampler)
    assert other.state_dict() == sampler.state_dict()
    assert other.state_dict()["position"] == 8
    assert list(other)[1:] == list(iterator)
    assert len(list(other)) == 10


# --- torchdata's loader -------------------------------------------------------------------------


def test_the_states_of_a_sampler_and_its_iterator_go_on_together() -> None:
    """What torchdata does: it keeps both, and loads both."""
    sampler = Ours(range(50), 2, 1)
    sampler.load_state_dict(sampler.state_at(3))
    iterator = iter(sampler)
    seen = [next(iterator) for _ in range(5)]
    states = sampler.state_dict(), iterator.state_dict()  # type: ignore[attr-defined]
    other = Ours(range(50), 2, 1)
    other.load_state_dict(states[0])
    again = iter(other)
    again.load_state_dict(states[1])  # type: ignore[attr-defined]
    rest = list(again)
    assert [*seen, *rest] == list(Ours(range(50), 2, 1))[3:]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch_size", [4, None])
def test_torchdatas_loader_resumes_it(workers: int, batch_size: int | None) -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    data = TensorDataset(torch.arange(50))

    def loader() -> Any:
        sampler = Ours(data, 2, 1, seed=8)
        sampler.set_epoch(2)
        return torchdata.StatefulDataLoader(
            data, batch_size=batch_size, sampler=sampler, num_workers=workers
        )

    whole = [batch.tolist() for (batch,) in loader()]
    first = loader()
    iterator = iter(first)
    for _ in range(3):
        next(iterator)
    state = first.state_dict()
    del iterator
    second = loader()
    second.load_state_dict(state)
    assert [batch.tolist() for (batch,) in second] == whole[3:]


# --- ranks that disagree ---


class Unhashable(torch.utils.data.DistributedSampler[int]):
    def __eq__(self, other: object) -> bool:
        return self is other


class ByName(torch.utils.data.DistributedSampler[int]):
    """Has none of torch's attributes."""

    def __init__(self, _: Any) -> None:
        self.seed = "today"  # type: ignore[assignment]

    def __iter__(self) -> Iterator[int]:
        return iter(range(4))

    def __len__(self) -> int:
        return 4


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("kind", [Unhashable, ByName])
def test_samplers_of_the_users_own_need_not_be_comparable(
    kind: Any, grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = dist.HashStore()
    monkeypatch.setattr(dist, "is_initialized", lambda: grouped)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: store)
    sampler = ByName(range(8)) if kind is ByName else Unhashable(range(8), 2, 0)
    for _ in range(2):
        assert len(list(DataLoader(range(8), sampler=sampler))) == 4
