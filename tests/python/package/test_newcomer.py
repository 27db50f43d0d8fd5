"""What somebody meets in the first minutes: names to complete, packages and files that are missing."""

from __future__ import annotations

import sys
from pathlib import Path

import millhead
import millhead.report
import pytest
from helpers import procs

WITHOUT_TORCH = """
import sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Hide())
import millhead
import millhead.torch
"""


def test_public_names_and_no_others_are_listed_before_they_are_used() -> None:
    program = "import millhead; print(set(millhead.__all__) ^ set(dir(millhead)))"
    done = procs.run([sys.executable, "-c", program], seconds=30)
    assert done.stdout == "set()\n", done.stderr


def test_a_missing_torch_is_answered_with_the_command_that_installs_it() -> None:
    done = procs.run([sys.executable, "-c", WITHOUT_TORCH], seconds=30)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: ")
    assert last.endswith('pip install "millhead[torch]"')


@pytest.mark.parametrize(
    "use",
    [millhead.open, millhead.Loader, millhead.load_config, millhead.report.make],
    ids=["open", "Loader", "load_config", "report"],
)
def test_a_missing_file_is_a_file_not_found(use: object, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.npy"):
        use(str(tmp_path / "gone.npy"))  # type: ignore[operator]
