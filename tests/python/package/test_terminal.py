"""The command on a terminal: how far it is, bold headings, and neither where they are not wanted."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sysconfig
from pathlib import Path

import millhead
import pytest
from millhead.data import Dummy
from torch.utils.data import DataLoader

COMMAND = os.path.join(sysconfig.get_path("scripts"), "millhead")
BOLD, CLEARED = "\033[1m", "\r\033[K"


def _on_terminal(*arguments: object, **variables: str) -> str:
    """Everything that the command writes to a terminal."""
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    with subprocess.Popen(
        [COMMAND, *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment | {"TERM": "xterm"} | variables,
    ) as child:
        os.close(theirs)
        written = b""
        try:
            while chunk := os.read(ours, 65536):
                written += chunk
        except OSError:  # EIO: nobody has the terminal open any more
            pass
        finally:
            os.close(ours)
    assert child.returncode == 0, written
    return written.decode()


def test_a_long_command_says_how_far_it_is_and_removes_the_line(tmp_path: Path) -> None:
    written = _on_terminal("probe", "--seconds", 4, "--size", "16MiB", tmp_path)
    assert "\rprobing " in written
    assert " s left\033[K" in written
    assert written.rindex(CLEARED) < written.index("memory copy")
    shares = [int(share) for share in re.findall(r"\] +(\d+) %", written)]
    assert shares == sorted(shares), "it goes back"


def test_a_terminal_that_cannot_go_back_gets_no_such_line(tmp_path: Path) -> None:
    written = _on_terminal("probe", "--seconds", 4, "--size", "16MiB", tmp_path, TERM="dumb")
    assert "memory copy" in written
    assert "\033" not in written


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run."""
    path = tmp_path_factory.mktemp("terminal") / "run"
    loader = DataLoader(Dummy(length=64, latency=0.001), batch_size=8)
    for _ in millhead.watch(loader, run=str(path)):
        pass
    return path


def test_headings_are_bold_unless_no_color_is_set(run: Path) -> None:
    assert BOLD in _on_terminal("doctor", run)
    assert "\033" not in _on_terminal("doctor", run, NO_COLOR="1")


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of many ranks, all alike, that takes more than a second to read."""
    path = tmp_path_factory.mktemp("long")
    header = {"event": "header", "t": 0, "schema": "millhead-events", "version": 1, "rank": 0}
    with (path / "events.jsonl").open("w") as file:
        file.write(json.dumps(header) + "\n")
        for batch in range(100_000):
            wait = {"event": "wait", "t": batch * 10**6, "ns": 5 * 10**5, "batch": batch}
            file.write(json.dumps(wait | {"loader": 0, "epoch": 0, "worker": -1}) + "\n")
    for rank in range(1, 20):
        (path / f"events.rank{rank}.jsonl").symlink_to("events.jsonl")
    return path


def test_an_export_says_how_far_it_is(long_run: Path) -> None:
    written = _on_terminal("export", long_run, "--trace", "/dev/null")
    assert "\rexporting " in written
    assert " s left\033[K" in written
    assert written.rindex(CLEARED) < written.index("/dev/null: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_export_leaves_no_half_file(
    long_run: Path, tmp_path: Path, number: int
) -> None:
    out = tmp_path / "trace.json"
    command = [COMMAND, "export", long_run, "--trace", out]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        while not (out.exists() and out.stat().st_size):
            assert child.poll() is None
        child.send_signal(number)
        _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    assert said == ("millhead: interrupted, and nothing left half written (export): run it again\n")
    assert not out.exists()


TARGET = """\
from millhead.data import Dummy

def dataset():
    return Dummy(length=640, latency=0.001)
"""


def test_a_benchmark_says_how_far_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TARGET)
    configs = tmp_path / "configs.json"
    entries = [{"name": name, "batch_size": 8, "num_workers": 0} for name in ("one", "two")]
    configs.write_text(json.dumps({"configs": entries}))
    where = ("--configs", configs, "-o", tmp_path / "out")
    brief = ("--train-step", 0, "--limit-batches", 2, "--epochs", 1)
    written = _on_terminal("bench", f"{tmp_path}/mine.py:dataset", *brief, *where)
    assert f"[{'':20}]   0%, 1 of 2: one" in written
    assert re.search(r"\[={10} {10}\]  50%, about \d+ s left; 2 of 2: two", written)
    assert written.rindex(CLEARED) > written.index("2 of 2")


def test_tuning_says_how_long_it_may_take(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TARGET)
    brief = ("--train-step", 0.001, "--batch-size", 8, "--max-workers", 0, "--time-limit", "60s")
    written = _on_terminal("tune", f"{tmp_path}/mine.py:dataset", *brief)
    assert re.search(r"\[=* *\] +\d+%, at most \d+ s left; trial 1: w0-b8\033\[K", written)


RESULTS = (["bench", "--plan"], ["bench", "--help"], ["tune", "--help"], ["run", "--help"])


@pytest.mark.parametrize("arguments", RESULTS, ids=" ".join)
def test_a_result_that_cannot_be_written_is_told_in_a_line(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == (
        "millhead: cannot write the result: No space left on device (standard output): check where "
        "the output goes\n"
    )


def _with_closed(number: int, command: str) -> subprocess.CompletedProcess[str]:
    script = f"exec {COMMAND} {command} {number}>&-"
    return subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize(
    "arguments", [*RESULTS, ["doctor", "--", "true"], ["plan", "cpus"]], ids=" ".join
)
def test_a_closed_standard_output_is_told_in_a_line(arguments: list[str]) -> None:
    done = _with_closed(1, " ".join(arguments))
    assert done.returncode == 1
    told = "no torch DataLoader" if arguments[0] == "doctor" else "Bad file descriptor"
    assert told in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_closed_standard_error_leaves_the_result_alone() -> None:
    done = _with_closed(2, "bench --plan")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "configs:")
    assert _with_closed(2, "bench --wrong").stdout == ""


@pytest.mark.parametrize("arguments", RESULTS, ids=" ".join)
def test_whoever_has_read_enough_hears_no_complaint(arguments: list[str]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        done = subprocess.run(
            [COMMAND, *arguments], stdout=theirs, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(theirs)
    assert (done.returncode, done.stderr) == (141, "")
