"""``millhead doctor -- COMMAND``: a program is run and watched, and the verdict follows."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import sysconfig
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import procs

COMMAND = os.path.join(sysconfig.get_path("scripts"), "millhead")

# A program that writes the events of a loop that waits for slow samples, without any torch; then
# what a test adds
RECORDS = """
    import json, os, signal, sys, time
    MS = 1_000_000
    with open(os.path.join(os.environ["MILLHEAD_WATCH"], "events.jsonl"), "a") as file:
        def write(event, t, **keys):
            file.write(json.dumps({"event": event, "t": t, **keys}) + "\\n")
        write("header", 0, schema="millhead-events", version=1, unix=0.0, pid=os.getpid(),
              host="here", rank=0, world=1, boot="")
        write("loader", 0, loader=0, kind="torch", workers=1, prefetch=2, batch_size=4,
              in_order=True, persistent=False, pin_memory=False, start="fork",
              dispatch="batch", cpus=8)
        write("setup", 0, ns=MS, cpu=MS, loader=0, epoch=0)
        for n in range(100):
            t = (1 + 41 * n) * MS
            at = dict(loader=0, epoch=0, worker=0, nth=n)
            write("fetch", t, ns=40 * MS, cpu=MS // 10, delay=0, pid=os.getpid(), read=0,
                  samples=4, probes=0, native=0, **at)
            write("collate", t + 40 * MS, ns=MS // 10, cpu=MS // 10, delay=0, **at)
            write("wait", t, ns=40 * MS, cpu=0, delay=0, batch=n, samples=4, **at)
            write("step", t + 40 * MS, ns=MS, cpu=MS, delay=0, loader=0, epoch=0, batch=n)
        write("epoch", 41 * 100 * MS, ns=41 * 100 * MS, loader=0, epoch=0, batches=100,
              complete=True)
        write("end", 41 * 100 * MS, ns=41 * 100 * MS)
    print("printed by the program", flush=True)
"""


def _program(directory: Path, more: str = "", records: str = RECORDS) -> list[str]:
    path = directory / "program.py"
    path.write_text(textwrap.dedent(records) + textwrap.dedent(more))
    return [sys.executable, str(path)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs are kept that no -o sends elsewhere."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "millhead" / "runs"


def _doctor(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs it with a directory for temporary files of its own, which it must leave empty."""
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    command = [COMMAND, "doctor", *arguments]
    done = procs.run(command, seconds=60, env={"TMPDIR": str(scratch)}, cwd=tmp_path)
    assert list(scratch.iterdir()) == []
    return done


def _one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    assert done.returncode == code, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("millhead: ") and "(doctor): " in line
    return line


def test_the_verdict_follows_what_the_program_printed(tmp_path: Path) -> None:
    done = _doctor(tmp_path, "--", *_program(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "printed by the program\n"  # standard output is no terminal here
    assert done.stderr.startswith("latency-bound\n")


def test_json_is_all_there_is_on_standard_output(tmp_path: Path) -> None:
    done = _doctor(tmp_path, "--json", "--", *_program(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["cause"] == "latency-bound" and found["vantage"] == "inside"
    assert done.stderr == "printed by the program\n"


def test_a_program_is_told_to_watch_and_that_it_is_sampled(tmp_path: Path) -> None:
    more = f"""
        shown = {{name: os.environ.get(name) for name in
                 ("MILLHEAD_WATCH_HOOKS", "MILLHEAD_SAMPLED", "PYTHONPATH")}}
        open({str(tmp_path / "shown")!r}, "w").write(json.dumps(shown))
    """
    assert _doctor(tmp_path, "--", *_program(tmp_path, more)).returncode == 0
    shown = json.loads((tmp_path / "shown").read_text())
    assert shown["MILLHEAD_WATCH_HOOKS"] == "1" and shown["MILLHEAD_SAMPLED"] == "1"
    assert shown["PYTHONPATH"].split(os.pathsep)[0].endswith("_startup")


def test_a_program_is_sampled_while_it_runs(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    done = _doctor(tmp_path, "-o", str(kept), "--", *_program(tmp_path, "time.sleep(1.5)"))
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in (kept / "events.jsonl").read_text().splitlines()]
    names = {event["event"] for event in events}
    assert {"usage", "system"} <= names


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("sys.exit(3)", "the program failed with exit code 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "the program was ended by signal 9"),
    ],
)
def test_a_program_that_fails_is_judged_too(tmp_path: Path, more: str, told: str) -> None:
    done = _doctor(tmp_path, "--", *_program(tmp_path, more))
    assert done.returncode == 1
    assert told in done.stderr.splitlines()[-1]
    assert "latency-bound" in done.stderr


def test_a_program_that_fails_before_its_first_batch(tmp_path: Path) -> None:
    done = _doctor(tmp_path, "--", *_program(tmp_path, "raise SystemExit(4)", records=""))
    assert "failed with exit code 4 before any batch" in _one_line(done, 1)


def test_a_program_without_a_loader(tmp_path: Path) -> None:
    line = _one_line(_doctor(tmp_path, "--json", "--", "true"), 1)
    assert "no torch DataLoader was iterated by 'true'" in line


# ---- where the run is kept -----------------------------------------------------------------------


def test_a_run_is_kept_where_asked_and_never_written_again(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    assert _doctor(tmp_path, "-o", str(kept), "--", *_program(tmp_path)).returncode == 0
    before = (kept / "events.jsonl").read_bytes()
    again = _doctor(tmp_path, "-o", str(kept), "--", *_program(tmp_path))
    assert "already holds a run" in _one_line(again, 2)
    assert again.stdout == ""  # the program did not run
    assert (kept / "events.jsonl").read_bytes() == before


def test_without_o_the_run_is_kept_and_the_next_step_said(tmp_path: Path, own_cache: Path) -> None:
    done = _doctor(tmp_path, "--", *_program(tmp_path))
    (kept,) = own_cache.iterdir()
    assert "program" in kept.name
    assert f"millhead report {kept} -o report.html" in done.stderr.splitlines()[-1]
    assert procs.run([COMMAND, "doctor", str(kept)], seconds=60).stdout.startswith("latency-bound")


def test_the_oldest_runs_make_room(tmp_path: Path, own_cache: Path) -> None:
    for day in range(10, 30):
        (own_cache / f"202601{day}-120000-train-x").mkdir(parents=True)
    (own_cache / "mine").mkdir()
    assert _doctor(tmp_path, "--", *_program(tmp_path)).returncode == 0
    names = sorted(path.name for path in own_cache.iterdir())
    assert len(names) == 11 and "mine" in names
    assert names[0].startswith("20260121")


def test_a_run_without_events_is_not_kept(tmp_path: Path, own_cache: Path) -> None:
    _one_line(_doctor(tmp_path, "--", "true"), 1)
    assert list(own_cache.iterdir()) == []


# ---- how a program may be named ----------------------------------------------------------------------


def test_a_script_or_a_command_needs_no_dashes(tmp_path: Path) -> None:
    python, script = _program(tmp_path)
    for words in ([script], [python, script], ["--", script]):
        done = _doctor(tmp_path, *words)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "printed by the program\n"
        assert done.stderr.startswith("latency-bound\n")


def test_a_folder_called_like_a_command_does_not_hide_it(tmp_path: Path) -> None:
    (tmp_path / "true").mkdir()
    line = _one_line(_doctor(tmp_path, "true"), 1)
    assert "no torch DataLoader was iterated by 'true'" in line
    (tmp_path / "true" / "events.jsonl").touch()  # now it is a run, which is empty
    assert "iterated" not in _one_line(_doctor(tmp_path, "true"), 1)


def test_a_script_gets_its_own_options(tmp_path: Path) -> None:
    _, script = _program(tmp_path, "print(sys.argv[1:], flush=True)")
    done = _doctor(tmp_path, script, "--json", "-o", "x", "--help")
    assert done.stdout.splitlines()[1] == "['--json', '-o', 'x', '--help']"


def test_a_misspelt_script_is_answered_with_the_one_that_is_there(tmp_path: Path) -> None:
    _program(tmp_path)
    line = _one_line(_doctor(tmp_path, str(tmp_path / "progam.py")), 2)
    assert line.endswith(f"did you mean '{tmp_path / 'program.py'}'?")


def test_a_missing_command_is_noticed_before_the_program_runs(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python3"  # an environment whose command was removed
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    (tmp_path / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    program = "import sys; from millhead.__main__ import main; sys.exit(main())"
    command = [str(python), "-c", program, "doctor", "--", *_program(tmp_path)]
    path = os.pathsep.join(sys.path)
    done = procs.run(command, seconds=60, env={"PATH": "/nowhere", "PYTHONPATH": path})
    assert f"no command millhead beside {python}" in _one_line(done, 2)
    assert done.stdout == ""


def test_a_probe_of_the_storage_goes_into_the_verdict(tmp_path: Path) -> None:
    probe = tmp_path / "probe.json"
    probe.write_text('{"tiers": [{"name": "disk sequential", "mb_per_s": 140}]}')
    done = _doctor(tmp_path, "--probe", str(probe), "--", *_program(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "the probe measured 140 MB/s for one sequential" in " ".join(done.stderr.split())


def test_a_probe_that_is_none_is_told_before_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("no JSON")
    for name in ("other", "gone"):
        done = _doctor(tmp_path, "--probe", str(tmp_path / name), "--", *_program(tmp_path))
        assert "millhead probe PATH --json > FILE" in _one_line(done, 2)
        assert done.stdout == ""


def test_a_directory_that_cannot_be_written_is_told_before_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = _doctor(tmp_path, "-o", str(tmp_path / "file" / "run"), "--", *_program(tmp_path))
    assert "cannot write into" in _one_line(done, 2)
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--"], "no program to run"),
        (["-o", "--", "true"], "option '-o' needs a value"),
        (["--pid", "1", "--", "true"], "option '--pid' does not go with a command"),
        (["--jsn", "--", "true"], "unknown option '--jsn' (doctor): did you mean '--json'?"),
        (["trian.py"], "no script 'trian.py'"),
        (["--", "no-such-command-here"], "cannot start 'no-such-command-here'"),
    ],
)
def test_a_wrong_request_is_one_line(tmp_path: Path, arguments: list[str], told: str) -> None:
    assert told in _one_line(_doctor(tmp_path, *arguments), 2)


# ---- signals -------------------------------------------------------------------------------------

# Counts what it gets, says so to a file, and ends like a program that was interrupted
COUNTS = """
    got = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: got.append(number))
    print("waiting", flush=True)
    while not got:
        time.sleep(0.01)
    time.sleep(0.5)
    open(sys.argv[1], "w").write(json.dumps(got))
    sys.exit(130 if signal.SIGINT in got else 7)
"""


def _until(file: int, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        piece = os.read(file, 4096)
        assert piece
        seen += piece
    return seen


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 1)])
def test_a_signal_goes_on_to_the_program_and_the_verdict_is_given(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    got = tmp_path / "got"
    command = [COMMAND, "doctor", "--", *_program(tmp_path, COUNTS), str(got)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as doctor:
        assert doctor.stdout is not None
        _until(doctor.stdout.fileno(), b"waiting")
        doctor.send_signal(number)
        _, told = doctor.communicate(timeout=60)
    assert doctor.returncode == code
    assert json.loads(got.read_text()) == [number]
    assert b"latency-bound" in told


def test_control_c_at_a_terminal_reaches_the_program_once(tmp_path: Path) -> None:
    got = tmp_path / "got"
    command = [COMMAND, "doctor", "--", *_program(tmp_path, COUNTS), str(got)]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(command[0], command)
    try:
        _until(terminal, b"waiting")
        os.write(terminal, b"\x03")
        seen = _until(terminal, b"seen from inside")
        assert b"latency-bound" in seen
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    finally:
        os.close(terminal)
    assert json.loads(got.read_text()) == [signal.SIGINT]


# Leaves the terminal, and looks for a while what comes nevertheless
LEAVES = """
    os.setsid()
    got = []
    signal.signal(signal.SIGINT, lambda number, _: got.append(number))
    print("waiting", flush=True)
    time.sleep(2)
    open(sys.argv[1], "w").write(json.dumps(got))
"""


def test_what_a_terminal_tells_is_not_told_again(tmp_path: Path) -> None:
    got = tmp_path / "got"
    command = [COMMAND, "doctor", "--", *_program(tmp_path, LEAVES), str(got)]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(command[0], command)
    try:
        _until(terminal, b"waiting")
        os.write(terminal, b"\x03")
        _until(terminal, b"seen from inside")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    finally:
        os.close(terminal)
    assert json.loads(got.read_text()) == []


def test_interrupted_before_any_batch(tmp_path: Path) -> None:
    program = _program(tmp_path, "import time; print('on', flush=True); time.sleep(60)", "")
    command = [COMMAND, "doctor", "--", *program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as doctor:
        assert doctor.stdout is not None
        _until(doctor.stdout.fileno(), b"on")
        doctor.send_signal(signal.SIGINT)
        _, told = doctor.communicate(timeout=60)
    assert doctor.returncode == 130
    assert b"was interrupted before any batch" in told.splitlines()[-1]


# ---- the real thing ------------------------------------------------------------------------------

TRAINING = """
    import time
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset):
        def __len__(self):
            return 120

        def __getitem__(self, index):
            time.sleep(0.02)
            return torch.ones(8)

    if __name__ == "__main__":
        torch.set_num_threads(1)
        for batch in DataLoader(Slow(), batch_size=4, num_workers=2):
            batch.sum()
        print("trained")
"""


def test_a_torch_program_is_watched_without_a_change(tmp_path: Path) -> None:
    began = time.monotonic()
    done: Any = _doctor(tmp_path, "--json", "--", *_program(tmp_path, "", TRAINING))
    assert done.returncode == 0, done.stderr
    assert "trained" in done.stderr
    found = json.loads(done.stdout)
    assert found["cause"] != "device-bound", found  # which one is bench/truth.py's to judge
    assert found["vantage"] == "inside"
    assert found["device_wait_share"] > 0.5
    assert found["waits"] == 29
    assert found["wait_s"]["max"] < time.monotonic() - began
