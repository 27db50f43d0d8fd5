"""``millhead tune``: what it decides from given numbers, and that it can be run, ended and refused."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import millhead
import pytest
from helpers import procs
from millhead import _core
from millhead.bench import configs
from millhead.bench.runs import OutOfTime
from millhead.tune import command, output
from millhead.tune.measurements import Limits, Setting, Trial
from millhead.tune.search import Failed, NothingFits, Search

COMMAND = os.path.join(sysconfig.get_path("scripts"), "millhead")
GB = 10**9

# ---- a machine made of numbers ---------------------------------------------------------------------


@dataclass
class Plant:
    """A loop whose costs for a batch are known: seconds on a CPU, waiting, handing over, training."""

    cpu: float = 0.0
    blocked: float = 0.0
    transfer: float = 0.0
    step: float = 0.01
    cpus: int = 4
    cause: str = "latency-bound"
    #: What a pause of a slow sample costs a batch, unless something covers it.
    tail: float = 0.0
    noise: float = 0.0
    worker_bytes: int = 10**7
    #: What the workers have in common with the loop.
    shared_bytes: int = 0
    #: What whoever loads keeps, the loop itself if there are no workers.
    kept_bytes: int = 0
    #: What the replay believes of handing over, seen from a run without workers.
    believed_transfer: float = 0.0
    #: By how much so many workers at once make each other wait.
    shared: Callable[[int], float] = lambda workers: 1.0
    fails_from: int = 10**6
    seed: int = 0
    order: list[Setting] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def seconds(self, setting: Setting, transfer: float, at_once: int | None = None) -> float:
        """Of a batch, at the costs of so many workers at once (None: its own)."""
        blocked = self.blocked * self.shared(
            max(setting.workers if at_once is None else at_once, 1)
        )
        load = (self.cpu + blocked) * setting.batch_size / 32
        if setting.workers == 0:
            return load + self.step + self.tail
        computing = self.cpu * setting.batch_size / 32 / min(setting.workers, self.cpus)
        covered = setting.dispatch == "sample" or not setting.in_order or setting.prefetch >= 8
        tail = 0.0 if covered else self.tail
        return max(self.step, load / setting.workers, computing, transfer * setting.workers) + tail

    def rate(self, setting: Setting) -> float:
        """Samples a second, as it is."""
        return setting.batch_size / self.seconds(setting, self.transfer)

    def measure(self, setting: Setting) -> Trial:
        """With noise."""
        self.order.append(setting)
        if setting.workers >= self.fails_from:
            raise Failed("RuntimeError: no more workers")
        noisy = self.rate(setting) * self.random.lognormvariate(0.0, self.noise)
        share = 1 - self.step / self.seconds(setting, self.transfer)
        workers = setting.workers * (self.worker_bytes + self.kept_bytes)
        memory = 2 * 10**8 + self.shared_bytes + (workers if setting.workers else self.kept_bytes)
        workers += self.shared_bytes * setting.workers // (setting.workers + 1)
        return Trial(noisy, share, memory, self.cause, workers)

    def predict(self, measured: Setting, others: list[Setting]) -> list[float]:
        """Without noise; handing over shows only in runs with workers."""
        transfer = self.transfer if measured.workers else self.believed_transfer
        return [one.batch_size / self.seconds(one, transfer, measured.workers) for one in others]


def _search(plant: Plant, most: int = 16, **limits: Any) -> Search:
    chosen = {"batch_sizes": (32,), "memory": 8 * GB, "cpus": plant.cpus, **limits}
    search = Search(plant, Limits(most_workers=most, **chosen))
    search.run()
    return search


def _best_of_all(plant: Plant, most: int = 16) -> float:
    return max(
        plant.rate(Setting(32, workers, prefetch, dispatch, in_order))
        for workers in range(most + 1)
        for prefetch in (1, 2, 4, 8)
        for dispatch in ("batch", "sample")
        for in_order in (True, False)
    )


PLANTS: dict[str, Callable[[], Plant]] = {
    "latency": lambda: Plant(blocked=0.06, step=0.01),
    "latency, more than the limit": lambda: Plant(blocked=1.0, step=0.001),
    "python": lambda: Plant(cpu=0.08, step=0.005, cause="python-bound"),
    "native": lambda: Plant(cpu=0.03, step=0.01, cpus=2, cause="cpu-bound"),
    "both": lambda: Plant(cpu=0.02, blocked=0.05, step=0.004),
    "tail": lambda: Plant(blocked=0.02, tail=0.02, step=0.01, cause="tail-bound"),
    "in memory": lambda: Plant(cpu=0.0003, transfer=0.002, step=0.0, cause="python-bound"),
    "handing over is dear": lambda: Plant(cpu=0.01, transfer=0.004, step=0.001),
    "a disk that serves one": lambda: Plant(blocked=0.016, step=0.005, shared=float),
    "a server that limits": lambda: Plant(blocked=0.06, shared=lambda workers: max(1, workers / 4)),
    "queues": lambda: Plant(blocked=0.06, shared=lambda workers: 1 + (workers - 1) / 4),
    "a disk that seeks": lambda: Plant(
        blocked=0.06, step=0.005, shared=lambda workers: max(1, workers / 3) ** 2
    ),
    "a disk that seeks far": lambda: Plant(
        blocked=0.06, step=0.005, shared=lambda workers: max(1, workers / 2) ** 3
    ),
    "nothing to load": lambda: Plant(step=0.01, cause="device-bound"),
}


def test_only_numbers_of_workers_that_were_predicted_are_tried() -> None:
    # 6 are predicted and give half of it, because any two are in each other's way: twice as many gain
    plant = Plant(blocked=0.06, step=0.01, shared=lambda workers: 1 + (workers > 1))
    search = _search(plant)
    assert max(setting.workers for setting in plant.order) >= 12
    assert {setting.workers for setting in plant.order} <= set(search.limits.ladder())


@pytest.mark.parametrize("name", PLANTS)
def test_it_comes_near_the_best_of_all_in_few_trials(name: str) -> None:
    plant = PLANTS[name]()
    search = _search(plant)
    assert plant.rate(search.best()) >= 0.9 * _best_of_all(plant)
    assert (
        len(plant.order) <= 0.25 * 17 * 4
    )  # of a grid of workers and prefetch, let alone the rest


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "name", ["latency", "python", "tail", "in memory", "queues", "a disk that seeks"]
)
def test_a_little_noise_does_not_lead_it_astray(name: str, seed: int) -> None:
    plant = PLANTS[name]()
    plant.noise, plant.random = 0.02, random.Random(seed)
    search = _search(plant)
    assert plant.rate(search.best()) >= 0.85 * _best_of_all(plant)


def test_it_stops_at_saturation_and_says_so() -> None:
    search = _search(Plant(blocked=0.06, step=0.01))
    assert search.best().workers in (6, 7)
    assert search.why_stopped().startswith("saturated: a batch is loaded in less time than")
    assert max(setting.workers for setting in search.tried) < 16


def test_without_anything_to_load_one_trial_is_enough() -> None:
    plant = Plant(step=0.01)
    assert _search(plant).best() == Setting(32)
    assert len(plant.order) == 1


def test_it_goes_down_where_workers_do_not_help() -> None:
    search = _search(PLANTS["in memory"]())
    assert search.best().workers == 0
    assert search.why_stopped().startswith("workers do not help here")


def test_it_goes_down_from_a_prediction_that_was_too_high() -> None:
    plant = PLANTS["handing over is dear"]()
    search = _search(plant)
    tried = [setting.workers for setting in plant.order]
    assert search.best().workers < max(tried)


def test_workers_that_slow_each_other_down_are_told() -> None:
    search = _search(PLANTS["a disk that seeks"]())
    assert search.best().workers in (3, 4)
    assert search.why_stopped().startswith("more workers are in each other's way: ")


def test_fewer_workers_serve_where_a_disk_serves_one() -> None:
    assert _search(PLANTS["a disk that serves one"]()).best().workers in (1, 2)


def test_diminishing_returns_are_told_with_their_numbers() -> None:
    search = _search(Plant(cpu=0.08, step=0.005, cpus=2, cause="python-bound"))
    assert search.best().workers == 2
    assert search.why_stopped().startswith("diminishing returns: another step gains less than 5%")
    assert "%" in search.why_stopped().split("(")[1]


def test_slow_samples_lead_to_another_dispatch() -> None:
    best = _search(PLANTS["tail"]()).best()
    assert best.dispatch == "sample" or best.prefetch >= 8
    assert best.in_order, "order is given up only for what nothing else gives"


def test_torchs_loader_is_not_given_what_it_does_not_know() -> None:
    plant = PLANTS["tail"]()
    search = _search(plant, loader="torch", streams=True)
    assert {(setting.dispatch, setting.threads) for setting in plant.order} == {("batch", 1)}
    assert search.tried


def test_threads_are_tried_where_a_library_streams() -> None:
    plant = Plant(cpu=0.08, step=0.001)
    _search(plant, streams=True)
    assert any(setting.threads > 1 for setting in plant.order)


def test_noise_beyond_any_difference_is_the_answer() -> None:
    told = 0
    for seed in range(20):
        plant = Plant(cpu=0.0005, step=0.01, noise=0.5, seed=seed, cause="python-bound")
        search = _search(plant)
        if search.is_noisier():
            told += 1
            assert search.best().workers == 0
            assert "noisier than any difference" in search.why_stopped()
            assert "fewest workers" in search.why_stopped()
    assert told > 0


def test_repeats_are_interleaved() -> None:
    repeats = 0
    for seed in range(5):
        plant = Plant(cpu=0.0005, step=0.01, noise=0.3, seed=seed, cause="python-bound")
        _search(plant)
        again = [one for at, one in enumerate(plant.order) if one in plant.order[:at]]
        assert all(one != other for one, other in itertools.pairwise(again))
        repeats += len(again)
    assert repeats > 0


def test_memory_refuses_what_does_not_fit() -> None:
    plant = Plant(blocked=0.2, step=0.001, worker_bytes=10**8)
    search = _search(plant, memory=6 * 10**8)
    assert search.best().workers == 4
    assert max(setting.workers for setting in plant.order) <= 5
    assert "cannot be had" in search.why_stopped()
    assert "MB" in search.why_stopped()


def test_what_the_loop_keeps_without_workers_each_worker_keeps() -> None:
    """One worker takes hardly more than none then, and many take far more than the limit."""
    plant = Plant(blocked=0.2, kept_bytes=120 * 10**6)
    search = _search(plant, memory=9 * 10**8)
    assert search.best().workers == 5
    assert max(setting.workers for setting in plant.order) == 5, "none may go beyond the limit"


def test_memory_that_workers_share_is_not_counted_for_each() -> None:
    """A dataset in memory, forked: half of it is the only worker's share, and more take no more."""
    plant = Plant(blocked=0.06, shared_bytes=4 * GB)
    search = _search(plant, memory=6 * GB)
    assert search.best().workers in (6, 7)
    assert len(plant.order) <= 6


