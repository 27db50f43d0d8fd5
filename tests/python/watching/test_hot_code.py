"""Where the time goes: functions of the user's and of libraries, named by looks at the stack."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import millhead
import torch
from millhead import _core
from millhead.watching import hot_code
from torch.utils.data import DataLoader, Dataset


def slow_function(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class TwoCosts(Dataset[torch.Tensor]):
    """Three parts of computing, one of sleeping."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> torch.Tensor:
        slow_function(0.015)
        self.sleep()
        return torch.zeros(4)

    def sleep(self) -> None:
        time.sleep(0.005)


def slow_collate(samples: list[torch.Tensor]) -> torch.Tensor:
    slow_function(0.02)
    return torch.stack(samples)


def diagnosis(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_core.diagnose(run))
    return found


def shares(found: dict[str, Any], stage: str) -> dict[str, float]:
    return {one["function"]: one["share"] for one in found["hot"] if one["stage"] == stage}


def watched(run: Path, workers: int, **more: Any) -> dict[str, Any]:
    loader = DataLoader(TwoCosts(), batch_size=2, num_workers=workers, **more)
    for _batch in millhead.watch(loader, run=run):
        pass
    return diagnosis(run)


def test_functions_of_a_sample_are_named_with_their_share(tmp_path: Path) -> None:
    for workers in (0, 1):
        found = shares(watched(tmp_path / str(workers), workers), "fetch")
        computing = sum(share for name, share in found.items() if name.endswith("slow_function"))
        asleep = sum(share for name, share in found.items() if name.endswith("TwoCosts.sleep"))
        assert computing > asleep > 0.05, found
        assert computing > 0.5, found


def test_the_users_line_is_told(tmp_path: Path) -> None:
    found = watched(tmp_path, 0)
    first = next(one for one in found["hot"] if one["stage"] == "fetch")
    assert first["place"].startswith("test_hot_code.py:")
    assert first["code"]


def test_collate_is_a_stage_of_its_own(tmp_path: Path) -> None:
    found = shares(watched(tmp_path, 0, collate_fn=slow_collate), "collate")
    assert any(name.endswith("slow_function") and share > 0.5 for name, share in found.items())


def test_a_fix_names_the_function(tmp_path: Path) -> None:
    loader = DataLoader(TwoCosts(), batch_size=2, num_workers=2)
    for _batch in millhead.watch(loader, run=tmp_path):
        pass
    assert any("slow_function" in line for line in diagnosis(tmp_path)["evidence"])


def test_the_clocks_stop_with_the_last_loop(tmp_path: Path) -> None:
    watched(tmp_path, 0)
    assert hot_code._loops == 0
    _core.probe_take()
    slow_function(0.1)
    assert _core.probe_take() == (0, 0)


def test_nobody_is_looked_at_from_another_thread(tmp_path: Path) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(hot_code.start()))
    thread.start()
    thread.join()
    assert found == [None]


def test_an_interrupt_reaches_the_program(tmp_path: Path) -> None:
    """One that comes while the stack is looked at is the program's too."""
    program = (
        "import sys, time\n"
        "from millhead import _core\n"
        "from millhead.watching import hot_code\n"
        "def look(stage, ns, blocked):\n"
        "    raise KeyboardInterrupt\n"
        "assert hot_code.start_probe() and _core.ticks_start(look)\n"
        "_core.ticks_stage(1)\n"
        "try:\n"
        "    end = time.monotonic() + 20\n"
        "    while time.monotonic() < end: pass\n"
        "except KeyboardInterrupt:\n"
        "    _core.ticks_stop()\n"
        "    sys.exit(7)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert done.returncode == 7


def test_what_fails_while_looking_is_nobodys_trouble() -> None:
    program = (
        "import time\n"
        "from millhead import _core\n"
        "from millhead.watching import hot_code\n"
        "def look(stage, ns, blocked):\n"
        "    raise ValueError('x')\n"
        "assert hot_code.start_probe() and _core.ticks_start(look)\n"
        "_core.ticks_stage(1)\n"
        "end = time.monotonic() + 0.3\n"
        "while time.monotonic() < end: pass\n"
        "_core.ticks_stop()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], timeout=60, check=False, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
