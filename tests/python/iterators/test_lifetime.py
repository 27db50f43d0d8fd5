"""Who owns a batch and for how long; what loaders and iterators leave when they go."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import procs
from helpers.compare import describe
from helpers.parity_cases import Items
from millhead.torch import DataLoader

LARGE = 64 * 64 * 8  # elements of the sample "large"


def _loader(length: int = 60, kind: str = "large", **arguments: Any) -> DataLoader[Any]:
    arguments = {"num_workers": 2, "batch_size": 2, **arguments}
    return DataLoader(Items(kind, length), **arguments)


def _expected(number: int, size: int = 2) -> torch.Tensor:
    """Batch ``number`` of the sample "large"."""
    return torch.stack([Items("large", 0)[number * size + place] for place in range(size)])


# ---- held batches ---------------------------------------------------------------------------------


@pytest.mark.parametrize("keep_every", [1, 2, 5])
def test_a_held_batch_never_changes(keep_every: int) -> None:
    kept = {}
    for number, batch in enumerate(_loader()):
        if number % keep_every == 0:
            kept[number] = batch
    for number, batch in kept.items():
        assert torch.equal(batch, _expected(number)), number


def test_batches_held_for_a_while_never_change() -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    held: dict[int, torch.Tensor] = {}
    for epoch in range(3):
        for number, batch in enumerate(_loader(120)):
            held[epoch * 1000 + number] = batch
            while len(held) > rng.randint(0, 12):
                key = rng.choice(list(held))
                assert torch.equal(held.pop(key), _expected(key % 1000)), (epoch, key)


def test_slots_are_used_again_when_batches_are_released() -> None:
    loader = _loader(120)
    addresses = [batch.data_ptr() for batch in loader]
    stats = loader.stats()
    assert stats["batches_copied_out"] == 0
    assert len(set(addresses[10:])) <= stats["slots"]["count"] + 3
    assert stats["slots"]["held"] <= 1


def test_workers_that_start_while_a_batch_is_held_cost_no_slot() -> None:
    loader = _loader(20)
    for _ in range(3):
        for batch in loader:
            held = batch  # also while the workers of the next epoch are forked
    stats = loader.stats()
    assert stats["slots"]["held"] >= 1
    assert stats["slots"]["frozen"] == 0
    assert torch.equal(held, _expected(9))


def test_batches_beyond_the_slots_are_copied_out_and_counted() -> None:
    loader = _loader(120)
    kept = list(loader)
    stats = loader.stats()
    assert stats["slots"]["count"] <= 2 * 2 + 3
    assert stats["batches_copied_out"] >= 60 - 2 * (2 * 2 + 3)
    assert torch.equal(kept[40], _expected(40))


def test_a_view_keeps_its_batch_alive() -> None:
    loader = _loader(120)
    views = []
    for number, batch in enumerate(loader):
        if number % 10 == 6:
            views.append((number, batch[1, 3]))
        del batch
    for number, view in views:
        assert torch.equal(view, _expected(number)[1, 3])


def test_a_numpy_view_keeps_its_batch_alive() -> None:
    arrays = []
    for number, batch in enumerate(_loader(80)):
        if number in (6, 7):
            arrays.append((number, batch.numpy()))
        del batch
    gc.collect()
    for number, array in arrays:
        assert (array == _expected(number).numpy()).all()


def test_a_tensor_outlives_its_iterator_and_its_loader() -> None:
    loader = _loader()
    iterator = iter(loader)
    batches = [next(iterator) for _ in range(12)]
    del iterator, loader
    gc.collect()
    for number, batch in enumerate(batches):
        assert torch.equal(batch, _expected(number))
        batch.add_(1)
        assert torch.equal(batch, _expected(number) + 1)


def test_a_tensor_of_an_earlier_epoch_is_safe_from_the_next_one() -> None:
    loader = _loader(24, persistent_workers=True)
    kept = [batch for _ in range(4) for batch in loader]
    for number, batch in enumerate(kept):
        assert torch.equal(batch, _expected(number % 12)), number


def test_writing_into_a_batch_changes_nothing_else() -> None:
    loader = _loader(80, persistent_workers=True)
    for _ in range(2):
        for number, batch in enumerate(loader):
            assert torch.equal(batch, _expected(number))
            batch.fill_(float("nan"))


def test_a_batch_may_be_released_on_another_thread() -> None:
    handed: list[torch.Tensor] = []
    wrong: list[int] = []
    ready = threading.Semaphore(0)

    def release() -> None:
        number = 0
        while ready.acquire(timeout=30) and handed:
            batch = handed.pop(0)
            if not torch.equal(batch, _expected(number)):
                wrong.append(number)
            number += 1
            del batch

    thread = threading.Thread(target=release)
    thread.start()
    for batch in _loader(160):
        handed.append(batch)
        del batch
        ready.release()
    ready.release()
    thread.join(60)
    assert not thread.is_alive()
    assert wrong == []


def test_batches_may_be_taken_by_several_threads() -> None:
    iterator = iter(_loader(160, "int"))
    lock = threading.Lock()
    seen: list[int] = []

    def consume() -> None:
        while True:
            with lock:
                batch = next(iterator, None)
            if batch is None:
                return
            seen.extend(batch.tolist())

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(seen) == list(range(160))


def test_releasing_a_batch_frees_the_users_objects() -> None:
    for batch in _loader(20, collate_fn=_in_a_bag):
        reference = weakref.ref(batch)
        del batch
        assert reference() is None


class Bag:
    def __init__(self, data: Any) -> None:
        self.data = data


def _in_a_bag(batch: list[Any]) -> Bag:
    return Bag(torch.stack(batch))


class Traced:
    """Knows which of the tensors in its samples are still there."""

    def __init__(self, wrap: Callable[[torch.Tensor], Any]) -> None:
        self.wrap = wrap
        self.made: list[weakref.ref[torch.Tensor]] = []

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        tensor = torch.full((3,), index)
        self.made.append(weakref.ref(tensor))
        return self.wrap(tensor)


SAMPLES: dict[str, Callable[[torch.Tensor], Any]] = {
    "tensor": lambda tensor: tensor,
    "dict": lambda tensor: {"x": tensor, "y": 1.5},
    "tuple": lambda tensor: (tensor, tensor.numpy()),
    "torch's to collate": lambda tensor: [tensor, "text"],
    "refused by torch": lambda tensor: (tensor, object),
}


@pytest.mark.parametrize("auto", [True, False], ids=["batches", "samples"])
@pytest.mark.parametrize("kind", SAMPLES)
def test_samples_are_freed_once_their_batch_is_made(kind: str, auto: bool) -> None:
    dataset = Traced(SAMPLES[kind])
    batches = iter(DataLoader(dataset, batch_size=4 if auto else None))
    raised = 0
    while True:
        try:
            next(batches)
        except StopIteration:
            break
        except TypeError:
            raised += 1
    assert raised == (3 if auto and kind == "refused by torch" else 0)
    gc.collect()  # exceptions and their frames
    assert [made() for made in dataset.made] == [None] * 12


def test_a_deep_copy_of_a_batch_is_independent() -> None:
    copies = [copy.deepcopy(batch) for batch in _loader(40)]
    for number, batch in enumerate(copies):
        assert torch.equal(batch, _expected(number))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_can_be_pickled_and_moved_to_shared_memory(workers: int) -> None:
    for number, batch in enumerate(_loader(40, num_workers=workers)):
        assert torch.equal(pickle.loads(pickle.dumps(batch)), _expected(number))
        assert torch.equal(batch.share_memory_(), _expected(number))
        assert batch.is_shared()


# ---- the user's own forks --------------------------------------------------------------------------


def _in_child(check: Any) -> int:
    """Runs a check in a forked child and returns its status."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            status = check()
        finally:
            os._exit(status)
    return pid


