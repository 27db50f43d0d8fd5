"""Workers of spawn and forkserver loaders: forked from one clean process that unpickled once."""

from __future__ import annotations

import functools
import gc
import json
import multiprocessing
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millhead
import millhead.torch.loader_stats
import millhead.torch.start.template
import numpy as np
import pytest
import torch
import torch.utils.data
from helpers import procs
from helpers import template_cases as tc
from helpers.compare import describe, rng_states, seed_everything
from helpers.template_cases import Plain
from millhead.torch import DataLoader
from millhead.torch.start import private_generators

CPUS = sorted(os.sched_getaffinity(0))


def _loader(dataset: Any, workers: int = 2, context: Any = "spawn", **arguments: Any) -> Any:
    return DataLoader(dataset, num_workers=workers, multiprocessing_context=context, **arguments)


def _numbers(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch]


def _template(loader: Any) -> int:
    """The pid of a loader's template."""
    pid: int = loader._engine.template.pid
    assert procs.is_running(pid)
    return pid


def _told(batches: Any) -> list[dict[str, Any]]:
    """What the dataset Facts told."""
    return [json.loads(text) for batch in batches for text in batch]


@pytest.fixture
def advice() -> Callable[[Callable[[], Any]], list[str]]:
    """Calls something, and gives the Advice it caused, as in a process that has given none yet."""

    def caused_by(action: Callable[[], Any]) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            action()
        return [str(item.message) for item in caught if item.category is millhead.Advice]

    return caused_by


# ---- ordinary datasets ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "context",
    ["forkserver", multiprocessing.get_context("spawn")],
    ids=["forkserver", "multiprocessing's spawn"],
)
def test_workers_of_clean_contexts_come_from_a_template(context: Any) -> None:
    loader = _loader(Plain(8), context=context, batch_size=2)
    assert _numbers(loader) == list(range(8))
    assert loader.stats()["start"] == "template"


def _epochs(loader: Any, count: int) -> list[Any]:
    """Every batch and the generators' states after each epoch."""
    seed_everything(7)
    seen: list[Any] = []
    for _ in range(count):
        seen.append([describe(batch) for batch in loader])
        seen.append(rng_states())
    return seen


@pytest.mark.filterwarnings("ignore::millhead.Advice")
def test_batches_and_generators_equal_those_of_torchs_spawned_workers() -> None:
    arguments: dict[str, Any] = {"batch_size": 3, "shuffle": True}
    theirs = torch.utils.data.DataLoader(
        tc.Augmented(14), num_workers=2, multiprocessing_context="spawn", **arguments
    )
    ours = _loader(tc.Augmented(14), **arguments)
    assert _epochs(ours, 1) == _epochs(theirs, 1)
    # From the second epoch on workers come from a template that was there before. Torch's forked
    # workers give the same batches as its spawned ones, and cost less.
    theirs = torch.utils.data.DataLoader(
        tc.Augmented(14), num_workers=2, multiprocessing_context="fork", **arguments
    )
    assert _epochs(ours, 3) == _epochs(theirs, 3)
    assert ours.stats()["start"] == "template"


# ---- once for all --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::millhead.Advice")
def test_a_dataset_is_unpickled_once_for_all_workers_and_epochs(tmp_path: Path) -> None:
    note = tmp_path / "unpickled"
    loader = _loader(tc.Counted(20, str(note)), workers=4)
    workers = set()
    for _ in range(3):
        iterator = iter(loader)
        workers |= {worker.pid for worker in iterator._workers}
        assert _numbers(iterator) == list(range(20))
    assert len(workers) == 12
    assert note.read_text().split() == [str(_template(loader))]


