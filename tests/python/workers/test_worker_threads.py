"""``worker_threads``: pools of real libraries in workers, threads as /proc has them, and advice."""

from __future__ import annotations

import functools
import json
import os
import pickle
import sys
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millhead
import millhead.torch.iterators.multiprocess
import millhead.torch.loader_stats
import millhead.torch.workers.native_pools
import millhead.torch.workers.oversubscription
import pytest
import torch
from helpers import procs
from helpers import thread_cases as tc
from helpers.parity_cases import Items
from helpers.thread_cases import THREE, UsesLibraries
from millhead.torch import DataLoader
from millhead.torch.workers.dask_modes import Cluster, Streaming
from millhead.torch.workers.oversubscription import check_cluster, too_many_workers

CPUS = len(os.sched_getaffinity(0))
several_cpus = pytest.mark.skipif(CPUS < 2, reason="a pool has one thread on one CPU anyway")


LAUNCHERS = {
    "torchrun": ("LOCAL_WORLD_SIZE", "LOCAL_RANK"),
    "mpirun": ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "srun": ("SLURM_NTASKS_PER_NODE", "SLURM_LOCALID"),
}


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user who has set nothing, whatever this shell has set."""
    names = [name for names in LAUNCHERS.values() for name in names]
    for name in (*millhead.torch.workers.native_pools.VARIABLES, *names):
        monkeypatch.delenv(name, raising=False)


def _by_library(loader: Any) -> dict[str, list[dict[str, Any]]]:
    """What the samples of an epoch tell, by library."""
    told: dict[str, list[dict[str, Any]]] = {}
    for batch in loader:
        facts = {"value": int(batch["value"][0]), **json.loads(batch["facts"][0])}
        told.setdefault(facts["library"], []).append(facts)
    return told


def _load(
    dataset: Any, context: str = "fork", workers: int = 2, **arguments: Any
) -> tuple[dict[str, Any], Any]:
    """The stats of an epoch, and what its samples told."""
    loader = DataLoader(
        dataset, num_workers=workers, multiprocessing_context=context, timeout=60, **arguments
    )
    told = _by_library(loader)
    return loader.stats(), told


@functools.cache
def _told(context: str, limit: int | None) -> tuple[dict[str, Any], Any, list[str]]:
    """All libraries at once, each loaded in the worker; also the Advice that was given."""
    workers = 2 if limit == 1 else 1  # for the others one is enough, and takes half the time
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stats, told = _load(UsesLibraries(), context, workers, worker_threads=limit)
    return stats, told, [str(w.message) for w in caught if w.category is millhead.Advice]


@functools.cache
def _told_by_torch() -> Any:
    """The same of torch's own workers."""
    return _by_library(torch.utils.data.DataLoader(UsesLibraries(), num_workers=1))


def _settings(told: Any) -> dict[str, Any]:
    """What each library was set to, in every worker."""
    for name, facts in told.items():
        assert facts[0]["setting"] == facts[1]["setting"], name
    return {name: facts[0]["setting"] for name, facts in told.items()}


def _started(told: Any) -> dict[str, int]:
    """The most threads that using each library added to a worker."""
    return {name: max(fact["started"] for fact in facts) for name, facts in told.items()}


@pytest.fixture
def advice() -> Callable[[Callable[[], Any]], list[str]]:
    """Calls something, and gives the Advice it caused, as in a process that has given none yet."""

    def caused_by(action: Callable[[], Any]) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            action()
        return [str(item.message) for item in caught if item.category is millhead.Advice]

    return caused_by


# ---- the argument --------------------------------------------------------------------------------


def test_the_argument_is_kept_under_its_name_and_survives_pickling() -> None:
    assert DataLoader(Items("int", 2)).worker_threads == 1
    for value in (None, 1, 7):
        loader = DataLoader(Items("int", 2), worker_threads=value)
        assert loader.worker_threads == value
        assert pickle.loads(pickle.dumps(loader)).worker_threads == value


