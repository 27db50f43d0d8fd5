"""The snippets of examples/seeds run, do what their documents say, and equal torch's loader."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from helpers import procs

SEEDS = Path(__file__).resolve().parents[3] / "examples" / "seeds"
FILES = sorted(path.name for path in SEEDS.glob("seed*.py"))
LOADERS = ("torch", "millhead")
# Snippets that ask for every batch of an epoch; the others stop before its end is seen.
WHOLE_EPOCHS = {
    "seed001_dask.py",
    "seed001_your_dataset.py",
    *(name for name in FILES if name.startswith("seed003")),
    *(name for name in FILES if name.startswith("seed004")),
} - {"seed004_workers.py", "seed004_benchmark.py", "seed004_sweep.py"}
EPOCH_LINE = re.compile(r"^millhead: epoch \d+: ", re.MULTILINE)

pytestmark = pytest.mark.limit(30)  # the one run of all snippets is held to a limit of its own


@pytest.fixture(scope="module")
def runs() -> dict[str, dict[str, Any]]:
    """Every snippet with both loaders, run once; what each run printed and how it ended."""
    done = procs.run(
        [sys.executable, str(SEEDS / "run.py"), "--json"],
        seconds=400,
        env={"MILLHEAD_VERBOSE": "1"},
    )
    assert done.stdout, done.stderr
    assert not done.left  # type: ignore[attr-defined]
    return {row["file"]: row for row in json.loads(done.stdout)}


def _results(run: dict[str, Any]) -> list[str]:
    lines: list[str] = run["stdout"].splitlines()
    return [line.removeprefix("result: ") for line in lines if line.startswith("result: ")]


def _losses(lines: list[str]) -> list[list[float]]:
    """The losses of each rank, rank 0 first."""
    found = [re.fullmatch(r"rank (\d): losses (\[.*\])", line) for line in lines]
    assert all(found)
    return [json.loads(match[2]) for match in found if match]


def _helper(name: str) -> Any:
    """A module of examples/seeds."""
    sys.path.insert(0, str(SEEDS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(SEEDS))


def _fingerprint(batches: list[torch.Tensor]) -> str:
    word: str = _helper("fingerprint").fingerprint(batches)
    return word


def _dummy_batches(size: int, count: int) -> list[torch.Tensor]:
    """Batches of the documents' dummy data set, made without any loader."""
    dataset = _helper("dummydataset").DummyDataset()
    return [
        torch.stack([dataset[size * number + row] for row in range(size)])
        for number in range(count)
    ]


# --- every snippet ----------------------------------------------------------------------------


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("name", FILES)
def test_it_runs_and_leaves_nothing_running(
    name: str, loader: str, runs: dict[str, dict[str, Any]]
) -> None:
    run = runs[name][loader]
    assert run["exit"] == 0, run["stderr"]
    assert run["left"] == 0
    assert _results(run)


@pytest.mark.parametrize("name", FILES)
def test_both_loaders_give_the_same_results(name: str, runs: dict[str, dict[str, Any]]) -> None:
    assert _results(runs[name]["millhead"]) == _results(runs[name]["torch"])
    assert runs[name]["equal"]


@pytest.mark.parametrize("name", FILES)
def test_each_run_used_its_loader(name: str, runs: dict[str, dict[str, Any]]) -> None:
    assert not EPOCH_LINE.search(runs[name]["torch"]["stderr"])
    if name in WHOLE_EPOCHS:
        assert EPOCH_LINE.search(runs[name]["millhead"]["stderr"])


@pytest.mark.parametrize("name", FILES)
def test_its_head_says_what_is_the_documents_and_what_was_added(name: str) -> None:
    head = (SEEDS / name).read_text().split('"""')[1]
    assert "The document's line" in head
    assert "Added" in head


def test_the_table_lists_every_snippet_of_every_document() -> None:
    table = (SEEDS / "README.md").read_text()
    rows = re.findall(r"^\|.*\| \[(seed\d+_\w+\.py)\]\(\1\) \|", table, re.MULTILINE)
    assert sorted(rows) == FILES
    assert {name[:7] for name in FILES} == {f"seed00{number}" for number in range(5)}


@pytest.mark.limit(100)
def test_a_snippet_runs_by_itself(runs: dict[str, dict[str, Any]]) -> None:
    name = "seed001_your_dataset.py"  # its forkserver workers import it again
    done = procs.run([sys.executable, str(SEEDS / name)], seconds=90)
    assert done.returncode == 0, done.stderr
    assert not done.left  # type: ignore[attr-defined]
    assert _results({"stdout": done.stdout}) == _results(runs[name]["torch"])


