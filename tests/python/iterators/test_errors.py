"""Errors: their class, text and place, and what comes after them."""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import math
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import millhead
import pytest
import torch
from helpers import parity_cases as pc
from helpers import procs
from helpers.parity_cases import Items
from millhead import Advice, _core
from millhead.torch import DataLoader
from torch._subclasses import FakeTensorMode


def _outcomes(loader: Any, most: int = 60) -> list[Any]:
    """First element of every batch, or the exception in its place."""
    iterator = iter(loader)
    seen: list[Any] = []
    while len(seen) < most:
        try:
            seen.append(next(iterator).flatten()[0].item())
        except StopIteration:
            return seen
        except Exception as error:  # noqa: BLE001 - an outcome to look at
            seen.append(error)
    raise AssertionError(f"no end after {most} outcomes")


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_exception_comes_in_its_place_and_the_stream_goes_on(workers: int) -> None:
    dataset = Items("int", 20, errors=((7, "ValueError"), (12, "ValueError")))
    seen = _outcomes(DataLoader(dataset, batch_size=2, num_workers=workers))
    places = [number for number, item in enumerate(seen) if isinstance(item, Exception)]
    assert places == [3, 6]
    assert [item for item in seen if not isinstance(item, Exception)] == [
        0,
        2,
        4,
        8,
        10,
        14,
        16,
        18,
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ValueError", ValueError),
        ("KeyError", KeyError),
        ("IndexError", IndexError),
        ("OSError", OSError),
        ("RuntimeError", RuntimeError),
        ("WithMessage", pc.WithMessage),
        ("Silent", pc.Silent),
        ("FrozenError", pc.FrozenError),
        ("TwoArguments", RuntimeError),
        ("KeywordOnly", RuntimeError),
        ("UnicodeDecodeError", RuntimeError),
    ],
)
def test_an_exception_in_a_worker_keeps_its_class_and_torchs_words(
    name: str, expected: type[Exception]
) -> None:
    dataset = Items("int", 6, errors=((3, name),))
    error = _outcomes(DataLoader(dataset, num_workers=1))[3]
    assert type(error) is expected
    text = error.args[0] if name in ("Silent", "FrozenError") else str(error)
    kind = type(pc.RAISERS[name](3)).__name__
    assert text.startswith(f"Caught {kind} in DataLoader worker process 0.\nOriginal Traceback")
    assert "parity_cases.py" in text


@pytest.mark.parametrize("name", pc.RAISERS)
def test_without_workers_the_exception_itself_comes(name: str) -> None:
    if name == "StopIteration":
        return  # ends the epoch, as in torch: test_stopiteration_in_a_sample_ends_the_epoch
    dataset = Items("int", 6, errors=((3, name),))
    error = _outcomes(DataLoader(dataset))[3]
    wanted = pc.RAISERS[name](3)
    assert type(error) is type(wanted)
    assert error.args == wanted.args
    assert str(error) == str(wanted)


@pytest.mark.parametrize("name", ["ValueError", "KeyError", "TwoArguments", "OSError"])
@pytest.mark.parametrize("batch_size", [1, 3, None])
def test_an_exception_in_a_worker_names_its_sample(name: str, batch_size: int | None) -> None:
    dataset = Items("array", 24, errors=((17, name),))
    loader = DataLoader(dataset, batch_size=batch_size, num_workers=2, shuffle=True)
    (error,) = (item for item in _outcomes(loader) if isinstance(item, Exception))
    assert "millhead: sample index 17" in str(error)


def _own_collate(samples: Any) -> Any:
    return torch.utils.data.default_collate(samples)


@pytest.mark.parametrize("collate", [None, _own_collate])
@pytest.mark.parametrize("batch_size", [1, 3, None])
def test_without_workers_a_note_names_the_sample(batch_size: int | None, collate: Any) -> None:
    dataset = Items("array", 24, errors=((17, "ValueError"),))
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, collate_fn=collate)
    (error,) = (item for item in _outcomes(loader) if isinstance(item, Exception))
    assert any("sample index 17" in note for note in error.__notes__)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_string_key_is_named(workers: int) -> None:
    dataset = pc.Keyed("int", 6, errors=((4, "ValueError"),))
    sampler = pc.Converted(6, "string")
    loader = DataLoader(dataset, batch_size=2, sampler=sampler, num_workers=workers)
    error = _outcomes(loader)[2]
    text = str(error) + "".join(getattr(error, "__notes__", []))
    assert "sample index 'key 4'" in text


