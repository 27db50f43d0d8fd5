"""The two ends of the hand-over, in one process: schemas, indices, and what the collector sees."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from millhead import _core

DEPTH = 4
OLD = torch.arange(1000)
NEW = {"x": torch.arange(300, dtype=torch.float64)}


def _consumer_end(
    dumps: Callable[[Any], bytes], board: bool = False, budget: int = 0
) -> _core.ConsumerEnd:
    return _core.ConsumerEnd(_core.Pool(budget), 1, DEPTH, DEPTH, dumps, _core.Meter(), board)


def _worker_end(
    channel: _core.ConsumerEnd, loads: Callable[[bytes], Any] = pickle.loads
) -> _core.WorkerEnd:
    return _core.WorkerEnd(channel.fds(0), channel.maps(0), 0, DEPTH, loads)


def _use(channel: _core.ConsumerEnd, batch: Any) -> None:
    found = channel.measure(batch)
    assert found is not None
    structure, size = found
    channel.set_schema(structure, pickle.dumps(structure), size, 2 * DEPTH)


class Learning:
    """Pickles indices; once, another thread learns a schema meanwhile."""

    def __init__(self) -> None:
        self.learn: Callable[[], None] | None = None

    def __call__(self, index: Any) -> bytes:
        if self.learn is not None:
            self.learn()
            self.learn = None
            # use the memory of the old schema again, if it was freed
            self.junk = [b"\0" * (size % 200) for size in range(20_000)]
        return pickle.dumps(index)


def test_a_task_keeps_the_schema_it_was_granted_a_slot_for() -> None:
    dumps = Learning()
    channel = _consumer_end(dumps)
    station = _worker_end(channel)
    _use(channel, OLD)
    dumps.learn = lambda: _use(channel, NEW)
    for position, batch in enumerate([OLD, NEW, NEW]):
        channel.put(0, position, ["key"], 1)
        assert station.next() == (["key"], False, False)
        assert station.send_batch(batch), position
        taken = channel.take(0, 0)
        assert taken is not None
        assert taken[0] == _core.SLOT
        torch.testing.assert_close(taken[1], batch)
    assert dumps.learn is None


def test_a_batch_on_the_board_keeps_the_schema_it_was_granted_a_slot_for() -> None:
    dumps = Learning()
    channel = _consumer_end(dumps, board=True)
    station = _worker_end(channel)
    _use(channel, OLD)
    dumps.learn = lambda: _use(channel, NEW)
    for position, batch in enumerate([OLD[None], {"x": NEW["x"][None]}]):
        sample = OLD if position == 0 else NEW
        channel.publish(position, ["key"], 1, 0, 0, True, False)
        assert station.claim() == (["key"], 0, 1, 0, 0)
        assert station.rows([sample]), position
        assert channel.receive(0) == (position, _core.WHOLE, 0)
        torch.testing.assert_close(channel.build(position), batch)


def test_larger_batches_than_any_slot_are_refused_and_the_schema_stays() -> None:
    channel = _consumer_end(pickle.dumps, budget=1 << 20)
    station = _worker_end(channel)
    _use(channel, OLD)
    with pytest.raises(MemoryError, match="does not fit into the memory budget of 1048576"):
        _use(channel, torch.zeros(1 << 20))
    assert channel.same_structure(channel.measure(OLD)[0])  # type: ignore[index]
    channel.put(0, 0, [0], 1)
    station.next()
    assert station.send_batch(OLD)


def test_fewer_slots_than_wanted_are_no_refusal() -> None:
    channel = _consumer_end(pickle.dumps, budget=1 << 20)
    station = _worker_end(channel)
    _use(channel, OLD)
    large = torch.zeros(100_000)  # two of them fit
    _use(channel, large)
    for position in range(2):
        channel.put(0, position, [0], 1)
        station.next()
        assert station.send_batch(large)


# --- indices that are too large ---


@pytest.mark.parametrize("board", [False, True])
def test_an_index_of_more_than_4_gib_is_refused(board: bool) -> None:
    try:
        pickled = bytes(1 << 32)  # never touched: address space, not memory
    except MemoryError:
        pytest.skip("no address space for 4 GiB")
    channel = _consumer_end(lambda index: pickled, board)
    with pytest.raises(ValueError, match="index of 4294967296 bytes .* too large"):
        if board:
            channel.publish(0, ["key"], 1, 0, 0, False, False)
        else:
            channel.put(0, 0, "key", 1)


def test_an_index_that_the_budget_has_no_room_for_is_named() -> None:
    channel = _consumer_end(lambda index: bytes(3_000_000), budget=1 << 20)
    with pytest.raises(MemoryError, match="index of 3000000 bytes"):
        channel.put(0, 0, "key", 1)


# --- the garbage collector ---


class Node:
    """Something that a cycle can go through."""

    holds: Any

    def __call__(self, argument: Any) -> Any:
        return b"pickled" if not isinstance(argument, bytes) else [self]


def _through_dumps(node: Node) -> None:
    node.holds = _consumer_end(node)


def _through_an_index(node: Node) -> None:
    node.holds = channel = _consumer_end(lambda index: b"pickled")
    channel.put(0, 0, node, 1)


def _through_an_index_on_the_board(node: Node) -> None:
    node.holds = channel = _consumer_end(lambda index: b"pickled", board=True)
    channel.publish(0, [node], 1, 0, 0, False, False)


def _through_the_schema(node: Node) -> None:
    node.holds = channel = _consumer_end(pickle.dumps)
    channel.set_schema(node, b"pickled", 4096, 1)


def _through_a_tasks_structure(node: Node) -> None:
    node.holds = channel = _consumer_end(pickle.dumps)
    channel.set_schema(node, b"pickled", 4096, 1)
    channel.put(0, 0, [0], 1)
    channel.set_schema((), b"pickled", 4096, 1)


def _through_loads(node: Node) -> None:
    node.holds = _worker_end(_consumer_end(pickle.dumps), node)


def _through_a_learnt_structure(node: Node) -> None:
    channel = _consumer_end(pickle.dumps)
    node.holds = station = _worker_end(channel, lambda data: node)
    _use(channel, OLD)
    channel.put(0, 0, ["key"], 1)
    assert station.next() == (node, False, False)


def _through_a_stations_indices(node: Node) -> None:
    channel = _consumer_end(pickle.dumps, board=True)
    node.holds = station = _worker_end(channel, node)
    channel.publish(0, ["key"], 1, 0, 0, False, False)
    assert station.claim() == ([node], 0, 1, 0, 0)


@pytest.mark.parametrize(
    "close_cycle",
    [
        _through_dumps,
        _through_an_index,
        _through_an_index_on_the_board,
        _through_the_schema,
        _through_a_tasks_structure,
        _through_loads,
        _through_a_learnt_structure,
        _through_a_stations_indices,
    ],
)
def test_a_cycle_is_collected(close_cycle: Callable[[Node], None]) -> None:
    node = Node()
    gone = weakref.ref(node)
    close_cycle(node)
    del node
    gc.collect()
    assert gone() is None


def test_a_station_without_a_board_has_nothing_to_claim() -> None:
    station = _worker_end(_consumer_end(pickle.dumps))
    with pytest.raises(RuntimeError, match="no board"):
        station.claim()
