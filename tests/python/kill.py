"""Kills a worker while it is in ``__getitem__``, or the trainer, and measures what follows.

    python kill.py --signal 9 --start fork [--json]
    python kill.py --parent --start spawn [--json]

Without ``--parent``: seconds from the signal to the exception, the pid, signal and sample index
that the message names, and what is left. With it: how long workers outlive a killed trainer.
The exit status is 1 when it took more than 5 s, the message is wrong or anything is left.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import procs

INDEX = 17
LENGTH = 24
BATCH = 2
LIMIT_SECONDS = 5.0
START_SECONDS = 90.0


class Stuck:
    """A dataset that tells its pid and then sleeps when asked for one index."""

    def __init__(self, note: str, index: int | None) -> None:
        self.note = note
        self.index = index

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        if index == self.index:
            scratch = Path(f"{self.note}.part")
            scratch.write_text(str(os.getpid()))
            scratch.rename(self.note)
            time.sleep(600)
        return index


def make_loader(note: str, index: int | None, start: str) -> Any:
    import millhead.torch

    return millhead.torch.DataLoader(
        Stuck(note, index), batch_size=BATCH, num_workers=2, multiprocessing_context=start
    )


def kill_when_stuck(note: str, number: int, killed: dict[str, Any]) -> None:
    """Waits until the worker sleeps in the sample, then sends the signal."""
    if not procs.wait_until(lambda: os.path.exists(note), START_SECONDS):
        return
    time.sleep(0.3)  # let the parent reach its wait
    killed["pid"] = int(Path(note).read_text())
    killed["at"] = time.monotonic()
    os.kill(killed["pid"], number)


def find_numbers(message: str) -> dict[str, int | None]:
    """Pid, signal and sample index that a worker's death message names."""
    pid = re.search(r"pid\(s\) (\d+)", message)
    index = re.search(r"index (\d+)", message)
    by_name = re.search(r"\bSIG([A-Z]+)\b", message)
    by_number = re.search(r"signal:? (\d+)", message)
    number = int(by_number[1]) if by_number else None
    if by_name:
        number = int(getattr(signal, f"SIG{by_name[1]}"))
    return {
        "pid": int(pid[1]) if pid else None,
        "signal": number,
        "index": int(index[1]) if index else None,
    }


def iterate_until_death(note: str, start: str) -> tuple[str, float, list[int]]:
    """Message, time of the exception and pids of the workers."""
    iterator = iter(make_loader(note, INDEX, start))
    pids = [worker.pid for worker in iterator._workers]
    try:
        for _ in iterator:
            pass
    except RuntimeError as error:
        return str(error), time.monotonic(), pids
    raise AssertionError("the loader ended without an exception")


def worker_scene(start: str, number: int, note: str) -> dict[str, Any]:
    """The scene inside its own process: everything opened here is counted here."""
    for _ in make_loader(note, None, start):  # opens what multiprocessing keeps for good
        pass
    gc.collect()
    before = len(procs.descriptors())
    killed: dict[str, Any] = {}
    killer = threading.Thread(target=kill_when_stuck, args=(note, number, killed))
    killer.start()
    message, raised_at, pids = iterate_until_death(note, start)
    killer.join()
    gc.collect()
    procs.wait_until(lambda: not any(procs.is_running(pid) for pid in pids))
    procs.wait_until(lambda: len(procs.descriptors()) <= before)
    return {
        "seconds": raised_at - killed["at"],
        "killed": killed["pid"],
        **find_numbers(message),
        "orphans": sum(procs.is_running(pid) for pid in pids),
        "fds_delta": len(procs.descriptors()) - before,
        "message": message,
    }


def trainer_scene(start: str, note: str) -> None:
    """Loads until it is killed."""
    for _ in make_loader(note, INDEX, start):
        pass


def _scratch_note() -> str:
    import tempfile

    return os.path.join(tempfile.mkdtemp(prefix="millhead-kill-"), "stuck")


def _discard(note: str) -> None:
    Path(note).unlink(missing_ok=True)
    Path(note).parent.rmdir()


def kill_worker(start: str, number: int) -> dict[str, Any]:
    """Runs the worker scene in a process of its own and adds what is left after its end."""
    mark, environment = procs.new_mark()
    note = _scratch_note()
    shared = procs.shared_files()
    try:
        scene = subprocess.run(
            [sys.executable, __file__, "--start", start, "--signal", str(number), "--note", note],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=2 * START_SECONDS,
        )
        if scene.returncode != 0:
            raise SystemExit(f"the scene ended with status {scene.returncode}")
        report: dict[str, Any] = json.loads(scene.stdout.splitlines()[-1])
        procs.wait_until(lambda: not procs.marked(mark))
        procs.wait_until(lambda: procs.shared_files() <= shared, 2)
        report["orphans"] += len(procs.marked(mark))
        report["shm_left"] = len(procs.shared_files() - shared)
        return report
    finally:
        procs.end_marked(mark)
        _discard(note)


def kill_trainer(start: str) -> dict[str, Any]:
    """Kills the trainer while a worker sleeps in ``__getitem__``."""
    mark, environment = procs.new_mark()
    note = _scratch_note()
    trainer = subprocess.Popen(
        [sys.executable, __file__, "--start", start, "--trainer", "--note", note], env=environment
    )
    try:
        if not procs.wait_until(lambda: os.path.exists(note), START_SECONDS):
            raise SystemExit("no worker ever reached the sample")
        if not procs.marked(mark) - {trainer.pid}:
            raise SystemExit("no worker process was found")
        begin = time.monotonic()
        trainer.kill()
        trainer.wait(timeout=10)
        procs.wait_until(lambda: not procs.marked(mark), LIMIT_SECONDS)
        return {"orphans": len(procs.marked(mark)), "seconds": time.monotonic() - begin}
    finally:
        trainer.kill()
        trainer.wait(timeout=10)
        procs.end_marked(mark)
        _discard(note)


def complaints(report: dict[str, Any], number: int, parent: bool) -> list[str]:
    """What is wrong with a report, in words."""
    wrong = [f"{key} is {report[key]}" for key in ("orphans",) if report[key]]
    if report["seconds"] > LIMIT_SECONDS:
        wrong.append(f"it took {report['seconds']:.1f} s")
    if parent:
        return wrong
    wrong += [f"{key} is {report[key]}" for key in ("fds_delta", "shm_left") if report[key] > 0]
    expected = {"index": INDEX, "signal": number, "pid": report["killed"]}
    wrong += [
        f"the message names {key} {report[key]}, not {value}"
        for key, value in expected.items()
        if report[key] != value
    ]
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--signal", type=int, default=9)
    parser.add_argument("--start", choices=("fork", "spawn", "forkserver"), default="fork")
    parser.add_argument("--parent", action="store_true", help="kill the trainer, not a worker")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--note", help=argparse.SUPPRESS)
    parser.add_argument("--trainer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.trainer:
        trainer_scene(options.start, options.note)
        return 0
    if options.note:
        print(json.dumps(worker_scene(options.start, options.signal, options.note)))
        return 0
    if options.parent:
        report = kill_trainer(options.start)
    else:
        report = kill_worker(options.start, options.signal)
    wrong = complaints(report, options.signal, options.parent)
    message = report.pop("message", "")
    report.pop("killed", None)
    if options.json:
        print(json.dumps(report))
    else:
        for key, value in report.items():
            print(f"{key:>10} {value}")
    for text in wrong:
        print(f"kill: {text}", file=sys.stderr)
    if wrong and message:
        print(f"kill: the message was: {message}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