def test_what_was_expected_not_to_fit_is_not_refused_for_ever() -> None:
    plant = Plant(blocked=0.2, kept_bytes=120 * 10**6, shared_bytes=3 * 10**8)
    search = _search(plant, memory=12 * 10**8)
    assert search.best().workers == 5
    assert min(setting.workers for setting in search.refused) == 6


def test_nothing_fits() -> None:
    with pytest.raises(NothingFits, match="takes 200 MB"):
        _search(Plant(), memory=10**8)


def test_the_limit_of_workers_is_kept_and_told() -> None:
    plant = Plant(blocked=0.2, step=0.001)
    search = _search(plant, most=3)
    assert search.best().workers == 3
    assert max(setting.workers for setting in plant.order) == 3
    assert "the limit of 3 workers is reached" in search.why_stopped()


def test_a_setting_that_fails_is_listed_and_the_search_goes_on() -> None:
    search = _search(Plant(blocked=0.2, step=0.001, fails_from=5))
    assert 0 < search.best().workers < 5
    assert "RuntimeError: no more workers" in search.refused.values()


@pytest.mark.parametrize("seed", range(40))
def test_noise_decides_only_after_all_repeats(seed: int) -> None:
    def crowd(workers: int) -> float:
        return max(1, 0.75 * workers)

    search = _search(Plant(blocked=0.04, step=0.005, shared=crowd, noise=0.2, seed=seed))
    cheapest = min(search.tried, key=lambda setting: setting.cost)
    if search.is_noisier():
        assert [len(search.tried[one]) for one in (cheapest, search.fastest())] == [3, 3]
    else:
        gap = search.gap(search.fastest(), cheapest)
        assert gap <= 0.05 or gap > search.bar(search.fastest(), cheapest)