@pytest.mark.parametrize("kind", pc.BATCH_TYPES)
@pytest.mark.parametrize("workers", [0, 1])
def test_an_exception_survives_whatever_type_a_batch_of_indices_has(
    kind: str, workers: int
) -> None:
    dataset = Items("int", 6, errors=((3, "ValueError"),))
    batches = [pc.BATCH_TYPES[kind](batch) for batch in ([0, 1], [2, 3], [4, 5])]
    seen = _outcomes(DataLoader(dataset, batch_sampler=batches, num_workers=workers))
    assert seen[0] == 0
    assert isinstance(seen[1], ValueError)
    assert seen[2] == 4


def test_an_iterator_of_indices_works_without_workers() -> None:
    dataset = Items("int", 6, errors=((3, "ValueError"),))
    batches = [iter([0, 1]), iter([2, 3]), iter([4, 5])]
    seen = _outcomes(DataLoader(dataset, batch_sampler=batches))
    assert seen[0] == 0
    assert isinstance(seen[1], ValueError)
    assert seen[2] == 4


def test_a_keyerror_from_a_worker_is_readable() -> None:
    dataset = Items("int", 6, errors=((3, "KeyError"),))
    error = _outcomes(DataLoader(dataset, num_workers=1))[3]
    lines = str(error).splitlines()
    assert lines[0] == "Caught KeyError in DataLoader worker process 0."
    assert len(lines) > 5


class _OnDevice(Items):
    """Does what CUDA code does in a fork of a process that has used CUDA."""

    def __getitem__(self, index: Any) -> Any:
        torch.cuda._is_in_bad_fork = lambda: True
        torch.cuda.init()


def test_cuda_in_a_forked_worker_is_told_with_what_helps() -> None:
    (error,) = _outcomes(DataLoader(_OnDevice("int", 1), num_workers=1))
    assert isinstance(error, RuntimeError)
    assert "Cannot re-initialize CUDA" in str(error)
    assert "multiprocessing_context='forkserver'" in str(error)


@pytest.mark.parametrize("workers", [0, 1])
def test_stopiteration_in_a_sample_ends_the_epoch_as_in_torch(workers: int) -> None:
    dataset = Items("int", 8, errors=((3, "StopIteration"),))
    loader = DataLoader(dataset, num_workers=workers)
    assert [int(batch) for batch in loader] == [0, 1, 2]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_exception_in_collate_keeps_its_class_and_goes_on(workers: int) -> None:
    loader = DataLoader(
        Items("int", 8), batch_size=2, num_workers=workers, collate_fn=pc.CollateSometimes()
    )
    seen = _outcomes(loader)
    assert [type(item) for item in seen] == [int, ValueError, int, int]
    assert "collate refused call 2" in str(seen[1])


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ["ragged", "none", "object array", "huge int", "ragged list"])
def test_a_batch_that_cannot_be_collated_raises_torchs_error(kind: str, workers: int) -> None:
    def error_of(cls: Any) -> Exception:
        found = _outcomes(cls(Items(kind, 6), batch_size=3, num_workers=workers))[0]
        assert isinstance(found, Exception)
        return found

    theirs, ours = error_of(torch.utils.data.DataLoader), error_of(DataLoader)
    assert type(ours) is type(theirs)
    last = str(theirs).strip().splitlines()[-1]
    assert last in str(ours)


# ---- worker_init_fn -------------------------------------------------------------------------------


def test_an_exception_in_worker_init_comes_with_the_workers_first_batch() -> None:
    loader = DataLoader(Items("int", 8), num_workers=2, worker_init_fn=pc.init_fails)
    iterator = iter(loader)
    with pytest.raises(LookupError, match="Caught LookupError in DataLoader worker process 0"):
        next(iterator)
    assert next(iterator).tolist() == [1]
    iterator._shutdown_workers()


def test_a_worker_whose_init_failed_gives_no_batch_later() -> None:
    loader = DataLoader(Items("int", 8), num_workers=2, worker_init_fn=pc.init_fails)
    seen = _outcomes(loader)
    assert all(isinstance(item, Exception) for item in seen[0::2])
    assert seen[1::2] == [1, 3, 5, 7]


# ---- what cannot be sent ----------------------------------------------------------------------------


