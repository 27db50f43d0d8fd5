"""Whether the verdict is right: causes are planted, and each must be named.

    python bench/truth.py --seed 1 --json

Every case is a short training loop in processes of its own, watched from inside and sampled from
outside, then judged. The fix that the verdict names is applied and the loop run again: what it gained
stands beside what was predicted. Another seed plants other strengths.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import re
import socket
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import disk
from millhead.watching.usage_sampler import Sampler
from plants import MAKERS, Loop, Plant

HERE = Path(__file__).resolve().parent
LOADERS = ("torch", "millhead")
#: A gain below this is none.
NO_GAIN = 1.05
#: Most that a prediction may be off by, either way.
WITHIN = 2.0
SECONDS_MOST = 120


def run(loop: Loop, directory: Path) -> float:
    """Run a loop; its seconds, the slowest rank's where there are several."""
    directory.mkdir()
    environment = {**os.environ, "MILLHEAD_SAMPLED": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(HERE / "planted.py"), str(directory)]
    ranks: list[dict[str, str]] = [{}]
    if loop.world > 1:
        port = str(_free_port())
        where = {"WORLD_SIZE": str(loop.world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        ranks = [{"RANK": str(rank), **where} for rank in range(loop.world)]
    with Sampler(directory):
        processes = [
            subprocess.Popen(
                command,
                env={**environment, **rank},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in ranks
        ]
        try:
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(json.dumps(dataclasses.asdict(loop)))
                process.stdin.close()
                process.stdin = None
            answers = [process.communicate(timeout=SECONDS_MOST)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    return max(json.loads(answer)["seconds"] for answer in answers)


def diagnose(directory: Path) -> dict[str, Any]:
    """What a user would be told."""
    command = os.path.join(sysconfig.get_path("scripts"), "millhead")
    done = subprocess.run(
        [command, "doctor", str(directory), "--json"], stdout=subprocess.PIPE, check=True
    )
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def fixed(plant: Plant, fix: str, cost: float) -> Loop:
    """The loop with the change that the verdict's sentence asks for."""
    loop = plant.loop
    if cost == 0.5:
        loop = plant.scaled(0.5)
    elif "make them like the others" in fix or plant.cause in ("memory-growth", "straggler"):
        loop = plant.scaled(0.0)
    settings: dict[str, Any] = {}
    if found := re.search(r"\bnum_workers=(\d+)", fix):
        settings["workers"] = int(found[1])
    if found := re.search(r"\bprefetch_factor=(\d+)", fix):
        settings["prefetch"] = int(found[1])
    if "persistent_workers=True" in fix:
        settings["persistent"] = True
    if "in_order=False" in fix:
        settings["in_order"] = False
    return dataclasses.replace(loop, **settings)


def judge(plant: Plant, directory: Path) -> dict[str, Any]:
    """One case: run, judge, fix, run again."""
    before = run(plant.loop, directory / "before")
    verdict = diagnose(directory / "before")
    after = run(fixed(plant, verdict["fix"], verdict["fix_cost"]), directory / "after")
    predicted, measured = verdict["predicted_gain"], before / after
    if predicted < NO_GAIN:  # where nothing is promised, what may be won was planted
        predicted = verdict["possible_gain"]
    others = [other["cause"] for other in verdict["others"]]
    named = verdict["cause"] == plant.cause and (plant.also is None or plant.also in others)
    return {
        "loader": plant.loop.loader,
        "cause": plant.cause,
        "also": plant.also,
        "control": plant.control,
        "strength": plant.strength,
        "named_as": verdict["cause"],
        "others": others,
        "named": named,
        "ok": named and agree(predicted, measured),
        "predicted_gain": predicted,
        "measured_gain": measured,
        "seconds": before,
        "fix": verdict["fix"],
        "evidence": verdict["evidence"],
    }


def agree(predicted: float, measured: float) -> bool:
    """Whether a prediction was right: of the right sign, and within a factor."""
    same_sign = predicted < NO_GAIN or measured > 1.0
    return same_sign and 1 / WITHIN <= measured / predicted <= WITHIN


def show(case: dict[str, Any]) -> str:
    """A case in a line."""
    planted = "nothing" if case["control"] else case["cause"]
    return (
        f"{'ok ' if case['ok'] else 'NOT'} {case['loader']:8} {planted:14} x{case['strength']:<6.3g}"
        f" named {case['named_as']:14} gain predicted {case['predicted_gain']:5.2f}"
        f" measured {case['measured_gain']:5.2f}  {case['fix'][:60]}"
    )


def main() -> int:
    """Plant, judge, report; 0 when every cause was named and nothing else was."""
    parser = argparse.ArgumentParser(description="plants causes and sees whether they are named")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", help="plants with this in their name")
    parser.add_argument("--loader", choices=LOADERS)
    parser.add_argument("--keep", type=Path, help="a directory for the runs")
    options = parser.parse_args()
    only = (options.only or "").replace("-", "_")  # causes are written with hyphens
    if not any(only in maker.__name__ for maker in MAKERS):
        names = ", ".join(maker.__name__ for maker in MAKERS)
        parser.error(f"no plant has '{options.only}' in its name: {names}")
    cases = []
    with tempfile.TemporaryDirectory(prefix="millhead-truth-") as scratch:
        root = options.keep or Path(scratch)
        for maker in MAKERS:
            for loader in LOADERS:
                name = f"{maker.__name__}-{loader}"
                if only not in maker.__name__ or options.loader not in (None, loader):
                    continue
                directory = root / name
                directory.mkdir(parents=True)
                # a strength of its own for each case, whichever others are run
                plant = maker(loader, random.Random(f"{options.seed} {name}"))
                cases.append({"plant": maker.__name__, **judge(plant, directory)})
                print(show(cases[-1]), file=sys.stderr, flush=True)
    disk.FILE.unlink(missing_ok=True)
    planted = [case for case in cases if not case["control"]]
    alarms = [case for case in cases if case["control"] and not case["named"]]
    report = {
        "seed": options.seed,
        "planted": len(planted),
        "named": sum(case["named"] for case in planted),
        "false_alarms": len(alarms),
        "cases": cases,
    }
    if options.json:
        print(json.dumps(report))
    else:
        print(f"{report['named']} of {report['planted']} named, {len(alarms)} false alarms")
    return 0 if report["named"] == report["planted"] and not alarms else 1


if __name__ == "__main__":
    sys.exit(main())
