"""output="jax": arrays of JAX over the loader's memory, with the values that NumPy has."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers import procs

CASES = (
    "values_are_numpys",
    "large_arrays_are_not_copied",
    "a_kept_batch_is_never_overwritten",
    "ragged_fields",
    "samples_by_number",
    "pinned_memory_is_torchs",
)


@pytest.mark.parametrize("case", CASES)
def test_jax_output(case: str, tmp_path: Path) -> None:
    done = procs.run([sys.executable, "-m", "helpers.jax_cases", case, str(tmp_path)], seconds=60)
    assert done.returncode == 0, done.stderr
