"""The story that ``make demo`` ends with: told by the programs of examples/, from slow to fixed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from helpers import procs

STORY = Path(__file__).resolve().parents[3] / "examples" / "story.py"


@pytest.mark.limit(150)
def test_the_story_ends_with_a_report_of_both_runs_and_can_be_told_again(tmp_path: Path) -> None:
    left_over = tmp_path / "out" / "before" / "events.jsonl"  # of a story told before
    left_over.parent.mkdir(parents=True)
    left_over.write_text("old\n")
    done = procs.run([sys.executable, str(STORY)], seconds=120, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.left == set()  # type: ignore[attr-defined]
    assert re.search(
        r"\n(cpu|python|latency|disk)-bound\n", done.stdout
    )  # real work on any machine
    fixed = "\nThe fix it names, applied: num_workers=" in done.stdout
    busy = "\nHere the fix is not a setting of the loader" in done.stdout  # no CPU to spare
    assert fixed != busy
    report = Path(done.stdout.splitlines()[-1])
    assert report == tmp_path / "out" / "report.html"
    page = report.read_text()
    assert '"before"' in page
    assert ('"after"' in page) == fixed
