"""``millhead doctor --checklist``: the machine as a program started here would find it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sysconfig
from collections.abc import Callable
from typing import Any

import pytest

COMMAND = os.path.join(sysconfig.get_path("scripts"), "millhead")


def _checklist(
    *arguments: str, before: Callable[[], Any] | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, "doctor", "--checklist", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **variables},
        preexec_fn=before,
    )


def _items(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    assert done.stderr == ""
    listed = json.loads(done.stdout)
    for item in listed:
        assert set(item) == {"item", "state", "found", "todo"}
        assert item["state"] in ("pass", "warn", "fail")
        assert item["found"] and bool(item["todo"]) == (item["state"] != "pass")
    failed = any(item["state"] == "fail" for item in listed)
    assert done.returncode == (1 if failed else 0)
    return {item["item"]: item for item in listed}


def test_every_item_is_judged() -> None:
    items = _items(_checklist("--json"))
    assert len(items) >= 16
    assert {"clock", "open-files", "shared-memory", "memory", "network-mounts"} <= set(items)


def test_a_low_limit_of_open_files_fails() -> None:
    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))

    item = _items(_checklist("--json", before=lower))["open-files"]
    assert item["state"] == "fail"
    assert item["found"].startswith("100 open files allowed")
    assert item["todo"].startswith("ulimit -n ")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs a second CPU")
def test_being_bound_to_one_cpu_fails() -> None:
    def bind() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    item = _items(_checklist("--json", before=bind))["cpu-affinity"]
    assert item["state"] == "fail"
    assert item["found"].startswith("may run on 1 of ")


def test_variables_are_looked_at_whatever_is_in_them() -> None:
    strange = 'a"b\\c\n\x07'
    items = _items(_checklist("--json", OMP_NUM_THREADS=strange))
    assert items["thread-variables"]["state"] == "warn"
    assert strange in items["thread-variables"]["found"]


def test_the_text_has_a_line_for_each_item_and_what_to_do() -> None:
    done = _checklist(TORCH_NCCL_ASYNC_ERROR_HANDLING="0")
    lines = done.stdout.splitlines()
    (at,) = [n for n, line in enumerate(lines) if "collective-timeouts" in line]
    assert lines[at].startswith("warn  ")
    assert "-> unset TORCH_NCCL_ASYNC_ERROR_HANDLING" in lines[at + 1]