class Unpicklable(Items):
    def __init__(self) -> None:
        super().__init__("int", 4)
        self.lock = threading.Lock()


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_an_unpicklable_dataset_warns_and_raises_as_in_torch(start: str) -> None:
    def failure(cls: Any) -> tuple[type, str]:
        loader = cls(Unpicklable(), num_workers=1, multiprocessing_context=start)
        silent = cls is not DataLoader and torch.__version__ < "2.13"
        with (
            contextlib.nullcontext()
            if silent
            else pytest.warns(UserWarning, match="Got pickle error when"),
            pytest.raises((TypeError, AttributeError, pickle.PicklingError)) as caught,
        ):
            iter(loader)
        return caught.type, str(caught.value)

    assert failure(DataLoader) == failure(torch.utils.data.DataLoader)


def test_an_unpicklable_worker_init_raises_under_spawn() -> None:
    loader = DataLoader(
        Items("int", 4),
        num_workers=1,
        multiprocessing_context="spawn",
        worker_init_fn=lambda worker: None,
    )
    with (
        pytest.warns(UserWarning, match="Got pickle error when"),
        pytest.raises((TypeError, AttributeError, pickle.PicklingError)),
    ):
        iter(loader)


def test_a_batch_that_cannot_be_pickled_raises_instead_of_hanging() -> None:
    loader = DataLoader(Items("int", 4), num_workers=1, collate_fn=lambda batch: lambda: batch)
    iterator = iter(loader)
    for _ in range(4):
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError, RuntimeError)):
            next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


class FailsToUnpickle:
    def __reduce__(self) -> Any:
        return _refuse, (1,)


def _refuse(number: int) -> None:
    raise ZeroDivisionError("cannot be unpickled")


def test_a_batch_that_cannot_be_unpickled_raises_and_the_stream_goes_on() -> None:
    def collate(batch: list[int]) -> Any:
        return FailsToUnpickle() if batch[0] == 1 else batch[0]

    iterator = iter(DataLoader(Items("int", 4), num_workers=1, collate_fn=collate))
    assert next(iterator) == 0
    with pytest.raises(ZeroDivisionError):
        next(iterator)
    assert [next(iterator), next(iterator)] == [2, 3]


def test_batches_that_cannot_be_unpickled_do_not_end_the_epoch_early() -> None:
    loader = DataLoader(Items("int", 20), num_workers=2, collate_fn=lambda batch: FailsToUnpickle())
    iterator = iter(loader)
    for _ in range(20):
        with pytest.raises(ZeroDivisionError):
            next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


@pytest.mark.parametrize("in_order", [True, False])
def test_a_batch_there_is_no_memory_for_raises_and_the_others_keep_their_places(
    in_order: bool,
) -> None:
    loader = DataLoader(Items("int", 40), batch_size=2, num_workers=2, in_order=in_order)
    iterator = iter(loader)
    seen: list[int] = []
    for number in range(20):
        if number not in (3, 8):  # one of the first, which are pickled, and one from a slot
            seen += next(iterator).tolist()
            continue
        with FakeTensorMode(), pytest.raises(RuntimeError, match="without plain memory"):
            next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)
    assert loader.stats()["paths"]["slot"] >= 10
    if in_order:
        assert seen == [number for number in range(40) if number // 2 not in (3, 8)]
    else:
        assert len(set(seen)) == len(seen) == 36


class LocalError:
    """Raises an exception whose class cannot be imported by the parent."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        class HomeMade(Exception):
            pass

        if index == 1:
            raise HomeMade("only known here")
        return index


def test_an_exception_of_a_local_class_arrives_with_its_text() -> None:
    seen = _outcomes(DataLoader(LocalError(), num_workers=1))
    assert isinstance(seen[1], RuntimeError)
    assert "HomeMade" in str(seen[1])
    assert "only known here" in str(seen[1])
    assert seen[::2] == [0, 2]


class HugeText(Items):
    def __getitem__(self, index: Any) -> Any:
        raise ValueError("x" * 3_000_000)


def test_a_very_long_exception_text_arrives_whole() -> None:
    (error,) = _outcomes(DataLoader(HugeText("int", 1), num_workers=1))
    assert isinstance(error, ValueError)
    assert "x" * 3_000_000 in str(error)


class Deep(Items):
    def __getitem__(self, index: Any) -> Any:
        return self[index]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_recursion_error_is_an_error_like_any_other(workers: int) -> None:
    seen = _outcomes(DataLoader(Deep("int", 2), num_workers=workers))
    assert [type(item) for item in seen] == [RecursionError, RecursionError]


# ---- the death of a worker --------------------------------------------------------------------------


class Ends(Items):
    """Does something fatal at sample 5."""

    def __init__(self, how: Callable[[], Any]) -> None:
        super().__init__("int", 12)
        self.how = how

    def __getitem__(self, index: Any) -> Any:
        if index == 5:
            self.how()
        return index


@pytest.fixture
def no_stack_dumps() -> Iterator[None]:
    """Keeps pytest's own fault handler from writing the stacks of workers killed on purpose."""
    enabled = faulthandler.is_enabled()
    faulthandler.disable()
    yield
    if enabled:
        faulthandler.enable(file=sys.__stderr__)


def _end_of(how: Callable[[], Any], batch_size: int | None = 2) -> str:
    iterator = iter(DataLoader(Ends(how), batch_size=batch_size, num_workers=2))
    pids = [worker.pid for worker in iterator._workers]
    began = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        for _ in range(12):
            next(iterator)
    assert time.monotonic() - began < 10
    text = str(caught.value)
    named = [pid for pid in pids if f"pid(s) {pid}" in text]
    assert len(named) == 1
    assert text.startswith(f"DataLoader worker (pid(s) {named[0]}) exited unexpectedly")
    iterator._shutdown_workers()
    assert procs.wait_until(lambda: not any(procs.is_running(pid) for pid in pids))
    return text


def test_os_exit_in_a_sample_names_status_and_sample() -> None:
    text = _end_of(lambda: os._exit(3))
    assert "index 5" in text
    assert "status 3" in text


def test_a_program_without_a_main_guard_is_told_of_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from millhead.torch import DataLoader\n"
        "next(iter(DataLoader(range(8), num_workers=1, multiprocessing_context='spawn')))\n"
    )
    done = procs.run([sys.executable, str(program)], seconds=60)
    last = done.stderr.splitlines()[-1]
    assert "exited unexpectedly" in last
    assert 'put what the program does behind if __name__ == "__main__":' in last