def test_workers_that_all_fail_are_tried_by_halves() -> None:
    plant = Plant(blocked=0.2, step=0.001, fails_from=1)
    search = _search(plant)
    assert search.best().workers == 0
    assert [setting.workers for setting in plant.order] == [0, 16, 8, 4, 2, 1]
    assert search.why_stopped() == "1 worker cannot be had: RuntimeError: no more workers"


def test_a_search_out_of_time_tells_that_nothing_stands_out_of_the_noise() -> None:
    class Short(Plant):
        def measure(self, setting: Setting) -> Trial:
            if len(self.order) == 4:
                raise OutOfTime
            return super().measure(setting)

    plant = Short(blocked=0.003, step=0.01, noise=0.5, seed=1)
    search = Search(plant, Limits((32,), 16, plant.cpus, 8 * GB))
    code, because = command._search(search, argparse.Namespace(time_limit=9.0, target="mine:it"))
    assert (code, search.is_noisier()) == (0, True)
    assert because.startswith("time is up after 9 s") and "noisier than any difference" in because


def test_rates_are_shown_without_powers_of_ten() -> None:
    row = {"repeats": 2, "wait_share": 0.5, "pss_mb": 200.0, "cause": None}
    rates = {"mean": 123456.7, "std": 2345.6}
    assert output._cells({**row, "samples_per_s": rates})[0] == "123457 ±2346"
    rates = {"mean": 12.3456, "std": 0.5678}
    assert output._cells({**row, "samples_per_s": rates})[0] == "12.35 ±0.568"


