"""Runs and logs diagnosed from Python and by the command; traces as Chromium's importer wants them."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from millhead import _core

MILLHEAD = shutil.which("millhead") or ""
#: The events a made-up run has, one after the other; times in ms.
Event = dict[str, Any]


def run_events(
    batches: int = 30,
    *,
    rank: int = 0,
    epochs: int = 2,
    fetch: float = 56,
    wait: float = 20,
    step: float = 10,
) -> list[Event]:
    """A run of two workers, each batch fetched in `fetch` ms, mostly blocked."""
    now = 1e6
    events: list[Event] = [
        {"event": "header", "t": now, "schema": "millhead-events", "version": 1, "unix": 1.7e9}
        | {"rank": rank, "world": 2, "host": "here", "pid": 1, "boot": "x"},
        {"event": "loader", "t": now, "loader": 0, "kind": "torch", "workers": 2, "prefetch": 2}
        | {"batch_size": 4, "in_order": True, "cpus": 4, "start": "fork"},
    ]
    for epoch in range(epochs):
        place = {"loader": 0, "epoch": epoch}
        events.append({"event": "setup", "t": now, "ns": 5, **place})
        began = now
        now += 5
        for batch in range(batches):
            work = {**place, "worker": batch % 2, "nth": batch // 2}
            began_fetch = now + wait - fetch - 2
            events += [
                {
                    "event": "fetch",
                    "t": began_fetch,
                    "ns": fetch,
                    "cpu": 1,
                    "delay": 0,
                    "samples": 4,
                }
                | work,
                {"event": "sample", "t": began_fetch, "ns": fetch / 2, "cpu": 1, "index": 7} | work,
                {"event": "collate", "t": now + wait - 2, "ns": 1, "cpu": 1, "delay": 0} | work,
                {"event": "wait", "t": now, "ns": wait, "batch": batch, "samples": 4} | work,
                {"event": "step", "t": now + wait, "ns": step, "cpu": 1, "batch": batch} | place,
            ]
            now += wait + step
        events.append({"event": "epoch", "t": began, "ns": now - began, "batches": batches} | place)
        events += [
            {
                "event": "usage",
                "t": now,
                "pid": 1,
                "role": "main",
                "cpu": now / 2,
                "pss": 7_000_000,
            },
            {"event": "system", "t": now, "cpus": 4, "busy": now, "iowait": 0, "available": 10**9},
            {"event": "gpu", "t": now, "device": 0, "util": 0.4},
            {"event": "phase", "t": now, "ns": 1, "name": "forward", "step": epoch},
            {"event": "error", "t": now, "what": 'it "broke"\n'},
        ]
    events.append({"event": "end", "t": now, "ns": now - 1e6})
    return events


def nanoseconds(event: Event) -> Event:
    return {
        key: round(value * 1e6) if key in ("t", "ns", "cpu", "delay", "busy") else value
        for key, value in event.items()
    }


def write(path: Path, events: list[Event]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(nanoseconds(event)) + "\n" for event in events))
    return path


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    assert MILLHEAD, "the command millhead is not installed"
    return subprocess.run(
        [MILLHEAD, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_python_and_the_command_say_the_same(tmp_path: Path) -> None:
    write(tmp_path / "run" / "events.jsonl", run_events())
    done = command("doctor", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    assert _core.diagnose(tmp_path / "run") + "\n" == done.stdout
    said = json.loads(done.stdout)
    assert said["waits"] == 59
    assert said["wait_s"]["mean"] == pytest.approx(0.02)
    assert said["setup_s"] == pytest.approx(0.025)
    assert said["epochs"] == 2
    assert said["bad_lines"] == 0
    assert sum(said["stages"].values()) == pytest.approx(1)
    assert said["loader"] == {
        "kind": "torch",
        "dataset": "",
        "place": "",
        "workers": 2,
        "prefetch": 2,
        "batch_size": 4,
        "cpus": 4,
    }


def test_blocked_fetches_that_the_loop_waits_for_are_latency(tmp_path: Path) -> None:
    said = json.loads(_core.diagnose(str(write(tmp_path / "events.jsonl", run_events()))))
    assert said["cause"] == "latency-bound"
    # what a source answers at once is not known: something to try, and nothing promised
    assert said["predicted_gain"] == 1
    assert said["possible_gain"] > 1.5
    assert said["fix"].startswith(f"try num_workers={said['fix_settings']['num_workers']} ")


@pytest.mark.parametrize(
    ("name", "text", "error", "said"),
    [
        ("gone", None, FileNotFoundError, "gone"),
        ("empty", "", RuntimeError, "is empty"),
        ("words", "no JSON\n", RuntimeError, "holds no event"),
        (
            "later",
            '{"event": "header", "version": 9}\n',
            RuntimeError,
            "line 1: events of version 9",
        ),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, name: str, text: str | None, error: type[Exception], said: str
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(error, match=said):
        _core.diagnose(path)


def cut_in_the_middle(text: str) -> str:
    return text[: len(text) * 2 // 3]


def glued(text: str) -> str:
    lines = text.split("\n")
    return "\n".join(a + b for a, b in zip(lines[::2], [*lines[1::2], ""], strict=False)) + "\n"


def with_other_keys(text: str) -> str:
    lines = [json.loads(line) for line in text.splitlines()]
    return "".join(json.dumps({"new": [1, {}]} | dict(reversed(e.items()))) + "\n" for e in lines)


@pytest.mark.parametrize(
    ("change", "waits", "bad"),
    [
        (lambda text: text.replace("\n", "\r\n"), 59, 0),
        (lambda text: "\ufeff" + text, 59, 0),
        (lambda text: text.replace("\n", "\n\n", 3), 59, 3),
        (lambda text: text + "\0" * 5000, 59, 1),
        (with_other_keys, 59, 0),
        (glued, 59, None),
        (cut_in_the_middle, None, 1),
    ],
)
def test_damage_is_counted_and_the_rest_is_read(
    tmp_path: Path, change: Callable[[str], str], waits: int | None, bad: int | None
) -> None:
    path = write(tmp_path / "events.jsonl", run_events())
    path.write_text(change(path.read_text()), newline="")
    said = json.loads(_core.diagnose(path))
    assert said["waits"] == waits if waits is not None else 30 < said["waits"] < 59
    assert said["bad_lines"] == bad if bad is not None else said["bad_lines"] > 100


def traced(path: Path, out: Path) -> list[Event]:
    done = command("export", path, "--trace", out)
    assert done.returncode == 0, done.stderr
    events = json.loads(out.read_text())
    assert isinstance(events, list)
    count = int(done.stdout.split(": ")[1].split()[0])
    assert count == sum(event["ph"] != "M" for event in events)
    return events


def check_format(events: list[Event]) -> None:
    """The Trace Event Format: what importers need of each kind of event."""
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    for event in events:
        assert {"name", "ph", "pid", "tid"} <= event.keys()
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert isinstance(event["args"]["name"], str)
            continue
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert (event["pid"], event["tid"]) in named
        elif event["ph"] == "C":
            assert all(isinstance(value, float) for value in event["args"].values())
        else:
            assert event["ph"] == "i"
            assert event["s"] == "p"


def test_a_trace_has_a_row_per_worker_and_every_event(tmp_path: Path) -> None:
    path = write(tmp_path / "run" / "events.jsonl", run_events())
    write(tmp_path / "run" / "events.rank1.jsonl", run_events(3, rank=1))
    events = traced(tmp_path / "run", tmp_path / "trace.json")
    check_format(events)
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert set(rows.values()) == {
        "loader 0: worker 0",
        "loader 0: worker 1",
        "loader 0: loop",
        "loader 0: epochs",
        "phases",
    }
    mine = [event for event in events if event["pid"] == 0]
    for name, count in {"wait": 60, "step": 60, "fetch": 60, "sample": 60, "collate": 60}.items():
        assert sum(event["name"] == name for event in mine) == count
    for name in ("epoch", "setup", "forward", "error", "GPU", "memory of 1", "memory available"):
        assert sum(event["name"] == name for event in mine) == 2, name
    for name in ("CPUs of 1", "CPUs busy"):
        assert [event["args"]["CPUs"] for event in mine if event["name"] == name] == [
            pytest.approx(0.5 if name == "CPUs of 1" else 1)
        ]
    first = json.loads(path.read_text().splitlines()[3])
    traced_first = next(event for event in mine if event["name"] == "fetch")
    assert traced_first["dur"] == pytest.approx(first["ns"] / 1e3)
    assert rows[traced_first["tid"]] == "loader 0: worker 0"


def test_a_trace_of_an_earthmover_log(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text(
        '{"event": "run start", "time": 1710286538.5, "locals": {"num_workers": 1}}\n'
        '{"event": "get-batch end", "time": 1710286540.5, "idx": 3, "pid": 77, "duration": 0.5}\n'
        '{"event": "training start", "batch": 0, "time": 1710286541.0}\n'
        '{"event": "training end", "batch": 0, "time": 1710286541.25, "duration": 0.25}\n'
    )
    events = traced(log, tmp_path / "trace.json")
    check_format(events)
    assert events[0]["args"]["name"] == "dataloader-demo"
    spans = {event["name"]: event for event in events if event["ph"] == "X"}
    assert spans["training"]["dur"] == pytest.approx(250_000)
    assert spans["training"]["ts"] - spans["get-batch"]["ts"] == pytest.approx(1_000_000, abs=1)


def test_the_table_has_a_line_per_epoch_and_one_for_the_whole(tmp_path: Path) -> None:
    write(tmp_path / "events.jsonl", run_events())
    done = command("export", tmp_path, "--csv", tmp_path / "table.csv")
    assert done.returncode == 0, done.stderr
    names, *rows = [line.split(",") for line in (tmp_path / "table.csv").read_text().splitlines()]
    table = {row[0]: dict(zip(names[1:], map(float, row[1:]), strict=True)) for row in rows}
    assert list(table) == ["0", "1", "all"]
    assert table["0"]["batches"] == 30
    assert table["all"]["samples"] == 240
    assert table["1"]["wait_s"] == pytest.approx(29 * 0.02)
    assert table["all"]["first_wait_s"] == pytest.approx(2 * 0.02)
    assert table["all"]["wait_p99_s"] == pytest.approx(0.02)
    assert table["all"]["samples_per_s"] == pytest.approx(240 / (60 * 0.03))