def test_sys_exit_in_a_sample_names_the_sample() -> None:
    assert "index 5" in _end_of(lambda: sys.exit(4))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT])
def test_a_fatal_signal_is_named_with_the_sample_and_a_hint(
    number: signal.Signals, no_stack_dumps: None
) -> None:
    text = _end_of(lambda: os.kill(os.getpid(), number))
    assert "index 5" in text
    assert number.name in text
    assert len(text.split("exited unexpectedly")[1]) > 80


def test_the_sample_is_named_without_batching_too() -> None:
    assert "index 5" in _end_of(lambda: os.kill(os.getpid(), signal.SIGKILL), batch_size=None)


def test_out_of_memory_is_named_for_sigkill() -> None:
    assert "memory" in _end_of(lambda: os.kill(os.getpid(), signal.SIGKILL)).lower()


def test_after_a_workers_death_every_next_raises_and_a_new_epoch_works() -> None:
    def end() -> None:
        if not os.path.exists(flag):
            open(flag, "x").close()
            os._exit(1)

    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        flag = os.path.join(folder, "ended")
        loader = DataLoader(Ends(end), num_workers=2)
        iterator = iter(loader)
        with pytest.raises(RuntimeError, match="exited unexpectedly"):
            list(iterator)
        with pytest.raises(RuntimeError, match="exited unexpectedly"):
            next(iterator)
        iterator._shutdown_workers()
        assert [int(batch) for batch in loader] == list(range(12))


def test_a_worker_that_dies_in_init_is_reported() -> None:
    loader = DataLoader(Items("int", 4), num_workers=1, worker_init_fn=lambda worker: os._exit(9))
    iterator = iter(loader)
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        next(iterator)
    iterator._shutdown_workers()