def test_batch_sizes_are_chosen_from_those_allowed() -> None:
    plant = Plant(blocked=0.01, step=0.01)
    search = _search(plant, batch_sizes=(16, 64, 32))
    assert search.best().batch_size == 64  # the step takes the same whatever its size
    assert {setting.batch_size for setting in plant.order} <= {16, 32, 64}


@pytest.mark.parametrize("most", [0, 1, 2, 7, 16, 100])
def test_the_ladder_reaches_the_limit(most: int) -> None:
    ladder = Limits((32,), most, 6, GB).ladder()
    assert (ladder[0], ladder[-1]) == (0, most)
    assert min(6, most) in ladder
    assert all(a < b <= max(a + 1, a * 1.5) for a, b in itertools.pairwise(ladder))


# ---- files -----------------------------------------------------------------------------------------


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_configuration_gives_the_loaders_arguments(tmp_path: Path) -> None:
    from millhead.torch import DataLoader

    text = "configs:\n- {name: tuned, loader: millhead, batch_size: 4, collate_fn: 'builtins:list'}"
    arguments = millhead.load_config(_write(tmp_path / "c.yaml", text))
    assert arguments == {"batch_size": 4, "collate_fn": list}
    assert list(DataLoader(range(6), **arguments)) == [[0, 1, 2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (
            "configs: [{name: a}, {name: b}]",
            None,
            "2 configurations (PATH): give name=, one of a, b",
        ),
        ("configs: [{name: a}]", "b", "no configuration 'b' (PATH): known: a"),
        ("configs: [{name: a, num_worker: 2}]", None, "did you mean num_workers?"),
        ("configs: [{name: a, collate_fn: 'nowhere:f'}]", None, "no module 'nowhere'"),
    ],
)
def test_a_wrong_file_is_refused_in_a_line(
    text: str, name: str | None, said: str, tmp_path: Path
) -> None:
    path = _write(tmp_path / "c.yaml", text)
    with pytest.raises(ValueError, match="^millhead: ") as wrong:
        millhead.load_config(path, name)
    assert said.replace("PATH", str(path)) in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: .*none\.yaml"):
        millhead.load_config(tmp_path / "none.yaml")


# ---- the command -----------------------------------------------------------------------------------

MINE = """
import os
import time
import torch
from millhead.data import Dummy


def waits():
    return Dummy(length=60, shape=(4,), latency=0.002)


def breaks():
    return Dummy(length=60, shape=(4,), failure_rate=1.0)


class Crowd:
    # Ten times as slow in a worker, and nobody could have known; counts what a trial's workers load.
    def __len__(self):
        return 100000

    def __getitem__(self, index):
        worker = torch.utils.data.get_worker_info() is not None
        if worker:
            with open(f"loaded-{os.getppid()}", "ab") as file:
                file.write(b".")
        time.sleep(0.02 if worker else 0.002)
        return index


def sleeps(batch):
    open("began", "w").close()
    time.sleep(60)
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A directory with datasets; temporary files go there too, and none may be left."""
    _write(tmp_path / "mine.py", MINE)
    (tmp_path / "tmp").mkdir()
    yield tmp_path
    assert list((tmp_path / "tmp").iterdir()) == []


