"""``millhead.StepTimer``: where a step's time goes, what it says about it, and whom ranks wait for."""

from __future__ import annotations

import csv
import json
import math
import re
import signal
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import millhead
import millhead.torch
import pytest
import torch
from helpers import procs
from millhead import StepTimer
from millhead.timer import hang, stragglers
from millhead.timer.stragglers import RankSteps
from tqdm import tqdm

MS = 1_000_000


class Clock:
    """Stands still unless it is told to move."""

    def __init__(self) -> None:
        self.ns = 1000

    def move(self, ms: float) -> None:
        self.ns += int(ms * MS)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic_ns", lambda: made.ns)
    return made


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No launcher of the test's own says anything."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_ERROR_FILE", "MILLHEAD_WATCH"):
        monkeypatch.delenv(name, raising=False)


def _steps(timer: StepTimer, clock: Clock, count: int = 1, **phases: float) -> None:
    """Steps whose phases take so many ms each."""
    for _ in range(count):
        for name, ms in phases.items():
            with timer(name):
                clock.move(ms)
        timer.step()


def _log(timer: StepTimer) -> dict[str, Any]:
    return timer.log(global_step=1, lr=0.5, running_loss=6.0, epoch=2)


def test_importing_millhead_imports_no_torch() -> None:
    done = procs.run_python(
        "import sys, millhead\n"
        "timer = millhead.StepTimer(quiet=True)\n"
        "for _ in timer.loop(range(2)):\n"
        "    with timer.forward: pass\n"
        "print(timer.log(1, 0.1, 2.0, 0)['running_loss'], timer.ranks()['text'])\n"
        "print('torch' in sys.modules)\n"
    )
    assert done.stdout.splitlines() == ["1.0 there is one rank: nobody waits for it", "False"]


# --- the clock --------------------------------------------------------------------------------


def test_a_phase_entered_three_times_counts_as_their_sum(clock: Clock) -> None:
    timer = StepTimer(quiet=True)
    for _ in range(2):
        with timer.data:
            clock.move(5)
        for phase in (timer.forward, timer.backward, timer.update):
            with timer.waiting:
                clock.move(10)
            with phase:
                clock.move(1)
        timer.step()
    line = _log(timer)
    assert line["time/waiting"] == pytest.approx(30)
    assert line["time/total"] == pytest.approx(38)


def test_phases_and_the_rest_add_up_to_the_step(clock: Clock) -> None:
    timer = StepTimer()
    clock.move(100)  # before the first phase: no step yet
    with timer.data:
        clock.move(1)
    clock.move(2)
    with timer.forward:
        clock.move(4)
        with timer("attention"):  # interrupts what it is in
            clock.move(8)
        clock.move(16)
    clock.move(32)
    timer.step()
    assert timer.last == pytest.approx(
        {"data": 0.001, "forward": 0.020, "attention": 0.008, "other": 0.034}
    )
    clock.move(3)  # belongs to the next step
    with timer.data:
        clock.move(1)
    timer.step()
    assert timer.last == pytest.approx({"other": 0.003, "data": 0.001})


def test_a_phase_that_raises_is_closed_and_its_step_is_not_in_the_means(clock: Clock) -> None:
    timer = StepTimer(quiet=True)
    _steps(timer, clock, forward=10)
    with pytest.raises(ZeroDivisionError), timer.forward, timer("inner"):
        clock.move(500)
        _ = 1 / 0
    timer.step()
    _steps(timer, clock, forward=20)
    line = _log(timer)
    assert line["time/forward"] == pytest.approx(15)
    assert line["time/total"] == pytest.approx(15)
    assert (timer.steps, timer.partial_steps) == (3, 1)


def test_ending_a_step_inside_a_phase_is_refused() -> None:
    timer = StepTimer()
    with timer.forward, pytest.raises(RuntimeError, match=r"step\(\) in the phase 'forward'"):
        timer.step()
    timer.step()
    with pytest.raises(StopIteration), timer("outer"), timer.data:
        next(iter([]))
    timer.step()  # nothing is under way any more
    assert timer.steps == 2


