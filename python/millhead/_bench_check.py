"""What can be known before anything is measured, found out in a process that ends afterwards:
``python -P -m millhead._bench_check`` reads a question from standard input and answers on standard
output, both JSON.

The user's modules are imported and each loader is built, but no dataset is made and no sample fetched.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import Any

from millhead import _bench_target
from millhead._bench_child import end_with, make_loader, one_line, step_of
from millhead._bench_configs import Config, Wrong
from millhead._environment import environment

#: Libraries that fetch with threads of their own.
_STREAMS = ("dask", "zarr", "tensorstore", "fsspec")


def look(
    target: str, train_step: float | str, configs: list[Config], seconds: float
) -> dict[str, Any]:
    """``environment`` and ``streams`` (whether TARGET uses such a library); raises Wrong."""
    question = {
        "target": target,
        "train_step": train_step,
        "configs": [[config.given, config.loader] for config in configs],
        "parent": os.getpid(),
    }
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "millhead._bench_check"],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise Wrong(
            "importing took longer than the time limit (TARGET): give more with --time-limit"
        ) from None
    except ValueError:
        last = (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]
        raise Wrong(f"importing ended Python: {last} (TARGET): import it by hand to see") from None
    if "wrong" in answer:
        raise Wrong(answer["wrong"])
    return answer


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    before = set(sys.modules)
    try:
        found = _bench_target.find(question["target"], "TARGET")
        streams = any(name in sys.modules and name not in before for name in _STREAMS)
        step_of(question["train_step"])
    except Wrong:
        raise
    except Exception as error:
        where = question["target"]
        raise Wrong(f"importing fails: {one_line(error)} ({where}): correct it") from error
    dataset = found if _bench_target.is_dataset(found) else [0] * 8
    for given, loader in question["configs"]:
        try:
            make_loader(Config(given["name"], given, loader), dataset, None)
        except (ValueError, TypeError) as error:
            what = " ".join(str(error).split())
            raise Wrong(f"{what} (configuration {given['name']}): change it") from error
    return {"streams": streams, "environment": environment()}


def main() -> None:
    """Answer the question."""
    question = json.load(sys.stdin)
    end_with(question["parent"])
    out = os.dup(1)
    os.dup2(2, 1)  # what modules print when they are imported is no answer
    try:
        answer = _answer(question)
    except Wrong as wrong:
        answer = {"wrong": str(wrong)}
    with contextlib.suppress(BrokenPipeError), os.fdopen(out, "w") as stream:
        json.dump(answer, stream)


if __name__ == "__main__":
    main()
