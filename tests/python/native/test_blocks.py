"""shuffle="blocks": each sample once, few chunks in use, the same for all threads, any world goes on."""

import json
from typing import Any

import millhead
import pytest

COUNT = 997
DATA = f"synthetic:count={COUNT},shape=4,chunk=20,seed=2"


def loader(**options: Any) -> millhead.Loader:
    return millhead.Loader(
        DATA, fields=["_index", "x"], shuffle="blocks", seed=5, output="numpy", **options
    )


def indices(batches: Any) -> list[int]:
    return [int(index) for batch in batches for index in batch["_index"]]


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_each_sample_comes_once_over_all_ranks(world: int) -> None:
    seen: list[int] = []
    for rank in range(world):
        with loader(batch_size=7, rank=rank, world=world, uneven=True) as own:
            seen += indices(own)
    assert sorted(seen) == list(range(COUNT))


def test_threads_prefetch_and_memory_change_nothing() -> None:
    streams = []
    for options in ({"threads": 0}, {"threads": 2, "prefetch": 5}, {"memory": "2MB"}):
        with loader(batch_size=16, **options) as own:
            streams.append([batch["x"].tobytes() + batch["_index"].tobytes() for batch in own])
    assert streams[0] == streams[1] == streams[2]


def test_epochs_differ_and_chunks_are_decoded_once() -> None:
    with loader(batch_size=10, threads=1) as own:
        first, second = indices(own), indices(own)
        units = own.stats()["units"]
    assert sorted(first) == sorted(second)
    assert first != second
    assert units["refetched"] == 0
    chunks = {index // 20 for index in first[:100]}
    assert 6 <= len(chunks) <= 16  # of 50: mixed, but not all over the place


@pytest.mark.parametrize("stop", [0, 1, 5, 20, 33])
@pytest.mark.parametrize("worlds", [(1, 1), (2, 2), (2, 3), (4, 1), (3, 8)])
def test_another_world_takes_up_the_rest(stop: int, worlds: tuple[int, int]) -> None:
    before, after = worlds
    seen: list[int] = []
    state: dict[str, Any] = {}
    for rank in range(before):
        with loader(batch_size=5, rank=rank, world=before, uneven=True) as own:
            batches = iter(own)
            for _ in range(stop):
                seen += indices([next(batches)])
            state = json.loads(json.dumps(own.state_dict()))
    assert state["position"] == stop * 5 * before
    for rank in range(after):
        with loader(batch_size=4, rank=rank, world=after, uneven=True) as own:
            own.load_state_dict(state)
            assert own.state_dict() == state
            seen += indices(own)
    assert sorted(seen) == list(range(COUNT))


def test_three_worlds_one_after_the_other() -> None:
    state: dict[str, Any] | None = None
    seen: list[int] = []
    for world, steps in [(2, 30), (4, 10), (1, 10**9)]:
        latest = state
        for rank in range(world):
            with loader(batch_size=5, rank=rank, world=world, uneven=True) as own:
                if state is not None:
                    own.load_state_dict(state)
                for _, batch in zip(range(steps), own, strict=False):
                    seen += indices([batch])
                latest = own.state_dict()
        state = latest
    assert sorted(seen) == list(range(COUNT))


def test_resuming_is_the_rest_of_the_same_stream() -> None:
    with loader(batch_size=8) as own:
        whole = indices(own)
    for steps in range(0, 124, 13):
        with loader(batch_size=8) as own:
            batches = iter(own)
            for _ in range(steps):
                next(batches)
            state = own.state_dict()
        with loader(batch_size=8, threads=0) as again:
            again.load_state_dict(state)
            assert indices(again) == whole[steps * 8 :]
            assert indices(again) != whole  # the next epoch is a new one


def test_a_position_belongs_to_its_sample_in_every_world() -> None:
    """What is drawn for a sample (here: its substitute) does not depend on the number of ranks."""
    broken = DATA + ",broken=20%"
    drawn = []
    for world in (1, 3):
        pairs: list[tuple[int, bytes]] = []
        for rank in range(world):
            with millhead.Loader(
                broken, 1, fields=["_index", "x"], shuffle="blocks", seed=5, on_error="replace",
                rank=rank, world=world, uneven=True, output="numpy",
            ) as own:  # fmt: skip
                pairs += [(int(batch["_index"][0]), batch["x"].tobytes()) for batch in own]
        drawn.append(sorted(pairs))
    assert drawn[0] == drawn[1]


def test_a_state_of_another_order_is_refused() -> None:
    with loader(batch_size=8) as own:
        state = own.state_dict()
    with (
        millhead.Loader(DATA, 8, shuffle=True, seed=5) as other,
        pytest.raises(ValueError, match="shuffle"),
    ):
        other.load_state_dict(state)


def test_legs_that_make_no_sense_are_refused() -> None:
    with loader(batch_size=8) as own:
        state = {**own.state_dict(), "legs": [[2, 5000]]}
        with pytest.raises(ValueError, match="goes on"):
            own.load_state_dict(state)
