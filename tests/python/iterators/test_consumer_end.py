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
    consumer: _core.ConsumerEnd, loads: Callable[[bytes], Any] = pickle.loads
) -> _core.WorkerEnd:
    return _core.WorkerEnd(consumer.fds(0), consumer.maps(0), 0, DEPTH, loads)


def _use(consumer: _core.ConsumerEnd, batch: Any) -> None:
    found = consumer.measure(batch)
    assert found is not None
    structure, size = found
    consumer.set_schema(structure, pickle.dumps(structure), size, 2 * DEPTH)


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
    consumer = _consumer_end(dumps)
    worker = _worker_end(consumer)
    _use(consumer, OLD)
    dumps.learn = lambda: _use(consumer, NEW)
    for position, batch in enumerate([OLD, NEW, NEW]):
        consumer.put(0, position, ["key"], 1)
        assert worker.next() == (["key"], False, False)
        assert worker.send_batch(batch), position
        taken = consumer.take(0, 0)
        assert taken is not None
        assert taken[0] == _core.SLOT
        torch.testing.assert_close(taken[1], batch)
    assert dumps.learn is None


def test_a_batch_on_the_board_keeps_the_schema_it_was_granted_a_slot_for() -> None:
    dumps = Learning()
    consumer = _consumer_end(dumps, board=True)
    worker = _worker_end(consumer)
    _use(consumer, OLD)
    dumps.learn = lambda: _use(consumer, NEW)
    for position, batch in enumerate([OLD[None], {"x": NEW["x"][None]}]):
        sample = OLD if position == 0 else NEW
        consumer.publish(position, ["key"], 1, 0, 0, True, False)
        assert worker.claim() == (["key"], 0, 1, 0, 0)
        assert worker.rows([sample]), position
        assert consumer.receive(0) == (position, _core.WHOLE, 0)
        torch.testing.assert_close(consumer.build(position), batch)


def test_larger_batches_than_any_slot_are_refused_and_the_schema_stays() -> None:
    consumer = _consumer_end(pickle.dumps, budget=1 << 20)
    worker = _worker_end(consumer)
    _use(consumer, OLD)
    with pytest.raises(MemoryError, match="does not fit into the memory budget of 1048576"):
        _use(consumer, torch.zeros(1 << 20))
    assert consumer.same_structure(consumer.measure(OLD)[0])  # type: ignore[index]
    consumer.put(0, 0, [0], 1)
    worker.next()
    assert worker.send_batch(OLD)


def test_fewer_slots_than_wanted_are_no_refusal() -> None:
    consumer = _consumer_end(pickle.dumps, budget=1 << 20)
    worker = _worker_end(consumer)
    _use(consumer, OLD)
    large = torch.zeros(100_000)  # two of them fit
    _use(consumer, large)
    for position in range(2):
        consumer.put(0, position, [0], 1)
        worker.next()
        assert worker.send_batch(large)


# --- indices that are too large ---


@pytest.mark.parametrize("board", [False, True])
def test_an_index_of_more_than_4_gib_is_refused(board: bool) -> None:
    try:
        pickled = bytes(1 << 32)  # never touched: address space, not memory
    except MemoryError:
        pytest.skip("no address space for 4 GiB")
    consumer = _consumer_end(lambda index: pickled, board)
    with pytest.raises(ValueError, match="index of 4294967296 bytes .* too large"):
        if board:
            consumer.publish(0, ["key"], 1, 0, 0, False, False)
        else:
            consumer.put(0, 0, "key", 1)


def test_an_index_that_the_budget_has_no_room_for_is_named() -> None:
    consumer = _consumer_end(lambda index: bytes(3_000_000), budget=1 << 20)
    with pytest.raises(MemoryError, match="index of 3000000 bytes"):
        consumer.put(0, 0, "key", 1)


# --- the garbage collector ---


class Node:
    """Something that a cycle can go through."""

    holds: Any

    def __call__(self, argument: Any) -> Any:
        return b"pickled" if not isinstance(argument, bytes) else [self]


def _through_dumps(node: Node) -> None:
    node.holds = _consumer_end(node)


def _through_an_index(node: Node) -> None:
    node.holds = consumer = _consumer_end(lambda index: b"pickled")
    consumer.put(0, 0, node, 1)


def _through_an_index_on_the_board(node: Node) -> None:
    node.holds = consumer = _consumer_end(lambda index: b"pickled", board=True)
    consumer.publish(0, [node], 1, 0, 0, False, False)


def _through_the_schema(node: Node) -> None:
    node.holds = consumer = _consumer_end(pickle.dumps)
    consumer.set_schema(node, b"pickled", 4096, 1)


def _through_a_tasks_structure(node: Node) -> None:
    node.holds = consumer = _consumer_end(pickle.dumps)
    consumer.set_schema(node, b"pickled", 4096, 1)
    consumer.put(0, 0, [0], 1)
    consumer.set_schema((), b"pickled", 4096, 1)


def _through_loads(node: Node) -> None:
    node.holds = _worker_end(_consumer_end(pickle.dumps), node)


def _through_a_learnt_structure(node: Node) -> None:
    consumer = _consumer_end(pickle.dumps)
    node.holds = worker = _worker_end(consumer, lambda data: node)
    _use(consumer, OLD)
    consumer.put(0, 0, ["key"], 1)
    assert worker.next() == (node, False, False)


def _through_a_workers_indices(node: Node) -> None:
    consumer = _consumer_end(pickle.dumps, board=True)
    node.holds = worker = _worker_end(consumer, node)
    consumer.publish(0, ["key"], 1, 0, 0, False, False)
    assert worker.claim() == ([node], 0, 1, 0, 0)


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
        _through_a_workers_indices,
    ],
)
def test_a_cycle_is_collected(close_cycle: Callable[[Node], None]) -> None:
    node = Node()
    gone = weakref.ref(node)
    close_cycle(node)
    del node
    gc.collect()
    assert gone() is None


def test_a_worker_without_a_board_has_nothing_to_claim() -> None:
    worker = _worker_end(_consumer_end(pickle.dumps))
    with pytest.raises(RuntimeError, match="no board"):
        worker.claim()
