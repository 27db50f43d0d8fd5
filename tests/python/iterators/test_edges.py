"""Things that go wrong around the engine rather than in it."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import resource
import signal
import time
from collections import Counter, namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import procs
from millhead.torch import DataLoader, get_worker_info


class Numbers:
    def __init__(self, length: int = 64) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return torch.full((3,), index)


class Who(Numbers):
    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None
        return info.id


class Unloadable:
    """Can be pickled, but not unpickled where the consumer is."""

    def __reduce__(self) -> Any:
        return _refuse, (os.getpid(),)


def _refuse(maker: int) -> Any:
    raise ImportError(f"made in {maker}")


def _first_ones_cannot_be_loaded(samples: list[Any]) -> Any:
    return Unloadable() if int(samples[0][0]) < 8 else ["fine", samples]


def test_batches_that_cannot_be_unpickled_do_not_end_the_epoch() -> None:
    loader = DataLoader(
        Numbers(40), batch_size=1, num_workers=2, collate_fn=_first_ones_cannot_be_loaded
    )
    iterator = iter(loader)
    outcomes: Counter[str] = Counter()
    while True:
        try:
            outcomes[next(iterator)[0]] += 1
        except ImportError:
            outcomes["lost"] += 1
        except StopIteration:
            break
    assert outcomes == {"lost": 8, "fine": 32}


def test_out_of_order_serves_every_worker() -> None:
    loader = DataLoader(Who(64), batch_size=1, num_workers=3, in_order=False)
    served: Counter[int] = Counter()
    for batch in loader:
        served[int(batch)] += 1
        time.sleep(0.005)
    assert min(served[worker] for worker in range(3)) >= 10


def test_the_number_of_slots_is_the_same_in_every_epoch() -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2)
    counts = []
    for _ in range(4):
        list(loader)
        counts.append(loader.stats()["slots"]["count"])
    assert set(counts) == {2 * 2 + 3}


def test_an_exhausted_iterator_holds_no_descriptors() -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2)
    list(loader)
    before = len(os.listdir("/proc/self/fd"))
    iterator = iter(loader)
    list(iterator)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_default_device_does_not_move_batches() -> None:
    iterator = iter(DataLoader(Numbers(), batch_size=4, num_workers=1))
    with torch.device("meta"):
        batches = list(iterator)
    assert [batch.device.type for batch in batches] == ["cpu"] * 16
    assert batches[-1][-1].tolist() == [63, 63, 63]


def test_a_persistent_loader_works_again_after_a_worker_died() -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2, persistent_workers=True)
    iterator: Any = iter(loader)
    next(iterator)
    os.kill(iterator._workers[0].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        list(iterator)
    assert len(list(loader)) == 16
    loader._iterator = None
    gc.collect()


class Slow(Numbers):
    def __getitem__(self, index: int) -> Any:
        time.sleep(0.3)
        return index


def test_an_interrupted_new_epoch_can_be_begun_again() -> None:
    loader = DataLoader(Slow(8), batch_size=1, num_workers=2, persistent_workers=True)
    next(iter(loader))

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            iter(loader)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert [int(batch) for batch in loader] == list(range(8))
    loader._iterator = None
    gc.collect()


def test_a_worker_shows_its_stack_on_request_and_goes_on(tmp_path: Path) -> None:
    code = """
import os, signal, time
from millhead.torch import DataLoader
class Slow:
    def __len__(self): return 4
    def __getitem__(self, index):
        time.sleep(1.0)
        return index
loader = DataLoader(Slow(), num_workers=1)
iterator = iter(loader)
time.sleep(0.5)
os.kill(iterator._workers[0].pid, signal.SIGRTMIN + 9)
print([int(batch) for batch in iterator])
"""
    done = procs.run_python(code)
    assert done.stdout.strip() == "[0, 1, 2, 3]", done.stderr
    assert "__getitem__" in done.stderr


def test_the_trainers_sigterm_handler_does_not_run_in_workers() -> None:
    code = """
import os, signal, time
from millhead.torch import DataLoader
signal.signal(signal.SIGTERM, lambda *_: print("handled", flush=True))
class Forever:
    def __len__(self): return 4
    def __getitem__(self, index): time.sleep(60)
