"""``millhead bench``: exact fetches, one row per configuration, nothing measured lost, one advice."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sysconfig
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import millhead
import pytest
from helpers import procs
from millhead._command_line import UsageError
from millhead.bench import child, command, configs
from millhead.bench.child import LimitedSampler, describe_error, limit_sampler, step_of
from millhead.bench.configs import Config
from millhead.bench.report import Row, describe, recommend
from millhead.bench.runs import Outcome, Run, runs_of
from torch.utils.data import DataLoader

COMMAND = os.path.join(sysconfig.get_path("scripts"), "millhead")
KEYS = {
    "name",
    "config",
    "total_s",
    "setup_s",
    "first_batch_s",
    "epoch_gap_s",
    "wait_s",
    "samples_per_s",
    "cpu_s",
    "pss_mb",
    "speedup",
    "cause",
    "log",
}

# ---- configurations ------------------------------------------------------------------------------


def _read(tmp_path: Path, text: str, name: str = "c.yaml") -> list[Config]:
    path = tmp_path / name
    path.write_text(textwrap.dedent(text))
    return configs.read(path, "millhead")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("prefetch_factor: true", "prefetch_factor is true, must be a whole number"),
        ("num_worker: 2", "unknown key num_worker (PATH): did you mean num_workers?"),
        ("colour: red", "unknown key colour (PATH): known: name, loader, batch_size"),
        ("num_workers: -1", "num_workers is -1, must be a whole number of 0 or more"),
        ("num_workers: '2'", 'num_workers is "2", must be a whole number'),
        ("num_workers: 1.5", "num_workers is 1.5, must be a whole number"),
        ("batch_size: 0", "batch_size is 0, must be a whole number of 1 or more, or null"),
        ("shuffle: 1", "shuffle is 1, must be true or false, or null"),
        ("timeout: .nan", "timeout is NaN, must be a number of seconds"),
        ("loader: jax", 'loader is "jax", must be one of millhead, torch'),
        ("multiprocessing_context: thread", "must be one of fork, spawn, forkserver, or null"),
        ("collate_fn: mine", 'collate_fn is "mine", must be MODULE:NAME'),
        ("rng: [dice]", 'rng is ["dice"], must be a list of random, numpy, torch'),
        ("sampler: x", "sampler cannot be set (PATH)"),
        ("limit_batches: 3", "limit_batches cannot be set (PATH): give --limit-batches"),
        ("{loader: torch, dispatch: sample}", "dispatch is an argument of millhead's loader"),
        ("name: ../up", 'name is "../up" (PATH): use letters'),
        ("name: a.r2", 'name is "a.r2" (PATH): use letters'),
    ],
)
def test_a_wrong_key_is_named(entry: str, said: str, tmp_path: Path) -> None:
    inner = entry.strip("{}")
    named = inner if inner.startswith("name") else f"name: a, {inner}"
    with pytest.raises(UsageError) as wrong:
        _read(tmp_path, f"configs: [{{{named}}}]")
    assert said.replace("PATH", str(tmp_path / "c.yaml")) in str(wrong.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no list 'configs:'"),
        ("configs: {a: 1}", "no list 'configs:'"),
        ("configs: []", "configs: is empty"),
        ("configs: [3]", "an entry is 3"),
        ("configs: [{num_workers: 1}]", "an entry has no name"),
        ("configs: [{name: a}, {name: a}]", "two configurations are called a"),
        ("configs: [{name: a}]\nrepeats: 3", "unknown key repeats"),
        ("configs:\n- name: a\n  shuffle: true\n  shuffle: false", "shuffle is given twice"),
        ("configs: [", "not YAML"),
        ("configs: &a [*a]", "not YAML"),
    ],
)
def test_a_file_that_is_no_list_of_configurations_is_refused(
    text: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"c\.yaml") as wrong:
        _read(tmp_path, text)
    assert said in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_a_configuration_is_kept_as_given(tmp_path: Path) -> None:
    entry = {"name": "a", "batch_size": None, "timeout": 3, "memory": "2GB", "shuffle": False}
    entry |= {"worker_memory": 0.25, "worker_threads": None}
    configs = _read(tmp_path, json.dumps({"configs": [entry]}), "c.json")
    assert [config.given for config in configs] == [entry]
    assert configs[0].loader == "millhead"
    assert "name" not in configs[0].arguments()


def test_the_standard_plan_has_what_the_guides_try() -> None:
    plan = {config.name: config for config in configs.standard(10, 8, 32, streams=True)}
    assert plan["baseline"].given == {
        "name": "baseline",
        "loader": "torch",
        "batch_size": 32,
        "num_workers": 0,
    }
    assert plan["default"].workers == 8
    assert plan["streaming"].given["num_workers"] == 8
    assert plan["streaming"].given["worker_threads"] == 5
    assert plan["fewer-workers"].workers < 8 < plan["more-workers"].workers
    assert plan["oversubscribed-more"].workers > plan["oversubscribed"].workers > 10
    assert {config.loader for config in plan.values()} == {"torch", "millhead"}
    assert {config.batch_size for config in plan.values()} == {16, 32, 64}
    for config in plan.values():
        assert configs.check(config.given, "plan", "millhead") == config


def test_the_standard_plan_of_a_small_machine_tries_nothing_twice() -> None:
    plan = configs.standard(1, 1, 32)
    settings = [{**config.given, "name": ""} for config in plan]
    assert all(settings.count(one) == 1 for one in settings)


def test_the_plan_that_is_printed_can_be_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--plan", "--cpus", "10", "--gpus", "1"]) == 0
    text = capsys.readouterr().out
    assert "8 loader + 5 streaming" in text
    assert _read(tmp_path, text) == configs.standard(10, 8, 32, pin=True, streams=True)


# ---- the loop ------------------------------------------------------------------------------------


def test_a_limit_ends_torchs_loader_without_fetching_more() -> None:
    seen = []

    class Counting(list[int]):
        def __getitem__(self, index: Any) -> Any:
            seen.append(index)
            return super().__getitem__(index)

    loader = limit_sampler(DataLoader(Counting(range(100)), batch_size=3), 4)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert seen == list(range(12))
    assert len(loader) == 4
    assert len(LimitedSampler([1, 2], 5)) == 2


def test_a_step_takes_its_time() -> None:
    for seconds in (0.0001, 0.003):
        step = step_of(seconds)
        began = time.perf_counter()
        step(None)
        assert time.perf_counter() - began >= seconds


def test_a_workers_traceback_becomes_its_last_line() -> None:
    text = "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback:\n  x\nValueError: no"
    assert describe_error(ValueError(text)) == "ValueError: no"
    assert describe_error(KeyError("a")) == "KeyError: 'a'"
    assert describe_error(ValueError()) == "ValueError"


def test_repeats_are_interleaved_and_a_warm_run_follows_its_cold_one() -> None:
    configs = [Config(name, {"name": name}, "torch") for name in "ab"]
    names = [run.name for run in runs_of(configs, repeats=2, cold=True)]
    assert names == ["a.cold", "a", "b.cold", "b", "a.r2.cold", "a.r2", "b.r2.cold", "b.r2"]


# ---- the advice ----------------------------------------------------------------------------------


def _row(name: str, totals: list[float], wait: float, startup: float, **config: Any) -> Row:
    """A row of 100 batches of 10 samples; what is neither wait nor start-up is the step."""
    given = {"name": name, "batch_size": 10, **config}
    row = Row(Config(name, given, "millhead"))
    for number, total in enumerate(totals):
        result = {
            "status": "done",
            "total_s": total,
            "samples": 1000,
            "batches": 100,
            "wait_s": dict.fromkeys(("mean", "p50", "p99", "max"), wait),
            "waited_s": 100 * wait,
            "step_s": total - startup - 100 * wait,
            "pss_mb": 100.0 * (1 + row.config.workers),
        }
        row.warm.append(Outcome(Run(row.config, number + 1, False), Path(name), result))
    return row


def test_the_fastest_in_total_time_is_recommended() -> None:
    base = _row("base", [20.0, 20.2], 0.1, 0.1)
    two = _row("two", [11.0, 11.1], 0.01, 0.2, num_workers=2)
    chosen, reason = recommend([base, two], base)
    assert chosen is two
    assert reason == "11.1 s in all instead of 20.1 s (base), 1.8 times as fast"


def test_fewer_workers_are_preferred_within_the_error_bars() -> None:
    base = _row("base", [20.0, 20.2], 0.1, 0.1)
    two = _row("two", [11.0, 11.6], 0.01, 0.2, num_workers=2)
    four = _row("four", [10.9, 11.5], 0.01, 0.2, num_workers=4)
    chosen, reason = recommend([base, four, two], base)
    assert chosen is two
    assert "four shows no difference beyond noise, and this takes fewer workers" in reason


def test_in_a_tie_the_plain_default_wins() -> None:
    base = _row("base", [20.0, 20.2], 0.1, 0.1)
    plain = _row("default", [11.0, 12.4], 0.01, 0.2, num_workers=2)
    fewer = _row("fewer", [11.3, 11.4], 0.01, 0.2, num_workers=1)
    tuned = _row("tuned", [11.2, 11.3], 0.01, 0.2, num_workers=2, prefetch_factor=4)
    chosen, reason = recommend([base, tuned, fewer, plain], base)
    assert chosen is plain
    assert "shows no difference beyond noise, and this is the plain default" in reason


@pytest.mark.parametrize("other", [{"dispatch": "sample"}, {"in_order": False}])
def test_other_random_numbers_never_win_a_tie(other: dict[str, Any]) -> None:
    base = _row("base", [20.0, 20.2], 0.1, 0.1)
    four = _row("four", [11.0, 12.4], 0.01, 0.2, num_workers=4)
    sample = _row("sample", [10.5], 0.01, 0.2, num_workers=2, **other)  # one short run
    chosen, reason = recommend([base, sample, four], base)
    assert chosen is four
    assert "sample shows no difference beyond noise" in reason
    assert "keeps the order and the random numbers" in reason
    far = _row("far", [5.0], 0.01, 0.2, num_workers=2, **other)
    assert recommend([base, far, four], base)[0] is far


def test_one_run_varies_as_much_as_what_was_repeated() -> None:
    base = _row("base", [11.0, 13.0], 0.02, 0.1)
    once = _row("once", [10.2], 0.01, 0.2, num_workers=2)  # 1.8 s less, and 1.4 s on either side
    chosen, reason = recommend([base, once], base)
    assert chosen is base
    assert "no difference beyond noise" in reason


def test_another_batch_size_is_not_recommended() -> None:
    base = _row("base", [20.0], 0.1, 0.1)
    large = _row("large", [10.0], 0.0, 0.1, batch_size=20)
    chosen, reason = recommend([base, large], base)
    assert chosen is base
    assert reason.endswith(
        "; large has 2 times the samples a second, but with another batch size, which is another "
        "training"
    )
    small = _row("small", [19.9], 0.1, 0.1, batch_size=5)
    assert "small" not in recommend([base, small], base)[1]


def test_data_in_memory_needs_no_workers() -> None:
    base = _row("base", [10.0, 10.1], 0.0005, 0.01)
    two = _row("two", [10.4, 10.5], 0.0004, 0.4, num_workers=2)
    chosen, reason = recommend([base, two], base)
    assert chosen is base
    assert "workers do not help here: the data is in memory" in reason


def test_less_wait_that_is_lost_on_start_up_is_told_with_where_it_pays() -> None:
    base = _row("base", [2.0, 2.0], 0.01, 0.1)
    two = _row("two", [3.1, 3.1], 0.001, 2.1, num_workers=2)
    chosen, reason = recommend([base, two], base)
    assert chosen is base
    assert "two waits less (1 ms a batch instead of 10)" in reason
    assert "loses on start-up in runs this short (2 s more): it pays from 223 batches on" in reason


def test_a_batch_sizes_gain_is_told_by_the_sample() -> None:
    base = _row("base", [20.0], 0.1, 0.1)
    large = _row("large", [15.0], 0.1, 0.1, batch_size=20)
    large.warm[0].result["samples"] = 2000
    assert describe(large, base)["speedup"] == pytest.approx(20.0 / 7.5)


# ---- the command ---------------------------------------------------------------------------------

MINE = """
import os, time
import torch
from torch.utils.data import Dataset, IterableDataset

