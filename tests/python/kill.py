"""Kills a worker while it is in ``__getitem__``, its template or the trainer, and measures what
follows.

    python kill.py --signal 9 --start fork [--json]
    python kill.py --victim template [--json]
    python kill.py --parent --start template [--json]

``--start template`` is the spawn context where the workers must come from a template; spawn and
forkserver take whatever the loader does for those contexts.

A worker as victim: seconds from the signal to the exception, the pid, signal and sample index that
the message names, and what is left. The template as victim: seconds from the signal to the epoch's
end, which must be regular or an exception, the signal that the advice of the next epoch names (a
new template must have started it), and what is left. With ``--parent``: how long workers and
template outlive a killed trainer.
The exit status is 1 when it took more than 5 s, the message is wrong or anything is left.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from helpers import procs

INDEX = 17
LENGTH = 24
BATCH = 2
LIMIT_SECONDS = 5.0
START_SECONDS = 90.0


class Stuck:
    """A dataset that tells its pid and then sleeps, until let go, when asked for one index."""

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
            procs.wait_until(lambda: os.path.exists(f"{self.note}.go"), 600)
        return index


def make_loader(note: str, index: int | None, start: str) -> Any:
    import millhead.torch

    context = "spawn" if start == "template" else start
    return millhead.torch.DataLoader(
        Stuck(note, index), batch_size=BATCH, num_workers=2, multiprocessing_context=context
    )


def begin(loader: Any, start: str) -> tuple[Any, list[int]]:
    """An iterator, and the processes that serve it: workers, then the template if there is one."""
    iterator = iter(loader)
    how = loader.stats()["start"]
    assert start != "template" or how == "template", f"the workers started by {how}"
    pids = [worker.pid for worker in iterator._workers]
    if how == "template":
        pids.append(loader._engine.template.pid)
    return iterator, pids


def kill_when_stuck(
    note: str, number: int, killed: dict[str, Any], victim: int | None = None
) -> None:
    """Waits until the worker sleeps in the sample, then sends it or the victim the signal."""
    if not procs.wait_until(lambda: os.path.exists(note), START_SECONDS):
        return
    time.sleep(0.3)  # let the parent reach its wait
    killed["pid"] = int(Path(note).read_text()) if victim is None else victim
    killed["at"] = time.monotonic()
    os.kill(killed["pid"], number)


def kill_template_when_stuck(note: str, number: int, killed: dict[str, Any], template: int) -> None:
    """Kills the template while a worker sleeps in the sample, then lets the worker go on."""
    kill_when_stuck(note, number, killed, template)
    procs.wait_until(lambda: not procs.is_running(template))
    time.sleep(0.3)  # for the trainer to notice, if it wants to
    Path(f"{note}.go").touch()


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
    """Message, time of the exception and pids of the workers and their template."""
    iterator, pids = begin(make_loader(note, INDEX, start), start)
    try:
        for _ in iterator:
            pass
    except RuntimeError as error:
        return str(error), time.monotonic(), pids
    raise AssertionError("the loader ended without an exception")


def warm_up(note: str, start: str) -> int:
    """Opens what multiprocessing keeps for good; the number of descriptors then."""
    for _ in make_loader(note, None, start):
        pass
    gc.collect()
    return len(procs.descriptors())


def what_is_left(pids: list[int], before: int) -> dict[str, int]:
    """Processes and descriptors of a scene that has ended."""
    gc.collect()
    procs.wait_until(lambda: not any(procs.is_running(pid) for pid in pids))
    procs.wait_until(lambda: len(procs.descriptors()) <= before)
    return {
        "orphans": sum(procs.is_running(pid) for pid in pids),
        "fds_delta": len(procs.descriptors()) - before,
    }


def worker_scene(start: str, number: int, note: str) -> dict[str, Any]:
    """The scene inside its own process: everything opened here is counted here."""
    before = warm_up(note, start)
    killed: dict[str, Any] = {}
    killer = threading.Thread(target=kill_when_stuck, args=(note, number, killed))
    killer.start()
    message, raised_at, pids = iterate_until_death(note, start)
    killer.join()
    return {
        "seconds": raised_at - killed["at"],
        "killed": killed["pid"],
        **find_numbers(message),
        **what_is_left(pids, before),
        "message": message,
    }


def iterate_past_death(note: str, start: str, number: int) -> tuple[dict[str, Any], list[int], str]:
    """An epoch in which the template dies and the epoch after: report, pids and the advice."""
    loader = make_loader(note, INDEX, start)
    iterator, pids = begin(loader, start)
    killed: dict[str, Any] = {}
    killer = threading.Thread(
        target=kill_template_when_stuck, args=(note, number, killed, pids[-1])
    )
    killer.start()
    epoch = "finished"
    try:
        batches = sum(1 for _ in iterator)
        assert batches == LENGTH // BATCH, f"the epoch ended after {batches} batches"
    except RuntimeError as error:
        epoch = f"reported: {error}"
    ended_at = time.monotonic()
    killer.join()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        iterator, again = begin(loader, start)
        batches = sum(1 for _ in iterator)
    advice = [str(item.message) for item in caught if item.category.__name__ == "Advice"]
    report = {
        "seconds": ended_at - killed["at"],
        "killed": killed["pid"],
        "epoch": epoch,
        "next_batches": batches,
        "new_template": again[-1] != pids[-1],
    }
    return report, pids + again, next((text for text in advice if "template" in text), "")


def template_scene(start: str, number: int, note: str) -> dict[str, Any]:
    """The scene inside its own process where the template is the victim."""
    before = warm_up(note, start)
    report, pids, advice = iterate_past_death(note, start, number)
    return {
        **report,
        **find_numbers(advice),
        "pid": report["killed"],
        **what_is_left(pids, before),
        "message": advice,
    }


def trainer_scene(start: str, note: str) -> None:
    """Loads until it is killed."""
    iterator, _ = begin(make_loader(note, INDEX, start), start)
    for _ in iterator:
        pass


def _scratch_note() -> str:
    import tempfile

    return os.path.join(tempfile.mkdtemp(prefix="millhead-kill-"), "stuck")


def _discard(note: str) -> None:
    Path(note).unlink(missing_ok=True)
    Path(f"{note}.go").unlink(missing_ok=True)
    Path(note).parent.rmdir()


def _prefix(note: str) -> str:
    """How the names of a scene's semaphores begin."""
    return f"kill-{Path(note).parent.name}"