@pytest.mark.filterwarnings("ignore::millhead.Advice")
def test_thirty_iterators_in_a_row_cost_one_template_and_leave_nothing() -> None:
    loader = _loader(Plain(40), batch_size=2)
    for _ in range(3):
        assert next(iter(loader)).tolist() == [0, 1]
    gc.collect()
    template = _template(loader)
    assert procs.wait_until(lambda: not procs.children(template))
    theirs = len(os.listdir(f"/proc/{template}/fd"))
    before = procs.children(), set(procs.descriptors()), procs.map_count()
    for _ in range(30):
        assert next(iter(loader)).tolist() == [0, 1]
    gc.collect()
    assert _template(loader) == template
    assert procs.wait_until(lambda: not procs.children(template))
    # the last worker's handle goes a moment after the worker
    assert procs.wait_until(lambda: len(os.listdir(f"/proc/{template}/fd")) <= theirs)
    assert procs.children() == before[0]
    assert set(procs.descriptors()) == before[1]
    assert procs.map_count() < before[2] + 15
    assert _numbers(loader) == list(range(40))


def test_what_changed_in_the_dataset_between_epochs_reaches_the_next_workers() -> None:
    loader = _loader(tc.Added(6, 0), workers=1)
    assert _numbers(loader) == list(range(6))
    loader.dataset.number = 100
    assert _numbers(loader) == list(range(100, 106))
    assert loader.stats()["start"] == "template"


def test_a_live_iterator_keeps_its_workers_when_the_dataset_changes() -> None:
    loader = _loader(tc.Added(12, 0), workers=1)
    iterator = iter(loader)
    assert next(iterator).tolist() == [0]
    first = _template(loader)
    loader.dataset.number = 100
    assert _numbers(loader) == list(range(100, 112))
    assert _numbers(iterator) == list(range(1, 12))
    assert _template(loader) != first
    del iterator
    gc.collect()
    assert procs.wait_until(lambda: not procs.is_running(first))


def test_two_iterators_of_a_dataset_that_cannot_be_compared_work_side_by_side() -> None:
    queue = multiprocessing.get_context("spawn").Queue()
    loader = _loader(tc.Holding(queue), workers=1)
    pairs = [(int(one), int(other)) for one, other in zip(loader, loader, strict=True)]
    assert pairs == [(number, number) for number in range(8)]
    assert loader.stats()["start"] == "template"
    queue.close()
    queue.join_thread()