def test_a_worker_killed_while_idle_is_reported() -> None:
    iterator = iter(DataLoader(Items("int", 20), num_workers=2, prefetch_factor=1))
    next(iterator)
    time.sleep(0.2)
    os.kill(iterator._workers[0].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        list(iterator)
    iterator._shutdown_workers()


def test_a_stopped_worker_does_not_keep_the_loader_from_ending() -> None:
    iterator = iter(DataLoader(Items("int", 20), num_workers=2))
    next(iterator)
    pids = [worker.pid for worker in iterator._workers]
    os.kill(pids[0], signal.SIGSTOP)
    began = time.monotonic()
    iterator._shutdown_workers()
    assert time.monotonic() - began < 15
    assert procs.wait_until(lambda: not any(procs.is_running(pid) for pid in pids))


@pytest.mark.limit(300)
def test_workers_killed_at_random_moments_never_hang_the_loader(no_stack_dumps: None) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    reported = 0
    for _ in range(12):
        iterator = iter(DataLoader(Items("large and small", 400), batch_size=2, num_workers=2))
        victim = iterator._workers[rng.randrange(2)].pid
        number = rng.choice([signal.SIGKILL, signal.SIGSEGV])
        timer = threading.Timer(rng.random() * 0.15, os.kill, (victim, number))
        timer.start()
        try:
            for place, batch in enumerate(iterator):
                assert batch[1].tolist() == [2 * place, 2 * place + 1]
                assert batch[0][0, 0, 0] == 13 * 2 * place
        except RuntimeError as error:
            assert f"pid(s) {victim}" in str(error)
            reported += 1
        timer.cancel()
        timer.join()
        iterator._shutdown_workers()
    print(f"{reported} of 12 were reported")


# ---- odd datasets ------------------------------------------------------------------------------------


def test_what_a_dataset_prints_in_a_worker_comes_out_where_torchs_would() -> None:
    code = (
        "import sys\n"
        "from millhead.torch import DataLoader\n"
        "class Chatty:\n"
        "    def __len__(self): return 3\n"
        "    def __getitem__(self, i):\n"
        "        print('out', i, flush=True)\n"
        "        print('err', i, file=sys.stderr, flush=True)\n"
        "        return i\n"
        "list(DataLoader(Chatty(), num_workers=1))\n"
    )
    result = procs.run_python(code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["out 0", "out 1", "out 2"]
    assert [line for line in result.stderr.splitlines() if line.startswith("err")] == [
        "err 0",
        "err 1",
        "err 2",
    ]


class Forking(Items):
    """Every sample runs a child process."""

    def __getitem__(self, index: Any) -> Any:
        pid = os.fork()
        if pid == 0:
            os._exit(int(index) % 7)
        _, status = os.waitpid(pid, 0)
        text = subprocess.run(
            ["echo", str(index)], capture_output=True, text=True, check=True, timeout=20
        ).stdout
        return os.waitstatus_to_exitcode(status), int(text)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_may_fork_and_run_programs(workers: int) -> None:
    loader = DataLoader(Forking("int", 20), batch_size=2, num_workers=workers)
    rows = [pair for batch in loader for pair in zip(*(c.tolist() for c in batch), strict=True)]
    assert rows == [(index % 7, index) for index in range(20)]


class Threaded(Items):
    """Starts a thread that lives on."""

    def __getitem__(self, index: Any) -> Any:
        threading.Thread(target=time.sleep, args=(0.05,), daemon=True).start()
        return index


def test_a_dataset_may_start_threads_in_workers() -> None:
    assert [int(b) for b in DataLoader(Threaded("int", 12), num_workers=2)] == list(range(12))


class Closing(Items):
    """Closes standard descriptors, as some daemon code does."""

    def __getitem__(self, index: Any) -> Any:
        for number in (0, 1, 2):
            try:
                os.close(number)
            except OSError:
                continue
        return index


def test_a_dataset_may_close_standard_descriptors_in_workers() -> None:
    assert [int(b) for b in DataLoader(Closing("int", 8), num_workers=1)] == list(range(8))


class Signalling(Items):
    """Uses the signals and timers of its process."""

    def __getitem__(self, index: Any) -> Any:
        hits: list[int] = []
        signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        time.sleep(0.02)
        return len(hits)


def test_a_dataset_may_use_signals_in_workers() -> None:
    assert [int(b) for b in DataLoader(Signalling("int", 6), num_workers=1)] == [1] * 6


class Changing(Items):
    """Every batch of 3 has another structure."""

    def __getitem__(self, index: Any) -> Any:
        form = index // 3 % 5
        forms = [index, (index,), {"a": index}, torch.full((form + index,), index), f"{index}"]
        return forms[form]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_structure_that_changes_with_every_batch_is_followed(workers: int) -> None:
    batches = list(DataLoader(Changing("int", 60), batch_size=1, num_workers=workers))
    kinds = [type(batch) for batch in batches]
    group = [torch.Tensor] * 3 + [list] * 3 + [dict] * 3 + [torch.Tensor] * 3 + [list] * 3
    assert kinds == group * 4


@pytest.mark.parametrize("workers", [0, 1])
def test_an_index_beyond_the_dataset_raises_indexerror(workers: int) -> None:
    seen = _outcomes(DataLoader([10, 11], sampler=[0, 5, 1], num_workers=workers))
    assert isinstance(seen[1], IndexError)
    assert seen[::2] == [10, 11]


# ---- memory -----------------------------------------------------------------------------------------


def _available_bytes() -> int:
    with open("/proc/meminfo") as file:
        fields = dict(line.split(":") for line in file)
    return int(fields["MemAvailable"].split()[0]) * 1024


class Gigabytes:
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> torch.Tensor:
        sample = torch.zeros(3 * 10**9, dtype=torch.uint8)
        sample[:: 10**8] = 7
        sample[-1] = 9
        return sample


@pytest.mark.limit(200)
@pytest.mark.skipif(_available_bytes() < 12 * 2**30, reason="needs 12 GB of free memory")
def test_a_batch_of_three_gigabytes_arrives_whole() -> None:
    (batch,) = DataLoader(Gigabytes(), num_workers=1, prefetch_factor=1)
    assert batch.shape == (1, 3 * 10**9)
    assert batch[0, :: 10**8].tolist() == [7] * 30
    assert batch[0, -1] == 9


def test_a_budget_too_small_for_one_batch_is_said_and_batches_come_all_the_same() -> None:
    loader = DataLoader(Items("large", 24), batch_size=2, num_workers=2, memory="100KB")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batches = list(loader)
    assert len(batches) == 12
    for number, batch in enumerate(batches):
        assert torch.equal(batch[0], Items("large", 24)[2 * number])
    assert loader.stats()["paths"]["slot"] == 0
    assert loader.stats()["slots"]["bytes"] <= 100_000
    said = {str(item.message) for item in caught if "millhead" in str(item.message)}
    assert len(said) <= 1


class _SmallAndLarge:
    """30 small batches, 40 that fit into no slot of a small budget, and 30 small ones."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1_500_000 if 30 <= index < 70 else 1000,), float(index))


def test_batches_that_outgrow_the_budget_are_reported_and_small_ones_keep_their_slots() -> None:
    loader = DataLoader(_SmallAndLarge(), num_workers=2, memory="4MB")
    with pytest.warns(Advice, match="no shared memory for batches of 7500000 bytes"):
        batches = list(loader)
    for number, batch in enumerate(batches):
        assert batch[0, 0] == batch[0, -1] == number
    paths = loader.stats()["paths"]
    assert paths["general"] < 30 + 40
    assert paths["slot"] > 30


def test_slots_stay_within_the_budget() -> None:
    budget = 3_000_000
    loader = DataLoader(Items("large", 200), batch_size=2, num_workers=2, memory=budget)
    kept = []
    for batch in loader:
        kept.append(batch)
        assert loader.stats()["slots"]["bytes"] <= budget
    for number, batch in enumerate(kept):
        assert math.isclose(float(batch[0, 0, 0, 0]), 26.0 * number)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_dead_trainers_loader_can_be_made_anew_by_its_child(start: str) -> None:
    """A loader used, then used again in a forked child, works in both."""
    loader = DataLoader(Items("int", 8), num_workers=1, multiprocessing_context=start)
    assert len(list(loader)) == 8
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(len(list(loader)))
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 8
    assert len(list(loader)) == 8


class Crashes:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return index


def test_the_cause_of_a_crash_is_in_the_words_of_torch() -> None:
    iterator = iter(DataLoader(Crashes(), num_workers=1))
    for _ in range(2):  # and every further time
        with pytest.raises(RuntimeError, match="exited unexpectedly") as caught:
            next(iterator)
        text = r"DataLoader worker \(pid \d+\) is killed by signal: Killed\. "
        assert re.fullmatch(text, str(caught.value.__cause__))


# --- errors of the engine ---


def test_an_error_of_the_engine_has_a_code() -> None:
    consumer = _core.ConsumerEnd(_core.Pool(1 << 20), 1, 2, 2, pickle.dumps, _core.Meter())
    consumer.close()
    with pytest.raises(millhead.Error, match="the loader is closed") as caught:
        consumer.put(0, 0, [0], 1)
    assert caught.value.code == "closed"
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), str(copy), copy.code) == (millhead.Error, str(caught.value), "closed")
    assert millhead.Error("raised without a status").code == "internal error"


def test_a_status_that_python_knows_is_pythons_exception() -> None:
    with pytest.raises(FileNotFoundError) as missing:
        _core.diagnose("no-such-file")
    assert type(missing.value) is FileNotFoundError
    with pytest.raises(OSError) as failed:
        _core.exit_with(-1)
    assert failed.value.errno == errno.EBADF