def count(index):
    with open("counted", "a") as file:
        file.write(f"{os.environ['RUN_NAME'] if 'RUN_NAME' in os.environ else ''}{index}\\n")

class Counted(Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        count(index)
        return torch.full((3,), float(index))

class Broken(Counted):
    def __getitem__(self, index):
        if index == 7:
            raise ValueError("a broken picture")
        return super().__getitem__(index)

class Slow(Counted):
    def __getitem__(self, index):
        time.sleep(0.05)
        return super().__getitem__(index)

class Stream(IterableDataset):
    def __iter__(self):
        for index in range(100):
            count(index)
            yield torch.tensor(index)

def slow():
    return Slow()

def collate(samples):
    return torch.stack(samples) + 1

def step(batch):
    assert batch.shape == (4, 3)
    with open("stepped", "a") as file:
        file.write(f"{batch[0, 0].item():.0f}\\n")

dataset = Counted()
number = 3
"""

TORCH_0 = {"name": "torch-0", "loader": "torch", "batch_size": 4}
TORCH_2 = {"name": "torch-2", "loader": "torch", "batch_size": 4, "num_workers": 2, "shuffle": True}
OURS_0 = {"name": "ours-0", "batch_size": 4}
OURS_2 = {"name": "ours-2", "batch_size": 4, "num_workers": 2, "prefetch_factor": 4}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def _command(here: Path, configs: list[dict[str, Any]], *arguments: str) -> list[str]:
    (here / "c.json").write_text(json.dumps({"configs": configs}))
    return [COMMAND, "bench", *arguments, "--configs", "c.json"]


def _bench(
    here: Path, configs: list[dict[str, Any]], *arguments: str
) -> subprocess.CompletedProcess[str]:
    done = procs.run(_command(here, configs, *arguments), seconds=90, cwd=here)
    assert done.left == set()  # type: ignore[attr-defined]
    return done


def _files(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


SHORT = ("--limit-batches", "5", "--epochs", "1", "--train-step", "0.001", "--repeats", "1")


def test_each_loader_fetches_exactly_what_it_delivers(here: Path) -> None:
    configs = [TORCH_0, TORCH_2, OURS_0, OURS_2]
    done = _bench(here, configs, "mine:dataset", *SHORT, "--json", "-o", "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert len((here / "counted").read_text().split()) == len(configs) * 5 * 4
    report = json.loads(done.stdout)
    assert [row["config"] for row in report["configs"]] == configs
    for row in report["configs"]:
        assert set(row) >= KEYS
        assert row["error"] is None
        assert row["total_s"] > 0.005
        assert set(row["wait_s"]) == {"mean", "p50", "p99", "max"}
        assert row["samples_per_s"]["mean"] == pytest.approx(20 / row["total_s"])
        assert {path.name for path in Path(here, row["log"]).iterdir()} >= {
            "run.json",
            "events.jsonl",
            "summary.csv",
        }
    assert report["recommended"]["name"] in [config["name"] for config in configs]
    assert report["environment"]["fingerprint"]
    assert json.loads((here / "out" / "bench.json").read_text()) == report


def test_a_file_of_configurations_is_run_once_unless_more_is_asked_for(here: Path) -> None:
    arguments = ("--limit-batches", "5", "--epochs", "1", "--train-step", "0.001", "--json")
    done = _bench(here, [OURS_0], "mine:dataset", *arguments, "-o", "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert len((here / "counted").read_text().split()) == 5 * 4


def test_an_iterable_dataset_is_not_read_beyond_either(here: Path) -> None:
    configs = [TORCH_0, {**TORCH_2, "shuffle": None}, OURS_2]
    done = _bench(here, configs, "mine.py:Stream", *SHORT, "--json", "-o", "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert len((here / "counted").read_text().split()) == len(configs) * 5 * 4


def test_a_callable_trains_and_repeats_give_error_bars(here: Path) -> None:
    config = {**OURS_0, "collate_fn": "mine:collate"}
    arguments = ("--limit-batches", "2", "--epochs", "2", "--repeats", "2", "--json")
    done = _bench(here, [config], "mine:Counted", "--train-step", "mine:step", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert (here / "stepped").read_text().split() == ["1", "5"] * 4
    row = json.loads(done.stdout)["configs"][0]
    assert row["repeats"] == 2
    assert row["samples_per_s"]["std"] > 0
    assert row["epoch_gap_s"] > 0
    assert len(row["logs"]) == 2


def test_a_dataset_that_raises_has_its_line_and_the_others_go_on(here: Path) -> None:
    late = {**OURS_0, "name": "skips", "on_error": "skip"}
    done = _bench(here, [TORCH_2 | {"shuffle": False}, OURS_2, late], "mine:Broken", *SHORT)
    assert (done.returncode, done.stderr) == (0, "")
    told = [line for line in done.stdout.splitlines() if "a broken picture" in line]
    assert len(told) == 2
    assert all("ValueError" in line and "7" in line for line in told)
    assert "recommended: skips" in done.stdout


def test_nothing_that_could_be_measured_is_a_failure(here: Path) -> None:
    done = _bench(here, [OURS_0], "mine:Broken", *SHORT)
    assert done.returncode == 1
    assert done.stderr.startswith("millhead: no configuration could be measured: ValueError: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere:dataset"], "no module 'nowhere' (TARGET): check its name and the working"),
        (["mime:dataset"], "no module 'mime' (TARGET): did you mean 'mine'?"),
        (["nowhere.py:dataset"], "no file 'nowhere.py' (TARGET)"),
        (["mine:nothing"], "mine.py has no 'nothing' (TARGET): name an object in it"),
        (["mine"], "'mine' does not say which object (TARGET): write MODULE:NAME"),
        (
            ["mine:dataset", "--train-step", "mine:none"],
            "mine.py has no 'none' (--train-step)",
        ),
        (["mine:dataset", "--train-step", "mine:number"], "'mine:number' is not callable"),
        (["mine:dataset", "--train-step", "fast"], "'fast' is neither seconds nor MODULE:NAME"),
        (["mine:dataset", "--epochs", "0"], "'0' is not a whole number of 1 or more"),
        (["mine:dataset", "--time-limit", "soon"], "'soon' is not a time like 90s"),
        (["mine:dataset", "--wrong"], "unknown argument '--wrong' (bench)"),
        (["mine:dataset", "-o", "mine.py"], "cannot write: File exists (mine.py)"),
        (["mine:dataset", "-o", "/proc/bench"], "cannot write: "),
        (["mine:dataset", "--files", "gone", "--cold"], "no file or directory 'gone' (--files)"),
        (["mine:dataset", "--continue"], "no bench-TIME here (--continue)"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_2(
    arguments: list[str], said: str, here: Path
) -> None:
    done = _bench(here, [OURS_0], *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.startswith("millhead: ")
    assert (len(done.stderr.splitlines()), done.stdout) == (1, "")
    assert not (here / "counted").exists()


def test_what_the_loader_refuses_is_refused_before_anything_runs(here: Path) -> None:
    done = _bench(here, [OURS_0, {"name": "b", "prefetch_factor": 2}], "mine:dataset", *SHORT)
    assert done.returncode == 2
    assert "prefetch_factor option could only be specified" in done.stderr
    assert "(configuration b)" in done.stderr
    assert not (here / "counted").exists()


def _start(here: Path, configs: list[dict[str, Any]], *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        _command(here, configs, *arguments),
        cwd=here,
        env=procs.new_mark()[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture
def slow_matrix(here: Path) -> Iterator[tuple[subprocess.Popen[str], list[dict[str, Any]]]]:
    """A benchmark whose first configuration is done and whose second is in the middle."""
    configs = [OURS_0, {**OURS_2, "num_workers": 1}]
    arguments = ("--limit-batches", "8", "--epochs", "1", "--train-step", "0", "--repeats", "1")
    process = _start(here, configs, "mine:slow", *arguments, "--json", "-o", "out")
    counted = here / "counted"
    assert procs.wait_until(lambda: (here / "out" / "ours-0").exists(), seconds=60)
    assert procs.wait_until(lambda: len(counted.read_text().split()) > 34, seconds=60)
    yield process, configs
    process.communicate(timeout=20)


def test_a_killed_benchmark_goes_on_where_it_was(
    here: Path, slow_matrix: tuple[subprocess.Popen[str], list[dict[str, Any]]]
) -> None:
    process, configs = slow_matrix
    process.kill()
    process.wait()
    before = _files(here / "out" / "ours-0")
    assert before
    assert not (here / "out" / "ours-2").exists()
    arguments = ("--limit-batches", "8", "--epochs", "1", "--train-step", "0", "--repeats", "1")
    done = _bench(here, configs, "mine:slow", *arguments, "--json", "-o", "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert _files(here / "out" / "ours-0") == before
    rows = json.loads(done.stdout)["configs"]
    assert [row["repeats"] for row in rows] == [1, 1]
    assert [path.name for path in (here / "out").glob(".*")] == []

    other = _bench(here, configs, "mine:slow", *arguments, "--epochs", "2", "-o", "out")
    assert other.returncode == 2
    assert "ours-0 was run with another epochs (out)" in other.stderr


def test_the_same_command_goes_on_with_one_that_was_killed(here: Path) -> None:
    arguments = ("--limit-batches", "2", "--epochs", "1", "--train-step", "0", "--json")
    whole = _bench(here, [OURS_0, OURS_2], "mine:dataset", *arguments)
    assert (whole.returncode, whole.stderr) == (0, "")
    (first,) = here.glob("bench-[0-9]*")
    # as a kill leaves it: the second configuration not there, and no report
    (first / "bench.json").unlink()
    shutil.rmtree(first / "ours-2")
    before = _files(first / "ours-0")

    other = _bench(here, [OURS_0], "mine:dataset", *arguments, "--epochs", "2")
    assert (other.returncode, other.stderr) == (0, "")  # other runs: a directory of their own
    (second,) = set(here.glob("bench-[0-9]*")) - {first}
    shutil.rmtree(second)

    done = _bench(here, [OURS_0, OURS_2], "mine:dataset", *arguments)
    assert done.returncode == 0
    assert f"{first.name} was killed with 1 of 2 runs done" in done.stderr
    assert _files(first / "ours-0") == before
    assert [row["repeats"] for row in json.loads(done.stdout)["configs"]] == [1, 1]
    assert list(here.glob("bench-[0-9]*")) == [first]

    foreign = here / "bench-9" / ".mine.part"  # nobody said that it is ours
    foreign.mkdir(parents=True)
    assert _bench(here, [OURS_0], "mine:dataset", *arguments).returncode == 0
    assert foreign.is_dir()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])  # a scheduler's is the latter
def test_an_interrupt_shows_what_is_done(
    here: Path,
    slow_matrix: tuple[subprocess.Popen[str], list[dict[str, Any]]],
    how: signal.Signals,
) -> None:
    process, _ = slow_matrix
    process.send_signal(how)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert [row["repeats"] for row in json.loads(out)["configs"]] == [1, 0]
    assert err.startswith("millhead: interrupted (out): ")
    assert len(err.splitlines()) == 1
    assert [path.name for path in (here / "out").glob(".*")] == []


@pytest.fixture
def slow_import(here: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A benchmark whose module is being imported, and the process that does."""
    text = "import os, time\nopen('pid', 'x').write(f'{os.getpid()}\\n')\ntime.sleep(60)\n"
    (here / "mine.py").write_text(text)
    process = _start(here, [OURS_0], "mine:dataset", *SHORT, "-o", "out")
    pid = here / "pid"
    assert procs.wait_until(lambda: pid.exists() and pid.read_text().endswith("\n"), seconds=60)
    yield process, int(pid.read_text())
    process.kill()
    process.communicate(timeout=20)


def test_an_interrupt_before_anything_ran_says_so(
    here: Path, slow_import: tuple[subprocess.Popen[str], int]
) -> None:
    process, importing = slow_import
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    said = "millhead: interrupted (bench): nothing more was measured\n"
    assert (process.returncode, out, err) == (130, "", said)
    assert not procs.is_running(importing)
    assert not (here / "out").exists()


def test_a_killed_benchmark_takes_along_what_imports(
    slow_import: tuple[subprocess.Popen[str], int],
) -> None:
    process, importing = slow_import
    process.kill()
    process.wait()
    assert procs.wait_until(lambda: not procs.is_running(importing))


def test_time_is_bounded(here: Path) -> None:
    arguments = ("--train-step", "60", "--time-limit", "8s", "--repeats", "1", "-o", "out")
    done = _bench(here, [OURS_0, OURS_2], "mine:dataset", *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("millhead: time is up with 2 runs left (--time-limit): -o out")
    assert [path.name for path in (here / "out").iterdir()] == ["bench.json"]


def test_two_benchmarks_do_not_share_a_directory(here: Path) -> None:
    import fcntl

    (here / "out").mkdir()
    held = os.open(here / "out", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        done = _bench(here, [OURS_0], "mine:dataset", *SHORT, "-o", "out")
    finally:
        os.close(held)
    assert done.returncode == 2
    assert "another benchmark writes there (out)" in done.stderr


def test_a_cold_cache_is_measured_beside_a_warm_one(here: Path) -> None:
    (here / "data").write_bytes(b"x" * 10000)
    arguments = ("--cold", "--files", "data", "--json")
    done = _bench(here, [OURS_0], "mine:dataset", *SHORT, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    row = json.loads(done.stdout)["configs"][0]
    assert row["cold"]["total_s"] > 0
    assert row["cold"]["repeats"] == row["repeats"] == 1


def test_a_run_may_end_by_time_but_not_before_some_batches() -> None:
    watched = millhead.watch([1] * 20)
    times = child.train(watched, 2, lambda _batch: None, limit_s=0.0, least_batches=5)
    assert (times.batches, times.cut) == ([5], True)
    times = child.train(watched, 2, lambda _batch: None)
    assert (times.batches, times.cut) == ([20, 20], False)


def test_neither_the_start_nor_the_end_of_workers_is_part_of_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]

    class Batches:
        """Workers that take a while to end."""

        def __iter__(self) -> Batches:
            return self

        def __next__(self) -> int:
            now[0] += 1.0
            return 1

        def __del__(self) -> None:
            now[0] += 100.0

    class Loader:
        """As a watched one."""

        def __iter__(self) -> Batches:
            now[0] += 1000.0  # its workers start
            return Batches()

        def training(self) -> contextlib.AbstractContextManager[None]:
            return contextlib.nullcontext()

    monkeypatch.setattr(child.time, "perf_counter", lambda: now[0])
    times = child.train(Loader(), 1, lambda _batch: None, limit_s=3.0, least_batches=2)
    assert (times.batches, times.ended, now[0]) == ([4], 1004.0, 1104.0)
