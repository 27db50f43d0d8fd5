"""examples/pictures.py: what it says of its rows, and that all of its arms can be run."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
import pictures


def rows(ours: float, spread: float) -> list[dict[str, object]]:
    return [
        {"loader": name, "rate": rate, "share": rate / 1000, "cpu_ms": 1.0, "spread": spread}
        for name, rate in ((pictures.LIMIT, 1000), (pictures.OURS, ours), (pictures.PILLOW, 400))
    ]


def test_the_reading_has_the_ratio_and_the_share_of_the_limit() -> None:
    assert "2.3 times as fast as torch + Pillow, at 92%" in pictures.reading(rows(920, 0.02))
    assert pictures.table(rows(920, 0.02))[2].split()[-4:] == ["920", "92%", "1.00", "ms"]


def test_a_busy_machine_is_shown_no_share() -> None:
    assert "too busy" in pictures.reading(rows(920, 0.5))
    assert all("%" not in line for line in pictures.table(rows(920, 0.5)))


def test_every_arm_runs(tmp_path: Path) -> None:
    found = {name: pictures.run(command) for name, command in pictures.commands(tmp_path).items()}
    assert {pictures.OURS, pictures.PILLOW} <= found.keys()
    assert all(one["rate"] > 0 for one in found.values())