def _environment(here: Path) -> dict[str, str]:
    return {**procs.new_mark()[1], "TMPDIR": str(here / "tmp")}


def _tune(here: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, "tune", *arguments],
        cwd=here,
        env=_environment(here),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def test_a_trial_ends_where_workers_are_far_slower_than_predicted(here: Path) -> None:
    done = _tune(
        here, "mine:Crowd", "--train-step", "0.005", "--batch-size", "16", "--max-workers", "2"
    )
    assert done.returncode == 0, done.stderr
    # two workers load 100 samples a second; of the 2 s that a trial was to take, 16 times as many
    trials = [path.stat().st_size for path in here.glob("loaded-*")]
    assert trials and max(trials) < 1000


SHORT = ("--batch-size", "4", "--train-step", "0.002")


def test_a_real_search_ends_in_a_file_that_loader_and_bench_take(here: Path) -> None:
    from millhead.torch import DataLoader

    done = _tune(here, "mine:waits", *SHORT, "--max-workers", "2", "--json", "-o", "tuned.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert set(report) >= {"best", "samples_per_s", "tried", "stopped_because", "seconds"}
    assert report["tried"][0]["config"]["num_workers"] == 0
    assert all(row["config"]["num_workers"] <= 2 for row in report["tried"])
    assert report["samples_per_s"] > 0
    assert [one.given for one in configs.read(here / "tuned.yaml", "millhead")] == [report["best"]]
    loader = DataLoader(range(8), **millhead.load_config(here / "tuned.yaml"))
    assert loader.num_workers == report["best"]["num_workers"]
    assert sum(len(batch) for batch in loader) == 8
    assert [path.name for path in here.glob(".*")] == []


def test_a_dataset_that_fails_is_told_with_its_sample(here: Path) -> None:
    done = _tune(here, "mine:breaks", *SHORT)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("millhead: ValueError: dummy sample 0 cannot be loaded")
    assert "(mine:breaks)" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_cap_nothing_fits_under(here: Path) -> None:
    done = _tune(here, "mine:waits", *SHORT, "--memory", "20MB")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("millhead: nothing fits: even without workers it takes ")
    assert "of 20 MB (--memory)" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no TARGET (tune)"),
        (["mine:none"], "mine.py has no 'none' (TARGET)"),
        (["mine:waits", "-o", "no/such/file.yaml"], "cannot write: No such file or directory"),
        (["mine:waits", "-o", "tmp"], "cannot write: Is a directory (tmp)"),
        (["mine:waits", "--memory", "much"], "'much' is not a size like 2GB"),
        (["mine:waits", "--batch-size", "4,0"], "'0' is not a whole number of 1 or more"),
        (["mine:waits", "--max-workers", "-1"], "(tune): see millhead tune --help"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    arguments: list[str], said: str, here: Path
) -> None:
    done = _tune(here, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, None], ids=["INT", "TERM", "time"])
def test_it_can_be_ended_and_leaves_nothing(how: signal.Signals | None, here: Path) -> None:
    limit = "5m" if how else "8s"
    mark, environment = procs.new_mark()
    process = subprocess.Popen(
        [COMMAND, "tune", "mine:waits", "--train-step", "mine:sleeps", "--time-limit", limit],
        cwd=here,
        env={**environment, "TMPDIR": str(here / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    if how:
        assert procs.wait_until((here / "began").exists, seconds=60)
        process.send_signal(how)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130 if how else 1, "")
    assert err.startswith(f"millhead: {'interrupted' if how else 'time was up'} ")
    assert len(err.splitlines()) == 1
    assert procs.wait_until(lambda: not procs.marked(mark), seconds=20)


def test_a_replay_of_a_run_that_is_none_is_an_error() -> None:
    with tempfile.TemporaryDirectory() as empty, pytest.raises((millhead.Error, OSError)):
        _core.replay(empty, [(0, 2, True)])
    with pytest.raises(TypeError):
        _core.replay(".", (0, 2, True))  # type: ignore[arg-type]