def test_the_device_is_waited_for_at_both_ends_of_a_phase_once_it_is_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append("cuda"))
    timer = StepTimer(quiet=True)
    with timer.forward:
        pass
    timer.step()
    assert waits == []  # and nobody has made a context
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert timer.last  # when steps are added up, it is noticed
    with timer.forward:
        assert waits == ["cuda"]
    assert waits == ["cuda"] * 2
    with pytest.raises(ValueError, match="kernel"), timer.forward:
        raise ValueError("a kernel failed: waiting would raise again")
    assert waits == ["cuda"] * 3
    never = StepTimer(sync=False)
    with never.forward:
        pass
    assert waits == ["cuda"] * 3
    own = StepTimer(sync=lambda: waits.append("own"))
    with own.forward:
        pass
    assert waits[3:] == ["own"] * 2


# --- the line ---------------------------------------------------------------------------------


def test_the_line_has_the_keys_of_train_llm(clock: Clock) -> None:
    timer = StepTimer(samples=8, tokens=8 * 1024, quiet=True)
    timer.begin_epoch(batches=10, done=4)
    _steps(timer, clock, count=3, data=10, forward=20, backward=30, update=40)
    line = _log(timer)
    assert list(line) == [
        *("global_step", "lr", "running_loss", "epoch", "epoch_progress", "num_batches_remaining"),
        *("total_gb", "curr_alloc_gb", "peak_alloc_gb", "curr_resv_gb", "peak_resv_gb"),
        *("tokens_per_s", "samples_per_s"),
        *("time/total", "time/data", "time/forward", "time/backward", "time/update", "time/other"),
    ]
    assert line == pytest.approx(
        {
            "global_step": 1,
            "lr": 0.5,
            "running_loss": 2.0,  # of three steps
            "epoch": 2,
            "epoch_progress": 0.7,
            "num_batches_remaining": 3,
            **dict.fromkeys([key for key in line if key.endswith("_gb")], 0.0),
            "tokens_per_s": 1000 * 8 * 1024 / 100,
            "samples_per_s": 80,
            "time/total": 100,
            "time/data": 10,
            "time/forward": 20,
            "time/backward": 30,
            "time/update": 40,
            "time/other": 0,
        }
    )


