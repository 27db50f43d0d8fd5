"""The C core's orders: torch's shuffle bit for bit, the keyed one, and a rank's share of them."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from typing import Any

import pytest
import torch
from millhead._core import Error, Order

KINDS = ["sequential", "keyed", "torch"]
#: From here on torch shuffles in another way, with nothing known before the last draw.
LARGE = (2**32 - 1) // 20


def order_of(kind: str, count: int, **changes: Any) -> Order:
    """The whole epoch as a single rank's, unless changed."""
    arguments: dict[str, Any] = {"mode": "pad", "start": 0, "ranks": 1, "rank": 0}
    return Order(kind, count=count, **{**arguments, "seed": 0, "epoch": 0, **changes})


def torchs(count: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(count, generator=generator).tolist()


@pytest.mark.parametrize("seed", [0, 1, 42, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1])
def test_a_shuffle_is_torchs_for_every_small_count(seed: int) -> None:
    for count in range(300):
        assert list(order_of("torch", count, seed=seed)) == torchs(count, seed)


def test_a_shuffle_is_torchs_for_random_counts_and_seeds() -> None:
    chosen = random.SystemRandom().randrange(2**32)
    print(f"seed {chosen}")
    draw = random.Random(chosen)
    for _ in range(20):
        count, seed = draw.randrange(100_000), draw.randrange(2**64)
        assert list(order_of("torch", count, seed=seed)) == torchs(count, seed), (count, seed)


def test_a_long_shuffle_is_torchs() -> None:
    assert list(order_of("torch", 2_000_003, seed=9)) == torchs(2_000_003, 9)


@pytest.mark.parametrize("kind", ["keyed", "torch"])
def test_a_shuffle_has_every_sample_once(kind: str) -> None:
    for count in [*range(60), 1000, 65_536, 100_003]:
        assert sorted(order_of(kind, count, seed=3, epoch=1)) == list(range(count))


def test_a_keyed_shuffle_depends_on_seed_and_epoch() -> None:
    found = {tuple(order_of("keyed", 50, seed=s, epoch=e)) for s in range(8) for e in range(8)}
    assert len(found) == 64
    assert list(order_of("keyed", 50, seed=4, epoch=4)) in map(list, found)


def test_a_keyed_shuffle_needs_no_memory() -> None:
    order = order_of("keyed", 2**63 - 1, seed=1)
    assert len(order) == 2**63 - 1
    assert len({order[at] for at in (0, 1, 2**62, 2**63 - 2)}) == 4


def test_a_torch_shuffle_too_large_for_memory_is_refused() -> None:
    with pytest.raises(Error, match=r"4294967297 samples .* use shuffle=True") as caught:
        order_of("torch", 2**32 + 1)
    assert caught.value.code == "not supported"


@pytest.mark.parametrize("kind", KINDS)
def test_any_sample_is_at_hand_by_its_number(kind: str) -> None:
    expected = list(order_of(kind, 101, ranks=3, rank=1))
    order = order_of(kind, 101, ranks=3, rank=1)
    assert len(order) == len(expected) == 34
    assert [order[at] for at in reversed(range(34))] == expected[::-1]
    assert order[-1] == expected[-1]
    assert order.given == 0
    for at in (34, -35, 2**62):
        with pytest.raises(IndexError):
            order[at]


def test_an_order_tells_what_it_gave_and_forgets_itself_at_its_end() -> None:
    order = order_of("torch", 3)
    assert (order.given, order.ended) == (0, False)
    assert [next(order), next(order), next(order)] == torchs(3, 0)
    assert (order.given, order.ended) == (3, False)
    assert list(order) == []
    assert (order.given, order.ended) == (3, True)
    with pytest.raises(IndexError):
        order[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [0, 1, 7, 34])
def test_an_order_goes_on_from_its_state(kind: str, given: int) -> None:
    expected = list(order_of(kind, 101, ranks=3, rank=1))
    first = order_of(kind, 101, ranks=3, rank=1)
    for _ in range(given):
        next(first)
    state = first.state_dict()
    assert state == {"given": given}
    second = order_of(kind, 101, ranks=3, rank=1)
    second.load_state_dict(state)
    assert list(second) == expected[given:]


@pytest.mark.parametrize("given", [-1, 11, 2**80, "1", None])
def test_a_state_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises((ValueError, OverflowError, TypeError)):
        order_of("sequential", 10).load_state_dict({"given": given})
    with pytest.raises(KeyError):
        order_of("sequential", 10).load_state_dict({})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "random"}, "no order"),
        ({"mode": "even"}, "unknown way"),
        ({"ranks": 0}, "no rank 0 of 0"),
        ({"rank": 1}, "no rank 1 of 1"),
        ({"rank": -1}, "no rank"),
        ({"start": 11}, "position 11 is beyond an epoch of 10"),
        ({"count": 2**63 + 1}, "more than"),
    ],
    ids=str,
)
def test_nonsense_is_refused(changes: dict[str, Any], said: str) -> None:
    arguments: dict[str, Any] = {"kind": "keyed", "count": 10, **changes}
    with pytest.raises(ValueError, match=said):
        order_of(**arguments)


class _Interrupt(Exception):
    pass


def test_a_long_draw_heeds_signals_and_lets_other_threads_run() -> None:
    order = order_of("torch", LARGE)  # 0.9 GB that are asked for and hardly touched
    refused: list[BaseException] = []

    def other() -> None:
        time.sleep(0.5)  # the draw takes many seconds
        try:
            order[0]
        except ValueError as error:
            refused.append(error)
        os.kill(os.getpid(), signal.SIGUSR1)

    def stop(*_: Any) -> None:
        raise _Interrupt

    before = signal.signal(signal.SIGUSR1, stop)
    thread = threading.Thread(target=other)
    try:
        with pytest.raises(_Interrupt):
            thread.start()
            next(order)
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert "in use by another thread" in str(refused[0])
    assert (order.given, order.ended) == (0, False)
