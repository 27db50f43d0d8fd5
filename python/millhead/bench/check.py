"""What can be known before anything is measured, found out in a process that ends afterwards:
``python -P -m millhead.bench.check`` reads a question from standard input and answers on standard
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

from millhead._command_line import UsageError
from millhead._environment import environment
from millhead.bench import child
from millhead.bench.configs import Config, find_object

#: Libraries that fetch with threads of their own.
_STREAMS = ("dask", "zarr", "tensorstore", "fsspec")


def check_target(
    target: str, train_step: float | str, configs: list[Config], seconds: float
) -> dict[str, Any]:
    """``environment`` and ``streams`` (whether TARGET uses such a library); raises UsageError."""
    question = {
        "target": target,
        "train_step": train_step,
        "configs": [[config.given, config.loader] for config in configs],
        "parent": os.getpid(),
    }
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "millhead.bench.check"],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise UsageError(
            "importing took longer than the time limit (TARGET): give more with --time-limit"
        ) from None
    except ValueError:
        last = (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]
        raise UsageError(
            f"importing ended Python: {last} (TARGET): import it by hand to see"
        ) from None
    if "wrong" in answer:
        raise UsageError(answer["wrong"])
    return answer


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    before = set(sys.modules)
    try:
        found = find_object(question["target"], "TARGET")
        streams = any(name in sys.modules and name not in before for name in _STREAMS)
        child.step_of(question["train_step"])
    except UsageError:
        raise
    except Exception as error:
        where = question["target"]
        raise UsageError(
            f"importing fails: {child.describe_error(error)} ({where}): correct it"
        ) from error
    dataset = found if child.is_dataset(found) else [0] * 8
    for given, loader in question["configs"]:
        try:
            child.make_loader(Config(given["name"], given, loader), dataset, None)
        except (ValueError, TypeError) as error:
            what = " ".join(str(error).split())
            raise UsageError(f"{what} (configuration {given['name']}): change it") from error
    return {"streams": streams, "environment": environment()}


def main() -> None:
    """Answer the question."""
    question = json.load(sys.stdin)
    child.die_with_parent(question["parent"])
    out = os.dup(1)
    os.dup2(2, 1)  # what modules print when they are imported is no answer
    try:
        answer = _answer(question)
    except UsageError as error:
        answer = {"wrong": str(error)}
    with contextlib.suppress(BrokenPipeError), os.fdopen(out, "w") as stream:
        json.dump(answer, stream)


if __name__ == "__main__":
    main()