def test_a_snippet_runs_with_the_loader_asked_for(runs: dict[str, dict[str, Any]]) -> None:
    name = "seed004_tensor_dataset.py"
    done = procs.run(
        [sys.executable, str(SEEDS / "run.py"), "--loader", "torch", str(SEEDS / name)],
        env={"MILLHEAD_VERBOSE": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert not EPOCH_LINE.search(done.stderr)
    assert _results({"stdout": done.stdout}) == _results(runs[name]["millhead"])


# --- what the documents say -------------------------------------------------------------------


def test_000_a_worker_changes_no_loss(runs: dict[str, dict[str, Any]]) -> None:
    without = _losses(_results(runs["seed000_waiting.py"]["millhead"]))
    with_one = _losses(_results(runs["seed000_parallel.py"]["millhead"]))
    assert with_one == without
    assert [len(losses) for losses in without] == [8, 8]  # 64 rows, two ranks, batches of 4
    assert without[0] != without[1]  # the sampler splits the data


@pytest.mark.parametrize("name", ["seed000_waiting.py", "seed002_waiting.py"])
def test_000_and_002_every_rank_says_how_long_it_waits(
    name: str, runs: dict[str, dict[str, Any]]
) -> None:
    said = runs[name]["millhead"]["stdout"]
    times = re.findall(r"^rank (\d): ms per step: data .*, waiting [\d.]+$", said, re.MULTILINE)
    assert times == ["0", "1"]


def test_002_the_diff_changes_no_loss(runs: dict[str, dict[str, Any]]) -> None:
    before_0, before_1, after_0, after_1 = _losses(
        _results(runs["seed002_parallel.py"]["millhead"])
    )
    assert (before_0, before_1) == (after_0, after_1)
    assert len(before_0) == 8


def test_000_the_timers_log_and_say_whom_ranks_wait_for(runs: dict[str, dict[str, Any]]) -> None:
    run = runs["seed000_train_llm.py"]["millhead"]
    progress = [line.rpartition(", loss ")[0] for line in _results(run)]
    assert progress == [
        "step 4: epoch 0, 50%, 4 left",
        "step 8: epoch 0, 100%, 0 left",
        "step 12: epoch 1, 50%, 4 left",
        "step 16: epoch 1, 100%, 0 left",
    ]
    # Two ranks share the stream, with the launcher: a line may begin within another.
    logged = re.findall(r"\[rank=(\d)\] \[[^]]*\] INFO:\{'global_step': (\d+),", run["stderr"])
    assert sorted(logged) == sorted(
        (rank, step) for rank in "01" for step in ("4", "8", "12", "16")
    )
    said = re.findall(
        r"^(with|without) barriers: (?:rank \d on|no rank) ", run["stdout"], re.MULTILINE
    )
    assert said == ["with", "without"]


def test_001_the_allocation_examples(runs: dict[str, dict[str, Any]]) -> None:
    assert _results(runs["seed001_cpu_count.py"]["millhead"]) == [
        "20 CPUs, 1 GPUs: 2 reserved, 18 workers per GPU, 18 in all",
        "60 CPUs, 3 GPUs: 6 reserved, 18 workers per GPU, 54 in all",
        "160 CPUs, 8 GPUs: 16 reserved, 18 workers per GPU, 144 in all",
    ]


def test_001_no_configuration_changes_a_batch(runs: dict[str, dict[str, Any]]) -> None:
    word = _fingerprint(3 * _dummy_batches(size=8, count=8))
    assert _results(runs["seed001_your_dataset.py"]["millhead"]) == [
        f"{name}: 24 batches {word}"
        for name in ("baseline", "workers", "higher prefetch_factor", "forkserver")
    ]


def test_001_every_configuration_is_measured_and_one_recommended(
    runs: dict[str, dict[str, Any]],
) -> None:
    run = runs["seed001_benchmark_configurations.py"]["millhead"]
    names = ("baseline", "default", "more-workers")
    assert _results(run) == [f"{name}: 16 batches" for name in names]  # 8 in each of two epochs
    recommended = re.search(r"^recommended: ([\w-]+): .+", run["stdout"], re.MULTILINE)
    assert recommended is not None
    assert recommended[1] in names


def test_001_every_batch_of_both_epochs_is_timed(runs: dict[str, dict[str, Any]]) -> None:
    files = "['benchmark_config.yaml', 'timing_results.csv', 'timing_summary.yaml']"
    run = runs["seed001_timing_benchmark.py"]["millhead"]
    assert _results(run) == [f"16 batches, {files}"]  # 64 rows in batches of 8, twice
    assert re.search(
        r"^data [\d.]+ ms, forward .* ms, backward .* ms, other .* ms$", run["stdout"], re.MULTILINE
    )


def test_001_the_timings_are_kept_where_asked_for(tmp_path: Path) -> None:
    config = tmp_path / "loader.yaml"
    config.write_text("{batch_size: 16, num_workers: 1}")
    script = str(SEEDS / "seed001_timing_benchmark.py")
    options = ["-c", str(config), "--epochs", "1", "--save-dir", str(tmp_path / "results")]
    done = procs.run([sys.executable, script, *options])
    assert done.returncode == 0, done.stderr
    header, *rows = (tmp_path / "results" / "timing_results.csv").read_text().splitlines()
    assert header == "data,forward,backward,other"
    assert len(rows) == 4
    assert all(float(number) >= 0 for row in rows for number in row.split(","))
    summary = yaml.safe_load((tmp_path / "results" / "timing_summary.yaml").read_text())
    assert summary["batches"] == 4
    assert summary["train_step_time"] > 0


def test_001_all_modes_of_dask_read_the_same(runs: dict[str, dict[str, Any]]) -> None:
    modes = [line.split(": ") for line in _results(runs["seed001_dask.py"]["millhead"])]
    assert [mode for mode, _ in modes] == ["single-threaded", "threads", "cluster"]
    assert len({read for _, read in modes}) == 1
    assert modes[0][1].startswith("6 batches ")
    lines = runs["seed001_dask.py"]["millhead"]["stdout"].splitlines()
    assert [line for line in lines if line.startswith("streaming")] == [
        "streaming: {'mode': 'single-threaded', 'threads': 2}",
        "streaming: {'mode': 'threads', 'threads': 2}",
        "streaming: {'mode': 'cluster', 'threads': 2}",
    ]


def test_003_the_configuration_gives_batches_of_128(runs: dict[str, dict[str, Any]]) -> None:
    sizes = _results(runs["seed003_loader.py"]["millhead"])[0]
    assert sizes == "batches of [128, 128, 128, 116]"


def test_003_the_profiler_has_a_row_for_loading(runs: dict[str, dict[str, Any]]) -> None:
    run = runs["seed003_profiler.py"]["millhead"]
    assert sorted(_results(run)) == [
        "8 times training step",
        # once more than batches: the last call finds the end
        "9 times enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    ]
    assert re.search(r"^enumerate\(DataLoader\)#_Multi.*%", run["stdout"], re.MULTILINE)


def test_004_the_basic_setup_gives_batches_of_32(runs: dict[str, dict[str, Any]]) -> None:
    shapes = _results(runs["seed004_basic.py"]["millhead"])[0]
    assert shapes == "batches of [(32, 3, 24, 24), (16, 3, 24, 24)]"


def test_004_any_number_of_workers_gives_the_same_first_batch(
    runs: dict[str, dict[str, Any]],
) -> None:
    word = _fingerprint(_dummy_batches(size=32, count=1))
    assert _results(runs["seed004_workers.py"]["millhead"]) == [
        f"workers {count}: {word}" for count in (0, 1, 2, 4, 8)
    ]
    said = runs["seed004_workers.py"]["millhead"]["stdout"]
    timed = re.findall(r"^Workers: \d, Time: [\d.]+s$", said, re.MULTILINE)
    assert len(timed) == 5


def test_004_fork_is_used_when_asked_for(runs: dict[str, dict[str, Any]]) -> None:
    word = _fingerprint(_dummy_batches(size=1, count=64))
    said = _results(runs["seed004_fork.py"]["millhead"])
    assert said == ["fork", f"64 batches {word}"]


def test_004_batches_are_pinned_where_there_is_a_gpu(runs: dict[str, dict[str, Any]]) -> None:
    gpu = torch.cuda.is_available()
    said = _results(runs["seed004_pin_memory.py"]["millhead"])
    assert said[0] == f"a GPU: {gpu}, pinned: {gpu}"


def test_004_the_good_class_loads_on_demand(runs: dict[str, dict[str, Any]]) -> None:
    bad, bad_batches, good, good_batches = _results(runs["seed004_on_demand.py"]["millhead"])
    assert bad == "BadDataset: 48 loaded at first, 48 in the end"
    assert good == "GoodDataset: 0 loaded at first, 48 in the end"
    assert bad_batches == good_batches


def test_004_data_in_memory_is_shuffled_into_batches_of_64(
    runs: dict[str, dict[str, Any]],
) -> None:
    sizes = _results(runs["seed004_tensor_dataset.py"]["millhead"])[0]
    assert sizes == "batches of [64, 64, 64, 8]"


def test_004_the_sweep_takes_as_many_batches_as_it_counts(runs: dict[str, dict[str, Any]]) -> None:
    word = _fingerprint(3 * _dummy_batches(size=8, count=6))
    run = runs["seed004_sweep.py"]["millhead"]
    counts = (0, 1, 2, 4)
    assert _results(run) == [f"workers {count}: 18 batches {word}" for count in counts]
    ms = r"[\d.]+\+-[\d.]+ ms"
    timed = rf"^Workers: (\d), set-up {ms}, first batch {ms}, then {ms} a batch$"
    assert re.findall(timed, run["stdout"], re.MULTILINE) == [str(count) for count in counts]


def test_004_the_measured_batches_are_the_same_for_any_number_of_workers(
    runs: dict[str, dict[str, Any]],
) -> None:
    word = _fingerprint(_dummy_batches(size=8, count=6))
    assert _results(runs["seed004_benchmark.py"]["millhead"]) == [
        f"workers {count}: 6 batches {word}" for count in (0, 2, 4, 8)
    ]