@pytest.mark.parametrize("value", [0, -1])
def test_less_than_a_thread_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="worker_threads should be at least 1"):
        DataLoader(Items("int", 2), worker_threads=value)


@pytest.mark.parametrize("value", [True, 1.0, "1"])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="worker_threads should be an int or None"):
        DataLoader(Items("int", 2), worker_threads=value)


# ---- pools of libraries that workers load themselves ----------------------------------------------


def test_no_library_is_loaded_before_the_workers_are_asked() -> None:
    """Else the tests that follow would show nothing about libraries imported later."""
    assert {"cv2", "dask", "zarr", "numcodecs", "polars"}.isdisjoint(sys.modules)


@several_cpus
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_one_thread_each_by_default(context: str) -> None:
    stats, told, _ = _told(context, 1)
    assert stats["start"] == {"fork": "fork", "spawn": "template"}[context]
    assert all({fact["worker"] for fact in facts} == {0, 1} for facts in told.values())
    assert _settings(told) == {
        "numpy": 1,
        "torch": 1,
        "cv2": 1,
        "dask": "synchronous",
        "zarr": 1,
        "numcodecs": 1,
        "polars": 1,
    }
    started = _started(told)
    assert started.pop("polars") > 0  # its own helpers, asleep
    assert started.pop("zarr") <= 2  # one, and one that waits for what the others have read
    assert set(started.values()) == {0}


@several_cpus
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_more_threads_where_they_are_wanted(context: str) -> None:
    _, told, _ = _told(context, 2)
    assert _settings(told) == {
        "numpy": 2,
        "torch": 1 if context == "fork" else 2,  # a pool that the trainer used would hang
        "cv2": 2,
        "dask": "threads",
        "zarr": 2,
        "numcodecs": 2,
        "polars": 2,
    }
    assert _started(told)["dask"] == 2


@several_cpus
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_none_leaves_the_pools_as_torch_does(context: str) -> None:
    _, told, _ = _told(context, None)
    settings = _settings(told)
    assert settings == _settings(_told_by_torch())
    assert settings["torch"] == 1
    assert settings["dask"] is settings["zarr"] is None
    assert min(settings[name] for name in ("numpy", "cv2", "numcodecs", "polars")) > 1
    assert _started(told)["dask"] > 1
    assert all(not fact["variables"] for facts in told.values() for fact in facts)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_capped_libraries_are_no_reason_for_advice(context: str) -> None:
    stats, _, advice = _told(context, 1)
    assert stats["threads_seen"] > 2  # zarr's and polars's, which sleep most of the time
    assert advice == []


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_what_the_libraries_compute_equals_torchs(context: str) -> None:
    def values(told: Any) -> dict[str, list[int]]:
        return {name: [fact["value"] for fact in facts] for name, facts in told.items()}

    _, told, _ = _told(context, 1)
    assert values(told) == values(_told_by_torch())


@several_cpus
@pytest.mark.filterwarnings("ignore::millhead.Advice")
def test_a_refused_template_that_becomes_a_worker_has_small_pools_too() -> None:
    loader = DataLoader(tc.ImportsPolars(), num_workers=2, multiprocessing_context="spawn")
    assert [int(batch) for batch in loader] == [1, 1]
    assert loader.stats()["start"] == "spawn"


# ---- what the user has set -----------------------------------------------------------------------