iterator = iter(DataLoader(Forever(), num_workers=1))
time.sleep(0.3)
iterator._shutdown_workers(patience=0.2)
print("done")
"""
    assert procs.run_python(code).stdout.split() == ["done"]


@pytest.mark.parametrize("workers", [2, 8])
def test_an_address_space_limit_leaves_room_for_workers(workers: int) -> None:
    code = f"""
import resource
from millhead.torch import DataLoader
import torch
resource.setrlimit(resource.RLIMIT_AS, (8 * 10**9, resource.RLIM_INFINITY))
loader = DataLoader(torch.zeros(400, 20000), batch_size=4, num_workers={workers})
print(len(list(loader)), loader.stats()["paths"]["slot"] > 0)
"""
    done = procs.run_python(code)
    assert done.stdout.split() == ["100", "True"], done.stderr
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


class _Large:
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2**20,), float(index))


def _spill_bytes() -> int:
    total = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("/memfd:millhead-spill"):
                total += os.fstat(int(name)).st_blocks * 512
    return total


def test_memory_of_the_general_path_is_given_back_once_slots_serve() -> None:
    loader = DataLoader(_Large(), batch_size=2, num_workers=1)
    batches = iter(loader)
    next(batches)
    assert _spill_bytes() >= 2**23  # the first batches came by it
    for batch in batches:
        last = _spill_bytes()
        del batch
    assert loader.stats()["path"] == "slot"
    assert last < 2**20


class _SomeUnpicklable:
    """Good batches of indices, and between them some that no pickle can carry."""

    def __iter__(self) -> Iterator[Any]:
        for number in range(60):
            yield [number, number]
            if 5 <= number < 45:
                yield [lambda: 0]


def test_an_index_that_cannot_be_pickled_costs_no_slot() -> None:
    loader = DataLoader(range(60), batch_sampler=_SomeUnpicklable(), num_workers=1)
    batches = iter(loader)
    refused = 0
    while True:
        try:
            next(batches)
        except StopIteration:
            break
        except (AttributeError, pickle.PicklingError):
            refused += 1
            loader.stats(reset=True)
    assert refused == 40
    assert loader.stats()["paths"]["general"] == 0
    assert loader.stats()["paths"]["slot"] >= 10


class _Lengths:
    def __getitem__(self, key: str) -> int:
        return len(key)


def test_tasks_too_long_for_their_ring_use_the_same_memory_again() -> None:
    keys = ["x" * 100_000] * 30
    loader = DataLoader(_Lengths(), sampler=keys, batch_size=None, num_workers=1)
    taken = []
    for length in loader:
        assert length == 100_000
        taken.append(loader.stats()["slots"]["bytes"])
    assert len(taken) == 30
    assert 0 < max(taken) < 5 * 100_000  # those under way, not all that were


class _Labelled(Numbers):
    def __getitem__(self, index: int) -> Any:
        return {"a long name " * 50: index}


def test_indices_that_fill_their_task_leave_the_schema_its_room() -> None:
    size = 8192  # 64 KiB of indices
    loader = DataLoader(_Labelled(4 * size), batch_size=size, num_workers=1)
    batches = [next(iter(batch.values())) for batch in loader]
    assert torch.equal(torch.cat(batches), torch.arange(4 * size))
    assert loader.stats()["paths"]["slot"] >= 1


Pair = namedtuple("Pair", "a b")


class _Emptying(type):
    """Empties a batch when one of its parts is asked what it is."""

    victim: list[Any] | None = None

    def __getattribute__(cls, name: str) -> Any:
        if name == "_fields" and _Emptying.victim is not None:
            _Emptying.victim.clear()
            _Emptying.victim = None
        return super().__getattribute__(name)


class _Part(Pair, metaclass=_Emptying):
    pass


def _emptied_at_nine(samples: list[int]) -> list[Any]:
    batch = [_Part(torch.ones(2), torch.ones(2)), torch.zeros(3)]
    if samples == [9]:
        _Emptying.victim = batch
    return batch


def test_a_batch_may_change_while_it_is_sent() -> None:
    """It arrives as it is then; what it held is not read after it is gone."""
    loader = DataLoader(range(20), num_workers=1, collate_fn=_emptied_at_nine)
    assert [len(batch) for batch in loader] == [0 if number == 9 else 2 for number in range(20)]
    assert loader.stats()["paths"]["slot"] >= 15