def test_a_forked_childs_view_of_held_batches_does_not_change() -> None:
    iterator = iter(_loader(160))
    held = [next(iterator) for _ in range(6)]
    go_read, go_write = os.pipe()

    def check() -> int:
        os.read(go_read, 1)  # the parent has gone on by now
        return sum(not torch.equal(batch, _expected(n)) for n, batch in enumerate(held))

    pid = _in_child(check)
    wanted = [batch.clone() for batch in held]
    held.clear()
    for number, batch in enumerate(iterator, 6):
        assert torch.equal(batch, _expected(number))
    os.write(go_write, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert all(torch.equal(batch, _expected(n)) for n, batch in enumerate(wanted))
    os.close(go_read)
    os.close(go_write)


def _compare_later(go: Any, held: list[torch.Tensor]) -> None:
    go.wait(60)
    sys.exit(sum(not torch.equal(batch, _expected(n)) for n, batch in enumerate(held)))


def test_a_multiprocessing_childs_view_of_held_batches_does_not_change() -> None:
    context = multiprocessing.get_context("fork")
    go = context.Event()
    iterator = iter(_loader(160))
    held = [next(iterator) for _ in range(6)]
    process = context.Process(target=_compare_later, args=(go, held))
    process.start()
    held.clear()
    for _ in iterator:
        pass
    go.set()
    process.join(60)
    assert process.exitcode == 0
    process.close()


def test_the_parent_goes_on_after_many_forks_with_batches_held() -> None:
    iterator = iter(_loader(160))
    for number, batch in enumerate(iterator):
        if number % 8 == 0:
            pid = _in_child(lambda held=batch: int(held[0, 0, 0, 0]) % 7)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            assert status == int(_expected(number)[0, 0, 0, 0]) % 7
        assert torch.equal(batch, _expected(number))


def test_a_childs_exit_and_garbage_collection_leave_the_parents_loader_alone() -> None:
    loader = _loader(60, persistent_workers=True)
    iterator = iter(loader)
    next(iterator)

    def check() -> int:
        nonlocal loader, iterator
        del loader, iterator
        gc.collect()
        return 0

    pid = os.fork()
    if pid == 0:
        os._exit(check())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert [bool(torch.equal(batch, _expected(n))) for n, batch in enumerate(iterator, 1)] == [
        True
    ] * 29


def test_a_child_that_asks_an_inherited_iterator_gets_an_error_not_a_hang() -> None:
    iterator = iter(_loader(60))
    next(iterator)

    def check() -> int:
        signal.alarm(20)
        try:
            for _ in range(40):
                next(iterator)
        except StopIteration:
            return 1
        except Exception:  # noqa: BLE001 - any error will do
            return 0
        return 2

    pid = _in_child(check)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert sum(1 for _ in iterator) == 29


def test_a_child_may_begin_its_own_epoch() -> None:
    loader = _loader(20, "int", persistent_workers=True)
    assert len(list(loader)) == 10
    pid = _in_child(lambda: len(list(loader)))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 10
    assert len(list(loader)) == 10


# ---- copies of a loader -----------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_used_loader_can_be_copied_and_both_work(how: Any, workers: int) -> None:
    loader = _loader(
        12,
        num_workers=workers,
        persistent_workers=bool(workers),
        multiprocessing_context="fork" if workers else None,
    )
    iterator = iter(loader)
    next(iterator)
    twin = how(loader)
    assert [describe(batch) for batch in twin] == [describe(_expected(n)) for n in range(6)]
    assert torch.equal(next(iterator), _expected(1))
    assert [describe(batch) for batch in loader] == [describe(_expected(n)) for n in range(6)]
    assert twin.stats()["batches"] == 6


# ---- leaving early ----------------------------------------------------------------------------------


def _resources() -> tuple[set[int], dict[int, str]]:
    return procs.children(), procs.descriptors()


@pytest.mark.limit(200)
@pytest.mark.parametrize("how", ["break", "del", "next of iter", "exception", "all"])
def test_fifty_iterators_left_early_leave_nothing(how: str) -> None:
    loader = _loader(20, batch_size=1)
    next(iter(loader))
    gc.collect()
    before, shared = _resources(), procs.shared_files()
    for _ in range(50):
        if how == "break":
            for _ in loader:
                break
        elif how == "del":
            iterator = iter(loader)
            del iterator
        elif how == "next of iter":
            next(iter(loader))
        elif how == "exception":
            with pytest.raises(ZeroDivisionError):
                for _ in loader:
                    raise ZeroDivisionError
        else:
            for _ in loader:
                pass
    gc.collect()
    assert procs.wait_until(lambda: _resources() == before)
    assert procs.wait_until(lambda: procs.shared_files() <= shared)


def test_fifty_loaders_leave_nothing() -> None:
    next(iter(_loader()))
    gc.collect()
    before, maps = _resources(), procs.map_count()
    for _ in range(50):
        for batch in _loader(10):
            batch.sum()
    del batch
    gc.collect()
    assert procs.wait_until(lambda: _resources() == before)
    assert procs.map_count() < maps + 40


def test_leaving_early_does_not_wait_for_a_long_sample() -> None:
    iterator = iter(DataLoader(Sleepy(), num_workers=2))
    time.sleep(0.3)
    pids = [worker.pid for worker in iterator._workers]
    began = time.monotonic()
    del iterator
    gc.collect()
    assert time.monotonic() - began < 12
    assert procs.wait_until(lambda: not any(procs.is_running(pid) for pid in pids))


class Sleepy:
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        time.sleep(60)
        return index


def test_a_loader_in_a_reference_cycle_is_collected_with_its_workers() -> None:
    class Holder:
        pass

    holder = Holder()
    holder.loader = _loader(20, persistent_workers=True)  # type: ignore[attr-defined]
    holder.iterator = iter(holder.loader)  # type: ignore[attr-defined]
    holder.itself = holder  # type: ignore[attr-defined]
    pids = [worker.pid for worker in holder.iterator._workers]  # type: ignore[attr-defined]
    began = time.monotonic()
    del holder
    gc.collect()
    assert procs.wait_until(lambda: not any(procs.is_running(pid) for pid in pids))
    assert time.monotonic() - began < 4


# ---- the interpreter's end ---------------------------------------------------------------------------

PROGRAM = """
import os, sys, time
import torch
from millhead.torch import DataLoader

class Data:
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        {sample}
        return torch.full((40000,), float(index))

if __name__ == "__main__":
    loader = DataLoader(Data(), num_workers=2, **{arguments})
    iterator = iter(loader)
    batches = [next(iterator) for _ in range(5)]
"""


def _program(rest: str, sample: str = "pass", **arguments: Any) -> str:
    """A training script that has taken five batches and then does ``rest``."""
    head = PROGRAM.format(sample=sample, arguments=arguments)
    return head + textwrap.indent(textwrap.dedent(rest), "    ")


ENDINGS = {
    "falls off the end": "pass",
    "sys.exit": "sys.exit(0)",
    "with a view": "view = batches[3][0, 5:]; del batches",
    "iterator gone": "del iterator",
    "in a module": "torch.kept = (loader, iterator, batches)",
    "in builtins": "import builtins; builtins.kept = (loader, iterator, batches)",
}


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_ends_quietly_with_a_live_iterator(ending: str, persistent: bool) -> None:
    result = procs.run_python(_program(ENDINGS[ending], persistent_workers=persistent))
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert result.left == set()  # type: ignore[attr-defined]


def test_the_interpreter_ends_while_a_daemon_thread_iterates() -> None:
    rest = "import threading\nthreading.Thread(target=lambda: list(iterator), daemon=True).start()"
    result = procs.run_python(_program(rest))
    assert result.returncode == 0, result.stderr
    assert result.left == set()  # type: ignore[attr-defined]


def test_the_interpreter_ends_after_an_uncaught_exception() -> None:
    result = procs.run_python(_program("raise ValueError('out of the loop')"))
    assert result.returncode == 1
    assert result.stderr.strip().endswith("ValueError: out of the loop")
    assert result.stderr.count("Traceback") == 1
    assert result.left == set()  # type: ignore[attr-defined]


def test_os_exit_in_the_trainer_leaves_no_worker() -> None:
    result = procs.run_python(_program("os._exit(7)", sample="time.sleep(0.01)"))
    assert result.returncode == 7
    assert result.left == set()  # type: ignore[attr-defined]


def test_the_interpreter_ends_while_a_worker_sleeps() -> None:
    program = _program("time.sleep(0.3)", sample="time.sleep(600 if index > 8 else 0)")
    result = procs.run_python(program)
    assert result.returncode == 0, result.stderr
    assert result.left == set()  # type: ignore[attr-defined]


def test_a_loader_nested_in_a_subprocess_leaves_nothing_when_that_is_killed() -> None:
    code = textwrap.dedent(
        """
        import multiprocessing, os, signal, time
        from helpers.parity_cases import Items
        from millhead.torch import DataLoader
        def train(ready):
            iterator = iter(DataLoader(Items("int", 100), num_workers=2))
            next(iterator)
            ready.set()
            time.sleep(600)
        context = multiprocessing.get_context("fork")
        ready = context.Event()
        process = context.Process(target=train, args=(ready,))
        process.start()
        assert ready.wait(60)
        os.kill(process.pid, signal.SIGKILL)
        process.join(10)
        print(process.exitcode)
        """
    )
    result = procs.run_python(code)
    assert result.stdout.strip() == "-9", result.stderr
    assert result.left == set()  # type: ignore[attr-defined]


# ---- Ctrl-C -------------------------------------------------------------------------------------------


# Where the tests run in the background of a shell, SIGINT is ignored and that is inherited.
HEED_SIGINT = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


def _interrupt(program: str, after: float, again: bool = False) -> tuple[int, str, set[int]]:
    """Sends SIGINT to the whole process group, as a terminal does.

    ``again`` repeats it, as a user would: Python loses one that comes in the hooks of a fork.
    """
    mark, environment = procs.new_mark()
    process = subprocess.Popen(
        [sys.executable, "-c", HEED_SIGINT + program],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        time.sleep(after)
        os.killpg(process.pid, signal.SIGINT)
        if again:
            while not procs.wait_until(lambda: process.poll() is not None, 2):
                os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        procs.wait_until(lambda: not procs.marked(mark))
        return process.returncode, errors, procs.marked(mark)
    finally:
        process.kill()
        process.communicate()
        procs.end_marked(mark)


INTERRUPTED = {
    "while waiting": ("time.sleep(0.05)", "list(iterator)"),
    "while a sample sleeps": ("time.sleep(600 if index > 8 else 0)", "list(iterator)"),
    "between batches": ("pass", "time.sleep(600)"),
}


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("moment", INTERRUPTED)
def test_ctrl_c_ends_with_one_keyboardinterrupt_and_no_worker(moment: str, start: str) -> None:
    sample, rest = INTERRUPTED[moment]
    program = _program(f"print('running', flush=True)\n{rest}", sample)
    if start == "spawn":  # a worker must be able to import the dataset
        seconds = 600 if "sleeps" in moment else 0.05
        program = textwrap.dedent(
            f"""
            import time
            from millhead.torch import DataLoader
            from helpers.parity_cases import Slow

            loader = DataLoader(Slow({seconds}), num_workers=2, multiprocessing_context="spawn")
            iterator = iter(loader)
            next(iterator)
            print("running", flush=True)
            {rest}
            """
        )
    status, errors, left = _interrupt(program, 0.3)
    assert status in (-signal.SIGINT, 130, 1), errors
    assert errors.strip().endswith("KeyboardInterrupt"), errors
    assert errors.count("Traceback") == 1, errors
    assert left == set()


@pytest.mark.limit(200)
def test_ctrl_c_at_random_moments_leaves_nothing() -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    program = _program("print('running', flush=True)\nwhile True: list(loader)")
    for _ in range(5):
        status, errors, left = _interrupt(program, rng.random() * 0.5, again=True)
        assert status in (-signal.SIGINT, 130, 1), errors
        assert "KeyboardInterrupt" in errors
        assert left == set()


def test_a_caught_ctrl_c_lets_the_next_epoch_run() -> None:
    rest = """
        print('running', flush=True)
        try:
            while True:
                for batch in loader:
                    pass
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        del iterator
        total = sum(1 for _ in DataLoader(Data(), num_workers=2))
        print("after", total, file=sys.stderr)
    """
    status, errors, left = _interrupt(_program(rest), 0.5, again=True)
    assert status == 0, errors
    assert errors.strip().splitlines()[-1] == "after 1000"
    assert left == set()
