"""A torch without the DLPack table (before 2.10) is served too: through methods and capsules."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from helpers import procs

HERE = Path(__file__).resolve().parent
#: Torch as it was before it had the table; then the tests named on the command line.
PROGRAM = """
import sys
import torch
del torch.Tensor.__dlpack_c_exchange_api__
import millhead.torch, pytest
assert millhead.torch.core_available.why_not is None
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


@pytest.mark.limit(300)
@pytest.mark.parametrize("name", ["collate", "pickled_batch"])
def test_the_tests_pass_without_the_table(name: str) -> None:
    command = [sys.executable, "-c", PROGRAM, str(HERE / f"test_{name}.py")]
    done = procs.run(command, seconds=280, cwd=HERE.parents[2])
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b[1-9]\d* passed", done.stdout)