def _sign_semaphores(note: str) -> None:
    """Let multiprocessing's semaphores of this process and its children tell whose they are."""
    multiprocessing.current_process()._config["semprefix"] = f"/{_prefix(note)}"  # type: ignore[attr-defined]


def left_in_memory(before: set[str], note: str) -> set[str]:
    """New files in /dev/shm, but for other programs' semaphores and the files of processes that
    run."""
    left = set()
    for name in procs.shared_files() - before:
        made_by = re.match(r"torch_(\d+)_", name)
        theirs = name.startswith("sem.") and not name.startswith(f"sem.{_prefix(note)}")
        if not theirs and not (made_by and procs.is_running(int(made_by[1]))):
            left.add(name)
    return left


def kill_in_scene(start: str, number: int, victim: str) -> dict[str, Any]:
    """Runs the scene of a worker's or a template's death in a process of its own and adds what is left after its end."""
    mark, environment = procs.new_mark()
    note = _scratch_note()
    shared = procs.shared_files()
    try:
        scene = subprocess.run(
            [sys.executable, __file__, "--start", start, "--signal", str(number)]
            + ["--victim", victim, "--note", note],
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
        procs.wait_until(lambda: not left_in_memory(shared, note), 2)
        report["orphans"] += len(procs.marked(mark))
        report["shm_left"] = len(left_in_memory(shared, note))
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


def complaints(report: dict[str, Any], number: int, victim: str) -> list[str]:
    """What is wrong with a report, in words."""
    wrong = [f"{key} is {report[key]}" for key in ("orphans",) if report[key]]
    if report["seconds"] > LIMIT_SECONDS:
        wrong.append(f"it took {report['seconds']:.1f} s")
    if victim == "trainer":
        return wrong
    wrong += [f"{key} is {report[key]}" for key in ("fds_delta", "shm_left") if report[key] > 0]
    expected = {"index": INDEX, "signal": number, "pid": report["killed"]}
    if victim == "template":
        expected = {"signal": number, "next_batches": LENGTH // BATCH, "new_template": True}
    wrong += [
        f"{key} is {report[key]}, not {value}"
        for key, value in expected.items()
        if report[key] != value
    ]
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--signal", type=int, default=9)
    parser.add_argument("--start", choices=("fork", "spawn", "forkserver", "template"))
    parser.add_argument("--victim", choices=("worker", "template"), default="worker")
    parser.add_argument("--parent", action="store_true", help="kill the trainer instead")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--note", help=argparse.SUPPRESS)
    parser.add_argument("--trainer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    victim = "trainer" if options.parent else options.victim
    start = options.start or ("template" if victim == "template" else "fork")
    if victim == "template" and start == "fork":
        parser.error("a fork has no template")
    if options.note:
        _sign_semaphores(options.note)
    if options.trainer:
        trainer_scene(start, options.note)
        return 0
    if options.note:
        scene = template_scene if victim == "template" else worker_scene
        print(json.dumps(scene(start, options.signal, options.note)))
        return 0
    if victim == "trainer":
        report = kill_trainer(start)
    else:
        report = kill_in_scene(start, options.signal, victim)
    wrong = complaints(report, options.signal, victim)
    message = report.pop("message", "")
    report.pop("killed", None)
    if options.json:
        print(json.dumps(report))
    else:
        for key, value in report.items():
            print(f"{key:>12} {value}")
    for text in wrong:
        print(f"kill: {text}", file=sys.stderr)
    if wrong and message:
        print(f"kill: the message was: {message}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