def test_rates_are_of_all_ranks_and_steps_may_differ(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    timer = StepTimer(samples=8, quiet=True)
    for samples in (None, 2):
        with timer.forward:
            clock.move(100)
        timer.step(samples=samples, tokens=100)
    line = _log(timer)
    assert line["samples_per_s"] == pytest.approx(4 * 10 / 0.2)
    assert line["tokens_per_s"] == pytest.approx(4 * 200 / 0.2)


def test_each_line_begins_anew_and_one_without_steps_divides_by_nothing(clock: Clock) -> None:
    timer = StepTimer(tokens=10, quiet=True)
    empty = _log(timer)
    assert (empty["time/total"], empty["tokens_per_s"], empty["running_loss"]) == (0, 0, 6.0)
    assert empty["epoch_progress"] is None
    _steps(timer, clock, forward=10)
    assert _log(timer)["time/total"] == pytest.approx(10)
    assert _log(timer)["time/total"] == 0
    _steps(timer, clock, forward=30)
    assert _log(timer)["time/total"] == pytest.approx(30)


def test_the_line_ends_the_step_under_way_and_its_own_time_is_the_next_ones(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    timer = StepTimer()
    monkeypatch.setattr(millhead.timer.line_sinks, "print_line", lambda *_: clock.move(700))
    lines = []
    for _ in timer.loop(range(4)):
        with timer.forward:
            clock.move(10)
        lines.append(_log(timer))
    assert [line["time/total"] for line in lines] == pytest.approx([10, 710, 710, 710])
    assert [line["time/other"] for line in lines] == pytest.approx([0, 700, 700, 700])
    assert [line["num_batches_remaining"] for line in lines] == [3, 2, 1, 0]
    assert timer.steps == 4


def test_the_line_for_people_is_as_logging_writes_it(capsys: pytest.CaptureFixture[str]) -> None:
    StepTimer().log(global_step=10, lr=1e-5, running_loss=0.125, epoch=0, norm=1.23456789)
    said = capsys.readouterr().err
    pattern = (
        r"\[rank=0\] \[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] INFO:\{'global_step': 10, .*\}\n"
    )
    assert re.fullmatch(pattern, said)
    assert "'running_loss': 0.125" in said and "'norm': 1.23457}" in said


# --- epochs -----------------------------------------------------------------------------------


def test_a_loop_times_its_loader_and_knows_how_far_it_is(clock: Clock) -> None:
    class Slow:
        def __len__(self) -> int:
            return 4

        def __iter__(self) -> Any:
            clock.move(1000)  # starting workers is no part of a step
            for number in range(4):
                clock.move(5)
                yield number

    timer = StepTimer(quiet=True)
    seen = []
    for epoch in range(2):
        for batch in timer.loop(Slow()):
            seen.append((epoch, batch, timer.epoch_progress, timer.num_batches_remaining))
            with timer.forward:
                clock.move(10)
        assert (timer.epoch_progress, timer.num_batches_remaining) == (1.0, 0)
        clock.move(5000)  # validation: nobody's time
    assert seen == [(e, n, n / 4, 4 - n) for e in range(2) for n in range(4)]
    line = _log(timer)
    assert timer.steps == 8
    assert (line["time/data"], line["time/total"]) == pytest.approx((5 + 1000 / 4, 15 + 1000 / 4))


def test_batches_skipped_on_resume_are_done_but_not_counted(clock: Clock) -> None:
    timer = StepTimer(quiet=True)

    def loader() -> Any:
        for number in range(6):
            clock.move(1000 if number < 4 else 5)
            yield number

    for batch in timer.loop(_Sized(loader(), 6)):
        if batch < 4:
            timer.skip()
            continue
        with timer.forward:
            clock.move(10)
    line = _log(timer)
    assert (line["time/data"], line["time/total"]) == pytest.approx((5, 15))
    assert line["running_loss"] == 3.0  # of two steps
    assert (timer.steps, line["epoch_progress"]) == (2, 1.0)


class _Sized:
    def __init__(self, items: Any, length: int) -> None:
        self.items = items
        self.length = length

    def __iter__(self) -> Any:
        return self.items

    def __len__(self) -> int:
        return self.length


def test_a_resumed_loader_begins_where_it_was() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(10))
    first = millhead.torch.DataLoader(data, batch_size=2)
    batches = iter(first)
    next(batches), next(batches)
    again = millhead.torch.DataLoader(data, batch_size=2)
    again.load_state_dict(first.state_dict())
    timer = StepTimer()
    remaining = []
    for _ in timer.loop(again, done=2):
        remaining.append(timer.num_batches_remaining)
    assert remaining == [3, 2, 1]
    assert timer.epoch_progress == 1.0


def test_progress_bars_know_the_length() -> None:
    timer = StepTimer()
    bar = tqdm(timer.loop([1, 2, 3]), disable=None, file=sys.stderr)
    assert bar.total == 3
    assert list(bar) == [1, 2, 3]
    for _ in timer.loop(number for number in range(2)):  # without a length
        assert timer.num_batches_remaining is None
        assert timer.epoch_progress is None
    assert timer.steps == 5


def test_leaving_a_loop_early_counts_the_last_step_if_it_trained(clock: Clock) -> None:
    timer = StepTimer(quiet=True)
    for number in timer.loop(range(10)):
        with timer.forward:
            clock.move(10)
        if number == 2:
            break
    assert timer.steps == 3
    for number in timer.loop(range(10)):
        if number == 2:
            break
        with timer.forward:
            clock.move(10)
    assert timer.steps == 5
    with pytest.raises(ZeroDivisionError):
        for _ in timer.loop(range(10)):
            with timer.forward:
                clock.move(1000)
                _ = 1 / 0
    assert (timer.steps, timer.partial_steps) == (6, 1)
    assert _log(timer)["time/total"] == pytest.approx(10)


def test_a_step_ended_by_hand_in_a_loop_ends_once(clock: Clock) -> None:
    timer = StepTimer(quiet=True)
    rows = []
    for _ in timer.loop(range(3)):
        with timer.forward:
            clock.move(10)
        timer.step()
        rows.append(timer.last)
    assert timer.steps == 3
    assert [row["forward"] for row in rows] == pytest.approx([0.01] * 3)


# --- files ------------------------------------------------------------------------------------


def test_lines_go_to_files_and_run_objects(clock: Clock, tmp_path: Path) -> None:
    class Run:
        def __init__(self) -> None:
            self.got: list[Any] = []

        def log(self, data: dict[str, Any], *, step: int) -> None:
            self.got.append((step, data["running_loss"]))

    run = Run()
    sinks = [tmp_path / "new" / "log.jsonl", str(tmp_path / "log.csv"), run]
    for start in (0, 2):  # a second program goes on with the same files
        timer = StepTimer(sinks=sinks, quiet=True)
        for number in (start, start + 1):
            _steps(timer, clock, forward=10)
            timer.log(number, 0.1, math.nan if number == 3 else 1.0 * number, 0)
    lines = [json.loads(line) for line in (tmp_path / "new" / "log.jsonl").read_text().splitlines()]
    assert [line["running_loss"] for line in lines] == [0.0, 1.0, 2.0, None]
    with (tmp_path / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["global_step"] for row in rows] == ["0", "1", "2", "3"]
    assert [float(row["time/forward"]) for row in rows] == pytest.approx([10] * 4)
    assert [step for step, _ in run.got] == [0, 1, 2, 3]


def test_a_column_that_came_later_is_told(clock: Clock, tmp_path: Path) -> None:
    timer = StepTimer(sinks=[tmp_path / "log.csv"], quiet=True)
    _log(timer)
    _steps(timer, clock, waiting=1)
    with pytest.warns(millhead.Advice, match=r"log.csv has no column for time/waiting"):
        _log(timer)
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("log_ranks", "files"),
    [
        ("every", {"log.jsonl", "log.rank1.jsonl", "log.rank2.jsonl", "log.rank3.jsonl"}),
        ("local_rank0", {"log.jsonl", "log.rank2.jsonl"}),
        ("rank0", {"log.jsonl"}),
    ],
)
def test_every_rank_one_per_machine_or_one_alone_logs(
    log_ranks: str,
    files: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "4")
        monkeypatch.setenv("LOCAL_RANK", str(rank % 2))
        _log(StepTimer(sinks=[tmp_path / "log.jsonl"], log_ranks=log_ranks))
    assert {path.name for path in tmp_path.iterdir()} == files
    assert capsys.readouterr().err.count("[rank=") == len(files)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"sinks": ["log.txt"]}, ValueError, "ends in .jsonl or .csv, got 'log.txt'"),
        ({"sinks": [3]}, TypeError, r"a path or has a method log\(\), got int"),
        ({"log_ranks": "rank1"}, ValueError, "one of every, local_rank0, rank0, got 'rank1'"),
        ({"hang_after": 0}, ValueError, "hang_after should be more than 0 seconds, got 0"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    arguments: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        StepTimer(**arguments)


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_phases_are_events_of_a_run(
    how: str, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    if how == "environment":
        monkeypatch.setenv("MILLHEAD_WATCH", str(run))
    with StepTimer(run=run if how == "argument" else None, quiet=True) as timer:
        clock.move(1)
        _steps(timer, clock, count=2, data=5, **{'with "quotes"': 7})
    header, *events, end = [
        json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()
    ]
    assert (header["event"], header["schema"]) == ("header", "millhead-events")
    assert end["event"] == "end"
    assert json.loads((run / "run.json").read_text())["schema"] == "millhead-run"
    assert [event["event"] for event in events] == ["phase"] * 4
    assert [event["name"] for event in events] == ["data", 'with "quotes"'] * 2
    assert [event["ns"] for event in events] == [5 * MS, 7 * MS] * 2
    assert [event["step"] for event in events] == [0, 0, 1, 1]
    began = 1000 + MS
    assert [event["t"] - began for event in events] == [0, 5 * MS, 12 * MS, 17 * MS]


@pytest.mark.parametrize("where", ["module", "function"])
def test_a_program_that_does_not_close_its_timer_loses_no_step(where: str, tmp_path: Path) -> None:
    body = """
        timer = StepTimer(run=RUN, quiet=True)
        for _ in timer.loop(range(10)):
            with timer.forward:
                pass
    """
    head = f"from millhead import StepTimer\nRUN = {str(tmp_path)!r}\n"
    ways = {"module": textwrap.dedent(body), "function": f"def main():{body}\nmain()\n"}
    done = procs.run([sys.executable, "-c", head + ways[where]], seconds=60)
    assert (done.returncode, done.stderr) == (0, "")
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    forward = [event["step"] for event in events if event.get("name") == "forward"]
    assert forward == list(range(10))
    assert events[-1]["event"] == "end"


def test_a_watched_loader_is_told_how_much_of_a_step_was_training(
    clock: Clock, tmp_path: Path
) -> None:
    watched = millhead.watch([1, 2, 3], run=tmp_path)
    with StepTimer(run=tmp_path) as timer:
        for _ in timer.loop(watched):
            with timer.forward:
                clock.move(10)
            with timer("augment"):
                clock.move(5)
            with timer.update:
                clock.move(2)
    watched.close()
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    assert [step["train"] for step in steps] == [12 * MS] * 3
    phases = [event["name"] for event in events if event["event"] == "phase"]
    assert phases == ["data", "forward", "augment", "update"] * 3  # all in one file


# --- what goes wrong --------------------------------------------------------------------------

FAILS = """
import sys, millhead.torch, torch.utils.data
from millhead import StepTimer
from millhead.data import Dummy
Loader = {"torch": torch.utils.data.DataLoader, "millhead": millhead.torch.DataLoader}[sys.argv[1]]
timer = StepTimer(quiet=True, error_file=sys.argv[2])
for batch in timer.loop(Loader(Dummy(8, (1,), failure_rate=1.0), batch_size=4, num_workers=1)):
    pass
"""


@pytest.mark.parametrize("loader", ["torch", "millhead"])
def test_an_error_file_has_type_traceback_and_worker(loader: str, tmp_path: Path) -> None:
    file = tmp_path / "error.json"
    done = procs.run([sys.executable, "-c", FAILS, loader, str(file)])
    assert done.returncode == 1
    error = json.loads(file.read_text())
    assert (error["type"], error["worker"]) == ("ValueError", 0)
    assert "dummy sample 0 cannot be loaded" in error["traceback"]
    # as torch's elastic agent reads it
    assert error["message"]["message"].startswith("ValueError: Caught ValueError")
    assert error["message"]["extraInfo"]["py_callstack"] == error["traceback"]
    assert error["message"]["extraInfo"]["timestamp"].isdecimal()


HANGS = """
import pathlib, sys, time, millhead.torch, torch.utils.data
from millhead import StepTimer

class Stuck(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return self.wait_for_ever() if index == 3 else index
    def wait_for_ever(self):
        error = pathlib.Path(sys.argv[2])
        while not (error.exists() and "step 3" in error.read_text()):  # until it was noticed
            time.sleep(0.05)
        return 3

Loader = {"torch": torch.utils.data.DataLoader, "millhead": millhead.torch.DataLoader}[sys.argv[1]]
loader = Loader(Stuck(), batch_size=1, num_workers=2, multiprocessing_context=sys.argv[3])
if __name__ == "__main__":
    with StepTimer(quiet=True, hang_after=1.0, error_file=sys.argv[2]) as timer:
        for batch in timer.loop(loader):
            with timer.forward:
                pass
    print(timer.steps)
"""


@pytest.mark.parametrize(
    ("loader", "start"), [("torch", "fork"), ("millhead", "fork"), ("torch", "spawn")]
)
def test_a_hang_shows_every_stack(loader: str, start: str, tmp_path: Path) -> None:
    script, file = tmp_path / "hangs.py", tmp_path / "error.json"
    script.write_text(HANGS)
    done = procs.run([sys.executable, str(script), loader, str(file), start])
    assert (done.returncode, done.stdout) == (0, "4\n"), done.stderr
    assert not done.left  # type: ignore[attr-defined]
    error = json.loads(file.read_text())
    assert error["type"] == "Hang"
    assert re.search(r"nothing moved for \d+ s \(data, step 3, rank 0\)", done.stderr)
    assert "__next__" in error["traceback"]
    stuck = [each for each in error["workers"] if each["worker"] == 1]
    assert len(stuck) == 1
    if start == "fork":
        assert "wait_for_ever" in stuck[0]["traceback"]
        assert "wait_for_ever" in done.stderr
    else:  # it has no handler: it is left alone
        assert re.match("no Python stack; state [A-Z], in the kernel", stuck[0]["traceback"])


def test_a_signal_that_the_user_handles_is_not_sent(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    got: list[int] = []
    before = signal.signal(hang.SIGNAL, lambda number, _: got.append(number))
    try:
        file = tmp_path / "error.json"
        with StepTimer(hang_after=0.1, error_file=str(file)) as timer, timer.forward:
            assert procs.wait_until(file.exists)
        assert callable(signal.getsignal(hang.SIGNAL))
    finally:
        signal.signal(hang.SIGNAL, before)
    assert got == []
    assert "no Python stack; state " in capfd.readouterr().err


def test_only_errors_are_recorded(tmp_path: Path) -> None:
    timer = StepTimer(error_file=str(tmp_path / "error.json"))
    with pytest.raises(KeyboardInterrupt), timer.forward:
        raise KeyboardInterrupt
    assert not (tmp_path / "error.json").exists()
    unwritable = StepTimer(error_file=str(tmp_path))
    with pytest.raises(ValueError, match="the loss is"), unwritable.forward:  # still itself
        raise ValueError("the loss is not finite")


# --- ranks ------------------------------------------------------------------------------------


def _ranks(*ranks: dict[str, float], steps: int = 10) -> dict[str, Any]:
    """The verdict on ranks that take so many ms in each phase of every step."""
    rows = [{name: ms / 1000 for name, ms in phases.items()} for phases in ranks]
    return stragglers.find(
        [RankSteps(nth, f"node{nth // 2}", [row] * steps) for nth, row in enumerate(rows)]
    )


def _row(data: float, forward: float, backward: float, **more: float) -> dict[str, float]:
    return {"data": data, "forward": forward, "backward": backward, "update": 10.0, **more}


FAST, WAITS = _row(10, 20, 30), _row(10, 20, 80)

STRAGGLERS: dict[str, tuple[list[dict[str, float]], tuple[int | None, str | None, float]]] = {
    "slow data": ([WAITS, WAITS, WAITS, _row(60, 20, 30)], (3, "data", 50)),
    "slow forward": ([WAITS, _row(10, 70, 30), WAITS, WAITS], (1, "forward", 50)),
    "slow update": ([FAST | {"update": 60}, WAITS, WAITS, WAITS], (0, "update", 50)),
    "untimed work": ([FAST | {"other": 50}, WAITS, WAITS, WAITS], (0, "other", 50)),
    "two ranks": ([WAITS, _row(60, 20, 30)], (1, "data", 50)),
    "two ranks that meet in forward": ([_row(10, 70, 30), _row(60, 20, 30)], (1, "data", 50)),
    "four ranks that meet in forward": (
        [_row(10, 70, 30)] * 3 + [_row(60, 20, 30)],
        (3, "data", 50),
    ),
    "all alike": ([FAST] * 4, (None, None, 0)),
    "a little slower": ([WAITS, WAITS, WAITS, _row(12, 20, 78)], (None, None, 0)),
    "ranks that do not meet": ([FAST, FAST, FAST, _row(60, 20, 30)], (None, None, 0)),
    "barriers": (
        [_row(10, 20, 30, waiting=51)] * 3 + [_row(60, 20, 30, waiting=1)],
        (3, "data", 50),
    ),
    "barriers, two slow ones, the slower is named": (
        [
            _row(60, 20, 30, waiting=101),
            _row(10, 120, 30, waiting=51),
            _row(10, 20, 30, waiting=151),
            _row(10, 20, 30, waiting=151),
            _row(10, 20, 30, waiting=151),
        ],
        (1, "forward", 100),
    ),
    "one rank": ([FAST], (None, None, 0)),
}


@pytest.mark.parametrize("case", STRAGGLERS)
def test_the_rank_that_others_wait_for_is_named(case: str) -> None:
    ranks, (rank, phase, ms) = STRAGGLERS[case]
    said = _ranks(*ranks)
    assert (said["rank"], said["phase"]) == (rank, phase)
    assert said["lost_s"] == pytest.approx(ms / 1000)
    assert said["host"] == (None if rank is None else f"node{rank // 2}")


def test_the_sentence_names_rank_host_phase_and_seconds() -> None:
    ranks = [_row(800, 2000, 3700), _row(800, 2000, 3700), _row(800, 2000, 3700)]
    said = _ranks(*ranks, _row(2000, 2000, 2500))
    assert said["text"] == (
        "rank 3 on node1 loads slowest, costing all ranks 18 % of the step (1.2 s of 6.5 s)"
    )


def test_chance_names_nobody() -> None:
    """Ranks that are late in turn, and one that was held up once."""
    everyone = [
        RankSteps(rank, "node", [_row(10 + 40 * (step % 4 == rank), 20, 30) for step in range(40)])
        for rank in range(4)
    ]
    assert stragglers.find(everyone)["rank"] is None
    once = [[_row(10, 20, 30)] * 4 + [_row(10, 20, 230)] + [_row(10, 20, 30)] * 4] * 3
    held_up = [_row(10, 20, 30)] * 4 + [_row(210, 20, 30)] + [_row(10, 20, 30)] * 4
    everyone = [RankSteps(rank, "node", rows) for rank, rows in enumerate([*once, held_up])]
    said = stragglers.find(everyone)
    assert said["rank"] is None
    assert said["ranks"][3]["lost_s"] == pytest.approx(200 / 8)  # ms here: it is told all the same


def test_ranks_with_fewer_steps_are_compared_over_those_they_have() -> None:
    slow = [_row(500, 20, 30)] * 3 + [_row(60, 20, 30)] * 5
    said = stragglers.find(
        [RankSteps(0, "a", [WAITS] * 5), RankSteps(1, "b", slow), RankSteps(2, "c", [WAITS] * 6)]
    )
    assert (said["steps"], said["rank"], said["lost_s"]) == (5, 1, 50)


@pytest.fixture(scope="module")
def ranks_report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """What four ranks of torchrun measured."""
    directory = tmp_path_factory.mktemp("timer")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    program = ["--nproc-per-node=4", str(procs.HERE / "timer_ranks.py"), str(directory)]
    done = procs.run([*torchrun, *program], seconds=180, env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert not done.left  # type: ignore[attr-defined]
    return directory, json.loads((directory / "report.json").read_text())


@pytest.mark.limit(200)
@pytest.mark.parametrize(
    ("case", "phase"),
    [
        ("data", "data"),
        ("forward", "forward"),
        ("update", "update"),
        ("data, barriers", "data"),
        ("forward, barriers", "forward"),
    ],
)
def test_real_ranks_name_the_slow_one(
    case: str, phase: str, ranks_report: tuple[Path, dict[str, Any]]
) -> None:
    everyone = ranks_report[1][case]
    said = everyone[0]["said"]
    assert all(each["said"]["text"] == said["text"] for each in everyone)
    assert (said["rank"], said["phase"]) == (2, phase), said
    assert said["barriers"] == ("barriers" in case)
    assert re.match(rf"rank 2 on {re.escape(said['host'])} .*costing all ranks \d+ %", said["text"])
    if said["barriers"]:  # the slow rank comes last and finds all others there
        waits = [each["line"]["time/waiting"] for each in everyone]
        assert min(waits) == waits[2]


@pytest.mark.limit(200)
def test_real_ranks_write_files_of_their_own(ranks_report: tuple[Path, dict[str, Any]]) -> None:
    directory = ranks_report[0] / "data"
    assert sorted(path.name for path in directory.iterdir()) == [
        *("all.jsonl", "all.rank1.jsonl", "all.rank2.jsonl", "all.rank3.jsonl"),
        *("events.jsonl", "events.rank1.jsonl", "events.rank2.jsonl", "events.rank3.jsonl"),
        "one.csv",
        "run.json",
    ]
    header = json.loads((directory / "events.rank3.jsonl").read_text().splitlines()[0])
    assert (header["rank"], header["world"]) == (3, 4)