@several_cpus
def test_worker_init_fn_has_the_last_word() -> None:
    names = ("cv2", "dask", "zarr", "numcodecs", "polars")
    _, told = _load(UsesLibraries(*names), workers=1, worker_init_fn=tc.choose_three)
    assert _settings(told) == {
        "cv2": THREE,
        "dask": "threads",
        "zarr": THREE,
        "numcodecs": THREE,
        "polars": THREE,
    }


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_variables_of_the_users_stay_and_speak_for_related_ones(
    context: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", str(THREE))
    monkeypatch.setenv("RAYON_NUM_THREADS", str(THREE))
    _, told = _load(UsesLibraries("numpy"), context)
    for fact in told["numpy"]:
        assert fact["variables"] == {
            "OMP_NUM_THREADS": str(THREE),
            "RAYON_NUM_THREADS": str(THREE),
            "POLARS_MAX_THREADS": "1",
        }
        if context == "spawn":  # loaded there, so that it heeds the variable, up to the CPUs
            assert fact["setting"] == min(THREE, CPUS)


def test_workers_started_one_by_one_load_their_libraries_small() -> None:
    before = dict(os.environ)
    with pytest.warns(millhead.Advice, match="opens"):
        stats, told = _load(tc.OpensFile("numpy"), "spawn", workers=1)
    assert stats["start"] == "spawn"
    assert _settings(told) == {"numpy": 1}
    assert stats["threads_seen"] == 1  # NumPy, loaded before anything else, has none
    assert dict(os.environ) == before


CHOSEN_IN_THE_TRAINER = """
    import json
    import cv2, dask, numcodecs, numpy, zarr
    import test_worker_threads as tests
    from millhead.torch.workers import native_pools
    from helpers.thread_cases import THREE, UsesLibraries

    cv2.setNumThreads(THREE)
    dask.config.set(num_workers=THREE)
    zarr.config.set({"threading.max_workers": THREE})
    numcodecs.blosc.set_nthreads(THREE)
    for pool in native_pools.loaded():
        if isinstance(pool, native_pools.OpenBlas):
            pool.set(THREE)
    names = ("numpy", "torch", "cv2", "dask", "zarr", "numcodecs")
    _, told = tests._load(UsesLibraries(*names), workers=1)
    print(json.dumps([tests._settings(told), tests._started(told)["dask"]]))
"""

USED_BEFORE_THE_FORK = """
    import json
    from helpers import thread_cases as tc
    import torch
    import test_worker_threads as tests

    torch.set_num_threads(2)
    names = ("numpy", "torch", "cv2", "dask", "zarr", "numcodecs")
    values = [tc.LIBRARIES[name]()[0] for name in names]
    told = {}
    for limit in (1, 2):
        loader = tests.DataLoader(
            tc.UsesLibraries(*names), num_workers=1, worker_threads=limit, timeout=20,
            multiprocessing_context="fork",
        )
        batches = list(loader)
        assert [int(batch["value"][0]) for batch in batches[::2]] == values
        facts = [json.loads(batch["facts"][0]) for batch in batches]
        told[limit] = {fact["library"]: fact["setting"] for fact in facts}
    print(json.dumps([told[1], told[2]]))
"""


def _script(folder: Path, text: str, **options: Any) -> tuple[Any, str]:
    """What a script prints as JSON, and what it says on stderr."""
    script = folder / "train.py"
    script.write_text(textwrap.dedent(text))
    result = procs.run([sys.executable, str(script)], **options)
    assert result.returncode == 0, result.stderr
    assert result.left == set()  # type: ignore[attr-defined]
    return json.loads(result.stdout), result.stderr


def test_calls_in_the_trainer_count_as_the_users_choice(tmp_path: Path) -> None:
    (settings, dask_threads), _ = _script(tmp_path, CHOSEN_IN_THE_TRAINER)
    assert settings == {
        "numpy": THREE,
        "torch": 1,
        "cv2": THREE,
        "dask": None,
        "zarr": THREE,
        "numcodecs": THREE,
    }
    assert dask_threads == THREE


@several_cpus
def test_pools_that_ran_in_the_trainer_do_not_hang_its_forks(tmp_path: Path) -> None:
    (one, two), stderr = _script(tmp_path, USED_BEFORE_THE_FORK)
    assert one == {
        "numpy": 1,
        "torch": 1,
        "cv2": 1,
        "dask": "synchronous",
        "zarr": 1,
        "numcodecs": 1,
    }
    # Pools of OpenMP's and OpenCV's that came by the fork are never used.
    assert two == {**one, "numpy": 2, "dask": "threads", "zarr": 2, "numcodecs": 2}
    assert stderr == ""


# ---- threads that were seen ----------------------------------------------------------------------


@pytest.mark.parametrize(("context", "sleepers"), [("fork", 0), ("fork", 20), ("spawn", 20)])
def test_threads_seen_are_those_of_all_workers(
    context: str, sleepers: int, advice: Callable[[Callable[[], Any]], list[str]]
) -> None:
    loader = DataLoader(tc.Sleepers(40, sleepers), num_workers=2, multiprocessing_context=context)
    assert advice(lambda: list(loader)) == []  # whoever sleeps is in nobody's way
    stats = loader.stats()
    assert stats["threads_seen"] == 2 * (1 + sleepers)
    assert stats["cpus"] == millhead._core.cpus()


def test_threads_that_come_late_are_seen_too() -> None:
    class Late(tc.Sleepers):
        def __getitem__(self, index: int) -> int:
            return super().__getitem__(index) if index >= 20 else index

    loader = DataLoader(Late(80, 5), num_workers=1)
    list(loader)
    assert loader.stats()["threads_seen"] == 6


def test_threads_are_looked_at_early_in_a_long_epoch_and_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []
    loader = DataLoader(tc.Sleepers(9, 3), num_workers=1, worker_threads=2)
    iterator: Any = None

    def look(views: list[dict[str, Any]], limit: int | None, streaming: Any) -> None:
        assert limit == 2
        assert streaming.total(workers=1) == 2
        assert [view["pid"] for view in views] == [worker.pid for worker in iterator._workers]
        looks.append(views[0]["threads"])

    monkeypatch.setattr(millhead.torch.iterators.worker_counts, "check_threads", look)
    monkeypatch.setattr(millhead.torch.iterators.multiprocess, "CHECK_THREADS_AT", 5)
    iterator = iter(loader)
    for number in range(9):
        assert len(looks) == (number > 5)
        next(iterator)
    assert list(iterator) == []
    assert looks == [4, 4]


CROWDED = """
    from helpers import thread_cases as tc
    from millhead.torch import DataLoader

    loader = DataLoader(tc.Multiplies(), num_workers=2, multiprocessing_context="fork")
    list(loader)
    list(loader)
    print(loader.stats()["threads_seen"])
"""


def test_threads_that_crowd_the_cpus_are_told_of_once(tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    bound = {"preexec_fn": lambda: os.sched_setaffinity(0, {cpu})}
    seen, stderr = _script(tmp_path, CROWDED, **bound)
    assert seen == 2 * 4
    lines = [line for line in stderr.splitlines() if "Advice" in line]
    assert len(lines) == 1
    assert "millhead: 2 workers keep " in lines[0]
    assert " threads running on 1 CPUs (worker_threads=1): have the dataset use fewer" in lines[0]


def test_the_remedy_for_too_many_threads_is_what_asked_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in millhead.torch.workers.native_pools.VARIABLES:
        monkeypatch.setenv(name, "1")
    remedy = millhead.torch.workers.oversubscription._remedy
    assert "fewer threads, or use fewer workers" in remedy(1)
    assert "worker_threads=1" in remedy(None)
    assert "worker_threads=1" in remedy(4)
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert remedy(1).startswith("OMP_NUM_THREADS=8 asks for them: unset it")
    assert remedy(1, Streaming("threads", 4)).startswith("dask has 4 threads in each worker: ")
    assert remedy(1, Streaming("cluster", 4)) == remedy(1)
    assert remedy(4, Streaming("threads", 4)) == remedy(4)


# ---- workers of all ranks ------------------------------------------------------------------------


def test_workers_of_all_ranks_are_summed_up() -> None:
    text = too_many_workers(workers=16, ranks=8, cpus=20, affinity=20)
    assert text is not None
    assert text.startswith("128 workers of 8 ranks on this machine's 20 CPUs (num_workers=16): ")
    assert "num_workers=1 " in text
    assert "millhead plan cpus --ranks 8" in text


@pytest.mark.parametrize(
    ("workers", "ranks", "cpus"), [(13, 1, 10), (20, 1, 10), (18, 1, 20), (16, 8, 160), (5, 8, 20)]
)
def test_mild_oversubscription_is_left_alone(workers: int, ranks: int, cpus: int) -> None:
    assert too_many_workers(workers, ranks, cpus, affinity=cpus) is None


def test_a_quota_counts_where_torch_does_not_see_it() -> None:
    text = too_many_workers(workers=32, ranks=1, cpus=4, affinity=64)
    assert text is not None
    assert "32 workers on 4 CPUs" in text
    assert "num_workers=2 " in text


def test_of_one_rank_only_torch_speaks(
    advice: Callable[[Callable[[], Any]], list[str]], recwarn: pytest.WarningsRecorder
) -> None:
    def said(cls: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            cls(Items("int", 2), num_workers=3 * CPUS)
        return [str(item.message) for item in caught]

    assert said(DataLoader) == said(torch.utils.data.DataLoader)
    assert "excessive worker creation" in said(DataLoader)[0]
    loader = DataLoader(Items("int", 2), num_workers=3 * CPUS)
    assert advice(lambda: iter(loader)._shutdown_workers()) == []


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_first_rank_of_a_machine_says_it_for_all(
    launcher: str,
    rank: int,
    monkeypatch: pytest.MonkeyPatch,
    advice: Callable[[Callable[[], Any]], list[str]],
) -> None:
    size, number = LAUNCHERS[launcher]
    ranks = 3 * millhead.torch.workers.oversubscription.cpus_for(2)
    monkeypatch.setenv(size, str(ranks))
    monkeypatch.setenv(number, str(rank))
    loader = DataLoader(Items("int", 2), num_workers=1)
    said = advice(lambda: [list(loader), list(loader)])
    assert len(said) == (1 if rank == 0 else 0)
    for text in said:
        assert text.startswith(f"millhead: {ranks} workers of {ranks} ranks on this machine's ")


@several_cpus
def test_ranks_that_are_bound_to_cpus_of_their_own_are_no_reason_for_advice(tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    cpus, stderr = _script(
        tmp_path,
        """
        import os
        from millhead.torch import DataLoader
        from millhead.torch.workers import oversubscription
        list(DataLoader([1, 2], num_workers=2))
        print([len(os.sched_getaffinity(0)), oversubscription.cpus_for(2)])
        """,
        env={"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "0"},
        preexec_fn=lambda: os.sched_setaffinity(0, {cpu}),
    )
    assert cpus == [1, CPUS]
    assert "Advice" not in stderr


# ---- clusters of all ranks -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threads", "own", "rank", "told"),
    [(8, True, 0, True), (4, True, 0, False), (8, False, 0, False), (8, True, 1, False)],
)
def test_a_cluster_for_each_rank_is_told_of_where_they_are_too_large_together(
    threads: int,
    own: bool,
    rank: int,
    told: bool,
    monkeypatch: pytest.MonkeyPatch,
    advice: Callable[[Callable[[], Any]], list[str]],
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    monkeypatch.setattr(millhead.torch.workers.oversubscription, "cpus_for", lambda ranks: 20)
    cluster = Cluster("tcp://127.0.0.1:1", None, threads, own)
    said = advice(lambda: [check_cluster(cluster), check_cluster(cluster)])
    assert [text.split(" (")[0] for text in said] == (
        ["millhead: 8 ranks x 8 threads of a dask cluster each are 64 on this machine's 20 CPUs"]
        if told
        else []
    )


def test_one_cluster_is_as_large_as_it_was_made(
    monkeypatch: pytest.MonkeyPatch, advice: Callable[[Callable[[], Any]], list[str]]
) -> None:
    monkeypatch.setattr(millhead.torch.workers.oversubscription, "cpus_for", lambda ranks: 2)
    assert advice(lambda: check_cluster(Cluster("tcp://127.0.0.1:1", None, 64, True))) == []
