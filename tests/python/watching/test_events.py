"""Writing events: many writers, awkward strings, disks that are full, runs and their environment."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import millhead
import pytest
from millhead import _environment
from millhead.watching.event_files import LINE_BYTES, EventLog, line
from millhead.watching.recording import Recording

WRITERS, LINES = 64, 200


def _events(path: str | Path) -> list[dict[str, Any]]:
    """Every line of a file, which must be one JSON object each."""
    return [json.loads(text) for text in Path(path).read_bytes().split(b"\n")[:-1]]


def _write_many(path: str, writer: int, begin: Any) -> None:
    log = EventLog(path)
    begin.wait()
    for number in range(LINES):
        # Long and short ones, several at once
        some = [line("x", writer=writer, number=number, part=p, pad="ü" * number) for p in (0, 1)]
        log.write("".join(some))


def test_lines_of_many_processes_never_mix(tmp_path: Path) -> None:
    path = str(tmp_path / "events.jsonl")
    context = multiprocessing.get_context("fork")
    begin = context.Event()
    writers = [
        context.Process(target=_write_many, args=(path, number, begin)) for number in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    begin.set()
    for writer in writers:
        writer.join()
    events = _events(path)
    assert [event["event"] for event in events].index("header") == 0
    assert sum(event["event"] == "header" for event in events) == 1
    found = {(e["writer"], e["number"], e["part"]) for e in events[1:]}
    assert len(events) == 1 + len(found) == 1 + 2 * WRITERS * LINES
    assert [path.name for path in tmp_path.iterdir()] == ["events.jsonl"]


@pytest.mark.parametrize(
    "text",
    ['"', "\\", "line\nbreak", "\x00\x1f\x7f", "ü 漢 🙂", "\ud800", "a" * 100_000, "\x01" * 9_000],
    ids=["quote", "backslash", "newline", "control", "unicode", "surrogate", "long", "escaped"],
)
def test_any_string_makes_one_valid_short_line(text: str) -> None:
    written = line("error", what=text, worker=-1)
    assert written.count("\n") == 1 and len(written.encode()) <= LINE_BYTES
    event = json.loads(written)
    assert event["worker"] == -1
    assert event["what"] == text or event["what"] == text[: len(event["what"]) - 3] + "..."


def test_values_that_json_has_not_and_none() -> None:
    event = json.loads(line("x", 5, inf=float("inf"), nan=float("nan"), none=None, yes=True))
    assert event == {"event": "x", "t": 5, "inf": None, "nan": None, "yes": True}


def test_a_batch_of_many_lines_is_written_in_whole_lines(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    lines = [line("x", number=number, pad="-" * 300) for number in range(1000)]
    log.write("".join(lines))
    assert [event["number"] for event in _events(log.path)[1:]] == list(range(1000))
    log.close()


@pytest.mark.parametrize("where", ["/dev/full", "/proc/no/such/events.jsonl"])
def test_what_cannot_be_written_is_said_once_and_counted(where: str) -> None:
    log = EventLog(where)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            log.event("x")
    assert [warning.category for warning in caught] == [millhead.Advice]
    assert f"({where})" in str(caught[0].message)
    assert log.lost == 3
    log.close()


def test_a_log_stops_at_its_limit(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", limit=10_000)
    some = [line("x", number=number).encode() for number in range(1000)]
    with pytest.warns(millhead.Advice, match="has 0 MiB already"):
        list(map(log.write, some))
    assert len(_events(log.path)) + log.lost == 1001
    log.close()


@pytest.mark.parametrize("memory", [False, True], ids=["file", "memory"])
def test_a_forked_child_writes_into_the_same_log(tmp_path: Path, memory: bool) -> None:
    log = EventLog(None if memory else tmp_path)
    log.event("parent")
    child = os.fork()
    if child == 0:
        os.closerange(3, 100)  # as a daemon does
        other = os.open("/dev/null", os.O_RDONLY)  # and its number is another file's now
        log.event("child", pid=os.getpid())
        os.close(other)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    log.event("parent")
    found = [(event["event"], event.get("pid")) for event in _events(log.path)]
    assert found == [
        ("header", os.getpid()),
        ("parent", None),
        ("child", child),
        ("parent", None),
    ]
    log.close()


def test_a_run_has_its_environment_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--token", "s3cret", "--api-key=x", "--lr=1"])
    run = Recording(tmp_path / "run", {"num_workers": 2})
    run.log.event("x")
    run.describe()
    run.close()
    described = json.loads((tmp_path / "run" / "run.json").read_text())
    assert described["argv"] == ["train.py", "--token", "***", "--api-key=***", "--lr=1"]
    assert described["configuration"] == {"num_workers": 2}
    assert described["environment"]["fingerprint"] == _environment.environment()["fingerprint"]
    assert described["environment"]["versions"]["millhead"] == millhead.__version__
    events = _events(tmp_path / "run" / "events.jsonl")
    assert [event["event"] for event in events] == ["header", "x", "end"]
    assert events[0]["schema"] == "millhead-events" and events[0]["version"] == 1


def test_ranks_have_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    run = Recording(tmp_path)
    run.log.event("x")
    run.close()
    header = _events(tmp_path / "events.rank3.jsonl")[0]
    assert (header["rank"], header["world"]) == (3, 4)


def test_the_events_of_an_earlier_run_are_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(line("header", pid=2**22 + 1, boot=_environment.boot_id()) + line("old"))
    run = Recording(tmp_path, fresh=True)
    run.log.event("new")
    run.close()
    assert [event["event"] for event in _events(path)] == ["header", "new", "end"]
    assert [event["event"] for event in _events(tmp_path / "events.jsonl.1")] == ["header", "old"]


def test_the_fingerprint_is_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = _environment.environment()["fingerprint"]
    monkeypatch.setattr(sys, "argv", ["another"])
    monkeypatch.chdir(tmp_path)
    assert _environment.environment()["fingerprint"] == before
    monkeypatch.setattr(_environment, "_cpu_model", lambda: "another")
    assert _environment.environment()["fingerprint"] != before