def _bind_threads(cpus: list[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cpus)


def test_what_changed_in_the_trainer_between_epochs_reaches_the_next_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = _loader(tc.Facts(2), workers=1)
    _told(loader)
    monkeypatch.setenv("MILLHEAD_TEST_CHANGED", "yes")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    cpus = CPUS[:1]
    _bind_threads(cpus)
    try:
        told = _told(loader)[0]
    finally:
        _bind_threads(CPUS)
    assert told["environment"].get("MILLHEAD_TEST_CHANGED") == "yes"
    assert told["directory"] == str(tmp_path)
    assert str(tmp_path / "modules") in told["path"]
    assert told["cpus"] == cpus


# ---- what a dataset may hold ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def everything() -> dict[str, Any]:
    """What workers tell of the dataset Everything, and what the trainer sees of it afterwards."""
    dataset = tc.Everything(multiprocessing.get_context("spawn"))
    loader = _loader(dataset, collate_fn=dataset.collate, batch_size=2)
    told = [sample for batch in loader for sample in batch]
    result = {
        "told": told,
        "start": loader.stats()["start"],
        "count": dataset.count.value,
        "queue": sorted(dataset.queue.get(timeout=20) for _ in range(len(dataset))),
        "shared": dataset.shared.tolist(),
        "array": int(np.abs(dataset.array).sum()),
        "tensor": int(dataset.tensor.abs().sum()),
        "whole": float(dataset.whole.abs().sum()),
    }
    dataset.queue.close()
    dataset.queue.join_thread()
    return result


def test_a_dataset_may_hold_locks_queues_values_and_shared_tensors(
    everything: dict[str, Any],
) -> None:
    assert everything["start"] == "template"
    assert [sample["index"] for sample in everything["told"]] == list(range(8))
    assert everything["count"] == 8
    assert everything["queue"] == list(range(8))


def test_a_shared_tensor_stays_shared(everything: dict[str, Any]) -> None:
    assert everything["shared"] == list(range(1, 9))


def test_large_arrays_and_tensors_are_the_workers_own(everything: dict[str, Any]) -> None:
    for sample in everything["told"]:
        assert sample["writable"]
        assert sample["before"] == [0, 0]
        assert sample["after"] == [sample["index"] + 1] * 2
    assert everything["array"] == everything["tensor"] == everything["whole"] == 0


def test_tensors_that_share_memory_share_it_in_a_worker(everything: dict[str, Any]) -> None:
    for sample in everything["told"]:
        assert sample["seen_in_whole"] == sample["index"]


def test_a_read_only_array_can_be_written_in_a_worker_as_with_torch(
    everything: dict[str, Any],
) -> None:
    assert all(sample["was_read_only"] for sample in everything["told"])


def test_a_bound_method_that_collates_belongs_to_the_workers_dataset(
    everything: dict[str, Any],
) -> None:
    for sample in everything["told"]:
        assert sample["is_dataset"]
        assert sample["collated_by_dataset"]


def test_a_dataset_that_holds_a_module_does_without_advice(
    advice: Callable[[Callable[[], Any]], list[str]],
) -> None:
    loader = _loader(tc.Holding(torch.nn.Linear(3, 3)), workers=1)
    assert advice(lambda: _numbers(loader)) == []
    assert loader.stats()["start"] == "template"


# ---- where a template cannot serve ---------------------------------------------------------------


def test_a_file_opened_when_unpickled_makes_workers_start_one_by_one(
    tmp_path: Path, advice: Callable[[Callable[[], Any]], list[str]]
) -> None:
    path = tmp_path / "records"
    tc.write_records(path, 300)
    loader = _loader(tc.OpensFile(300, str(path)), batch_size=10)
    numbers: list[int] = []
    (text,) = advice(lambda: numbers.extend(_numbers(loader)))
    assert numbers == list(range(300))
    assert loader.stats()["start"] == "spawn"
    assert str(path) in text


def test_a_file_opened_by_the_training_script_is_every_workers_own(tmp_path: Path) -> None:
    path = tmp_path / "records"
    tc.write_records(path, 300)
    result = _run_script(
        tmp_path,
        f"""
        import io
        from millhead.torch import DataLoader
        from helpers.template_cases import Plain, read_record

        FILE = io.FileIO({str(path)!r})

        class Records(Plain):
            def __getitem__(self, index):
                return read_record(FILE, index)

        if __name__ == "__main__":
            loader = DataLoader(
                Records(300), batch_size=10, num_workers=2, multiprocessing_context="spawn"
            )
            print([int(number) for batch in loader for number in batch] == list(range(300)))
        """,
    )
    assert result.stdout == "True\n", result.stderr


def test_a_thread_started_when_unpickled_makes_workers_start_one_by_one(
    advice: Callable[[Callable[[], Any]], list[str]],
) -> None:
    loader = _loader(tc.StartsThread(4), workers=1, context="forkserver")
    numbers: list[int] = []
    (text,) = advice(lambda: numbers.extend(_numbers(loader)))
    assert numbers == list(range(4))
    assert loader.stats()["start"] == "forkserver"
    assert "thread" in text


def test_a_generator_seeded_when_unpickled_is_every_workers_own(
    advice: Callable[[Callable[[], Any]], list[str]],
) -> None:
    loader = _loader(tc.SeedsGenerator(2))
    drawn: list[float] = []

    def two_epochs() -> None:
        for _ in range(2):
            drawn.extend(float(batch) for batch in loader)

    cause, cost = advice(two_epochs)
    assert len(set(drawn)) == 4
    assert loader.stats()["start"] == "spawn"
    assert "dataset.generators['own']" in cause
    # New interpreters start on their own time: starting them is over when a worker begins.
    found = re.search(r"took (\d+\.\d+) s", cost)
    assert found is not None
    assert float(found[1]) > loader.stats()["first_batch_ms"] / 1000 / 4


def test_a_generator_that_is_pickled_leaves_workers_their_template(
    advice: Callable[[Callable[[], Any]], list[str]],
) -> None:
    things = [np.random.default_rng(), np.random.RandomState(), random.Random()]
    loader = _loader(tc.Holding(things), workers=1)
    assert advice(lambda: _numbers(loader)) == []
    assert loader.stats()["start"] == "template"


GENERATORS: dict[str, tuple[Any, str | None]] = {
    "an attribute": (tc.Holding(random.Random()), "dataset.thing"),
    "numpy's older kind": (tc.Holding([np.random.RandomState()]), "dataset.thing[0]"),
    "numpy's bits": (tc.Holding({"a": np.random.PCG64()}), "dataset.thing['a']"),
    "in a bound argument": (functools.partial(max, key=random.Random()), "dataset['key']"),
    "in a method's object": (tc.Holding(random.Random()).__getitem__, "dataset.thing"),
    "given a seed": (tc.Holding([np.random.default_rng(5), np.random.RandomState(5)]), None),
    "the global ones": (tc.Holding([random._inst, np.random.mtrand._rand]), None),  # type: ignore[attr-defined]
    "the system's": (tc.Holding(random.SystemRandom()), None),
}


@pytest.mark.parametrize("kind", GENERATORS)
def test_generators_that_the_system_seeded_are_found(kind: str) -> None:
    dataset, name = GENERATORS[kind]
    found = private_generators.seeded_by_system({"dataset": dataset}, lambda some: False)
    # The walk goes on into this module, whose table above holds all of them.
    assert (found == name) if name else (found or "").startswith("test_template.")


@pytest.mark.filterwarnings("ignore::millhead.Advice")
def test_workers_begin_with_states_longer_than_a_message() -> None:
    loader = _loader(tc.Long(), workers=1)
    iterator = iter(loader)
    assert [int(next(iterator)) for _ in range(3)] == [1, 2, 3]
    again = _loader(tc.Long(), workers=1)
    again.load_state_dict(loader.state_dict())
    assert _numbers(again) == [4, 5, 6, 7, 8]
    assert again.stats()["start"] == "template"


@pytest.mark.parametrize(
    ("dataset", "word"), [(tc.Raises(), "LookupError"), (tc.Exits(), "status 3")]
)
def test_a_dataset_that_cannot_be_unpickled_is_told_of_in_a_line_and_ends_its_worker(
    dataset: Any, word: str, advice: Callable[[Callable[[], Any]], list[str]]
) -> None:
    loader = _loader(dataset, workers=1)

    def fail() -> None:
        told = (
            r"\(pid\(s\) (\d+)\) exited unexpectedly: exited .* \(worker 0 \(pid \1\), starting\):"
        )
        with pytest.raises(RuntimeError, match=told):
            next(iter(loader))

    (text,) = advice(fail)
    assert word in text
    assert "\n" not in text
    assert len(text) < 1000
    assert loader.stats()["start"] == "spawn"


def test_a_dataset_that_prints_when_unpickled_prints_once(
    capfd: pytest.CaptureFixture[str], advice: Callable[[Callable[[], Any]], list[str]]
) -> None:
    def load() -> None:
        loader = _loader(tc.Prints(), workers=2)
        assert _numbers(loader) == list(range(8))
        assert loader.stats()["start"] == "template"

    assert advice(load) == []
    gc.collect()  # the template ends here, and flushes what it may have left to print
    out, err = capfd.readouterr()
    assert out == "unpickled\n"
    assert err == "unpickled\n"


REFUSALS: dict[str, Any] = {
    "a thread's lock": lambda: tc.Holding(threading.Lock()),
    "a lambda": lambda: tc.Holding(lambda: 0),
    "TypeError": lambda: tc.Refuses(TypeError),
    "PicklingError": lambda: tc.Refuses(pickle.PicklingError),
    "ValueError": lambda: tc.Refuses(ValueError),
    "OSError": lambda: tc.Refuses(FileNotFoundError),
    "MemoryError": lambda: tc.Refuses(MemoryError),
    "RuntimeError": lambda: tc.Refuses(RuntimeError),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_dataset_that_cannot_be_pickled_fails_as_with_torch(refusal: str) -> None:
    def failure(cls: Any) -> tuple[type, str, list[bool]]:
        loader = cls(REFUSALS[refusal](), num_workers=2, multiprocessing_context="spawn")
        with warnings.catch_warnings(record=True) as caught, pytest.raises(Exception) as raised:
            warnings.simplefilter("always")
            iter(loader)
        texts = [str(item.message) for item in caught]
        said = ["Got pickle error when" in text for text in texts if "pickle" in text]
        return raised.type, str(raised.value), said

    assert failure(DataLoader) == failure(torch.utils.data.DataLoader)


@pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs for a pool of threads")
def test_a_pool_of_threads_that_the_user_asks_for_is_kept_and_rules_out_a_template(
    monkeypatch: pytest.MonkeyPatch, advice: Callable[[Callable[[], Any]], list[str]]
) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "2")
    told: list[dict[str, Any]] = []
    starts: list[str] = []

    def load() -> None:
        loader = _loader(tc.Facts(2), workers=1)
        told.extend(_told(loader))
        starts.append(loader.stats()["start"])

    said = advice(load)
    assert len(said) == 1
    assert "more thread(s) running" in said[0]
    assert starts == ["spawn"]
    assert told[0]["environment"]["OPENBLAS_NUM_THREADS"] == "2"


# ---- a worker's place in the world ---------------------------------------------------------------


def _script(folder: Path, text: str) -> Path:
    path = folder / "train.py"
    path.write_text(textwrap.dedent(text))
    return path


def _run_script(folder: Path, text: str, prefix: tuple[str, ...] = (), **options: Any) -> Any:
    """Runs a training script of its own file, which spawned processes import."""
    return procs.run([*prefix, sys.executable, str(_script(folder, text))], **options)


@pytest.fixture(scope="module", params=["Facts", "OpensFacts"])
def by_default(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What a worker and the trainer tell where spawn was made torch's start method: workers forked
    from a template, or a template that was refused and the worker after it."""
    result = _run_script(
        tmp_path_factory.mktemp("default"),
        """
        import json
        import warnings
        import millhead
        from helpers import template_cases as tc
        import torch.multiprocessing
        from millhead.torch import DataLoader

        if __name__ == "__main__":
            warnings.simplefilter("ignore", millhead.Advice)
            torch.multiprocessing.set_start_method("spawn")
            loader = DataLoader(tc.DATASET(2), num_workers=2, worker_threads=None)
            told = [json.loads(text) for batch in loader for text in batch]
            print(json.dumps([loader.stats()["start"], tc.facts(), *told]))
        """.replace("DATASET", request.param),
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert result.left == set()
    start, trainer, *told = json.loads(result.stdout)
    assert len(told) == 2
    wanted = "template" if request.param == "Facts" else "spawn"
    return {"start": start, "wanted": wanted, "trainer": trainer, "told": told}


def test_the_default_start_method_counts(by_default: dict[str, Any]) -> None:
    assert by_default["start"] == by_default["wanted"]


def test_a_workers_environment_is_the_trainers(by_default: dict[str, Any]) -> None:
    assert "OMP_NUM_THREADS" not in by_default["trainer"]["environment"]
    for worker in by_default["told"]:
        assert worker["environment"] == by_default["trainer"]["environment"]
        assert worker["directory"] == by_default["trainer"]["directory"]
        assert worker["arguments"] == by_default["trainer"]["arguments"]
        assert worker["cpus"] == by_default["trainer"]["cpus"]


def test_a_workers_parent_is_the_trainer_and_it_is_a_daemon(by_default: dict[str, Any]) -> None:
    pids = {worker["pid"] for worker in by_default["told"]}
    assert len(pids) == 2
    for worker in by_default["told"]:
        assert worker["parent"] == by_default["trainer"]["pid"]
        assert worker["parent_alive"]
        assert worker["daemon"]


def test_a_worker_has_one_thread_and_heeds_signals(by_default: dict[str, Any]) -> None:
    for worker in by_default["told"]:
        assert worker["threads"] == 1
        assert worker["interrupt"]
        assert worker["blocked"] == []


ARROW = """
import json
import os
import pyarrow
from millhead.torch import DataLoader
from helpers.template_cases import Plain

NAME = "JE_ARROW_MALLOC_CONF"

class Rows(Plain):
    def __getitem__(self, index):
        return [pyarrow.array([index]).to_pylist()[0], os.environ.get(NAME)]

if __name__ == "__main__":
    loader = DataLoader(
        Rows(4), batch_size=2, num_workers=2, multiprocessing_context="spawn", collate_fn=list
    )
    rows = [row for batch in loader for row in batch]
    print(json.dumps([loader.stats()["start"], os.environ.get(NAME), rows]))
"""


@pytest.mark.parametrize("value", [None, "background_thread:true"])
def test_pyarrow_leaves_workers_their_template_unless_the_user_wants_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    environment = {} if value is None else {"JE_ARROW_MALLOC_CONF": value}
    monkeypatch.delenv("JE_ARROW_MALLOC_CONF", raising=False)
    result = _run_script(tmp_path, ARROW, env=environment)
    assert result.returncode == 0, result.stderr
    start, seen, rows = json.loads(result.stdout)
    assert start == ("template" if value is None else "spawn")
    assert ("more thread(s) running" in result.stderr) == (value is not None)
    assert seen == value
    assert rows == [[number, value] for number in range(4)]


def test_loaders_started_by_two_threads_at_once_do_not_see_each_others_doings() -> None:
    told: dict[str, Any] = {}

    def load(name: str, dataset: Any) -> None:
        told[name] = _told(_loader(dataset, workers=1, worker_threads=None))[0]["environment"]

    tc.PicklesSlowly.begun.clear()
    first = threading.Thread(target=load, args=("first", tc.PicklesSlowly(1)))
    first.start()
    assert tc.PicklesSlowly.begun.wait(30)
    load("second", tc.Facts(1))
    first.join()
    names = millhead.torch.start.template._POOL_VARIABLES
    assert names
    for name in names:
        assert {told[key].get(name) for key in told} == {os.environ.get(name)}


def test_a_script_without_a_guard_fails_with_multiprocessings_words(tmp_path: Path) -> None:
    result = _run_script(
        tmp_path,
        """
        from millhead.torch import DataLoader
        from helpers.template_cases import Plain

        print(len(list(DataLoader(Plain(), num_workers=1, multiprocessing_context="spawn"))))
        """,
    )
    assert result.returncode == 1
    assert result.stdout == ""
    assert "before the\n        current process has finished its bootstrapping" in result.stderr
    assert result.left == set()


# ---- the end -------------------------------------------------------------------------------------


def test_every_loader_has_its_template_and_takes_it_along() -> None:
    one, other = _loader(Plain(), workers=1), _loader(Plain(), workers=1)
    assert _numbers(one) == _numbers(other) == list(range(8))
    first, second = _template(one), _template(other)
    assert first != second
    del one
    gc.collect()
    assert procs.wait_until(lambda: not procs.is_running(first))
    assert _numbers(other) == list(range(8))
    assert _template(other) == second
    os.kill(second, signal.SIGSTOP)
    del other
    gc.collect()
    assert procs.wait_until(lambda: not procs.is_running(second))


@pytest.mark.filterwarnings("ignore::millhead.Advice")
def test_a_killed_or_stopped_worker_does_not_harm_its_template() -> None:
    loader = _loader(Plain(60))
    iterator = iter(loader)
    next(iterator)
    template = _template(loader)
    stopped = iterator._workers[0].pid
    os.kill(stopped, signal.SIGSTOP)
    iterator._shutdown_workers(patience=0.2)
    assert procs.wait_until(lambda: not procs.is_running(stopped))
    iterator = iter(loader)
    next(iterator)
    victim = iterator._workers[1].pid
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=rf"pid\(s\) {victim}\) exited .*SIGKILL \(signal 9\)"):
        list(iterator)
    assert _numbers(loader) == list(range(60))
    assert _template(loader) == template


@pytest.mark.filterwarnings("ignore::millhead.Advice")
def test_ctrl_c_between_forks_spoils_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = _loader(Plain(60), workers=3)
    assert _numbers(loader) == list(range(60))
    gc.collect()
    descriptors = set(procs.descriptors())
    real = millhead.torch.start.template._readable
    for moment in (1, 3):
        calls = 0

        def interrupted(fds: list[int], timeout: float | None, moment: int = moment) -> bool:
            nonlocal calls
            calls += 1
            if calls == moment:
                raise KeyboardInterrupt
            return real(fds, timeout)

        monkeypatch.setattr(millhead.torch.start.template, "_readable", interrupted)
        with pytest.raises(KeyboardInterrupt):
            iter(loader)
        monkeypatch.setattr(millhead.torch.start.template, "_readable", real)
        assert _numbers(loader) == list(range(60))
        assert loader.stats()["start"] == "template"
    gc.collect()
    assert procs.wait_until(lambda: set(procs.descriptors()) == descriptors)


@pytest.mark.filterwarnings("ignore::millhead.Advice")
def test_a_forked_child_has_its_own_template_and_leaves_the_parents_alone() -> None:
    loader = _loader(Plain(), workers=1)
    assert _numbers(loader) == list(range(8))
    template = _template(loader)
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            right = _numbers(loader) == list(range(8))
            status = 0 if right and _template(loader) != template else 1
            del loader
            gc.collect()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert _template(loader) == template
    assert _numbers(loader) == list(range(8))
    assert _template(loader) == template


def _signalled(script: Path, note: Path, number: int, group: bool) -> tuple[int, str, set[int]]:
    """Sends a running script a signal once the note is there; its status, errors and what is left."""
    mark, environment = procs.new_mark()
    process = subprocess.Popen(
        [sys.executable, str(script)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert procs.wait_until(note.exists, 60)
        time.sleep(0.1)
        (os.killpg if group else os.kill)(process.pid, number)
        _, errors = process.communicate(timeout=30)
        procs.wait_until(lambda: not procs.marked(mark))
        return process.returncode, errors, procs.marked(mark)
    finally:
        process.kill()
        process.communicate()
        procs.end_marked(mark)


TRAINING = """
import signal
import time
from pathlib import Path

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
elif {importing}:
    Path({note!r}).touch()
    time.sleep(30)

from helpers import template_cases as tc
from millhead.torch import DataLoader

if __name__ == "__main__":
    list(DataLoader(tc.{dataset}, num_workers=2, multiprocessing_context="spawn"))
"""

# While its workers work: test_lifetime.py, with spawn.
MOMENTS = {
    "while the template imports": (True, "Plain()"),
    "while the template unpickles": (False, "Sleeps({note!r})"),
}


def _training(folder: Path, moment: str) -> tuple[Path, Path]:
    """A script that writes a note at a moment, and the note."""
    note = folder / "note"
    importing, dataset = MOMENTS[moment]
    dataset = dataset.format(note=str(note))
    text = TRAINING.format(importing=importing, note=str(note), dataset=dataset)
    return _script(folder, text), note


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_shows_the_trainers_traceback_alone(moment: str, tmp_path: Path) -> None:
    script, note = _training(tmp_path, moment)
    status, errors, left = _signalled(script, note, signal.SIGINT, group=True)
    assert status in (-signal.SIGINT, 130, 1), errors
    assert errors.strip().endswith("KeyboardInterrupt"), errors
    assert errors.count("Traceback") == 1, errors
    assert left == set()


def test_no_template_outlives_a_killed_trainer_while_it_unpickles(tmp_path: Path) -> None:
    script, note = _training(tmp_path, "while the template unpickles")
    status, errors, left = _signalled(script, note, signal.SIGKILL, group=False)
    assert status == -signal.SIGKILL
    assert errors == ""
    assert left == set()


def test_the_interpreter_ends_quietly_with_a_live_template(tmp_path: Path) -> None:
    result = _run_script(
        tmp_path,
        """
        import builtins
        from helpers import template_cases as tc
        from millhead.torch import DataLoader

        if __name__ == "__main__":
            loader = DataLoader(
                tc.Plain(60), num_workers=2, multiprocessing_context="spawn", persistent_workers=True
            )
            for _ in range(3):
                list(loader)
            iterator = iter(loader)
            next(iterator)
            print(loader.stats()["start"])
            builtins.kept = (loader, iterator)
        """,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "template\n"
    assert result.stderr == ""  # no advice to persist either
    assert result.left == set()


# ---- a small /dev/shm ----------------------------------------------------------------------------

SMALL = ("unshare", "-m", "sh", "-c")
MOUNT = "mount -t tmpfs -o size=64k tmpfs /dev/shm"


def _may_mount() -> bool:
    try:
        return subprocess.run([*SMALL, MOUNT], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def with_small_shm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What loaders do where /dev/shm holds 64 KB."""
    if not _may_mount():
        pytest.skip("needs root, unshare and mount")
    script = """
        import json
        from helpers import template_cases as tc
        import torch
        from millhead.torch import DataLoader

        class Tensors(tc.Plain):
            def __getitem__(self, index):
                return torch.full((100_000,), index)

        def told(dataset, context):
            loader = DataLoader(
                dataset, batch_size=2, num_workers=2, multiprocessing_context=context
            )
            try:
                rows = [int(row) for batch in loader for row in batch.reshape(2, -1)[:, 0]]
            except Exception as error:
                return f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
            return f"{loader.stats()['start']} {rows == list(range(40))}"

        if __name__ == "__main__":
            found = {"numbers": told(tc.Plain(40), "spawn")}
            found["tensors"] = told(Tensors(40), "fork")
            print(json.dumps(found))
    """
    path = _script(tmp_path_factory.mktemp("small"), script)
    result = procs.run([*SMALL, f'{MOUNT} && exec "$0" "$1"', sys.executable, str(path)])
    assert result.returncode == 0, result.stderr
    assert result.left == set()  # type: ignore[attr-defined]
    found: dict[str, str] = json.loads(result.stdout)
    return found


def test_a_template_needs_no_room_in_dev_shm(with_small_shm: dict[str, str]) -> None:
    assert with_small_shm["numbers"] == "template True"


def test_batches_of_tensors_need_no_room_in_dev_shm(with_small_shm: dict[str, str]) -> None:
    assert with_small_shm["tensors"] == "fork True"


# ---- what starting costs -------------------------------------------------------------------------


def test_the_cost_of_restarts_is_told_once_with_what_was_measured(
    advice: Callable[[Callable[[], Any]], list[str]],
) -> None:
    loader = _loader(Plain())
    setups: list[float] = []

    def several_epochs() -> None:
        for _ in range(4):
            list(loader)
            setups.append(loader.stats()["setup_ms"] / 1000)

    (text,) = advice(several_epochs)
    assert "persistent_workers=True" in text
    found = re.search(r"(\d+\.\d+) s", text)
    assert found is not None
    # What starting from a template that is there costs, not what the template itself cost.
    assert float(found[1]) <= max(setups[1:]) + 0.005 < setups[0]
