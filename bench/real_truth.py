"""Whether the doctor is right on real programs: each is run at three lengths, judged, fixed and run again.

    python bench/real_truth.py --only pillow --json
    python bench/real_truth.py --repeat 10 --lengths 1 --only healthy

A program of `real_programs/` says in its TRUTH what is wrong with it: `causes` (any of them is right),
`healthy` (any other name is a false alarm), `fix` (a text the fix must hold), `loader` (the dataset that must
be judged), `hot` (a function that must be among the first), `gains` (the promise must be within a quarter of
what the fix gains). A promise above 1.2 of a setting that gains less than 1.05 is wrong in any case.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parent / "real_programs"
LENGTHS = (0.5, 1.0, 2.0)
SECONDS_MOST = 140
#: Gates: of right verdicts, of the same answer in repeats; and how far a promise may be off.
RIGHT, SAME, WITHIN = 0.9, 0.9, 1.25
PROMISED, NO_GAIN = 1.2, 1.05


def truth_of(program: Path) -> dict[str, Any]:
    """What the program says is wrong with it."""
    for node in ast.parse(program.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "TRUTH":
            found: dict[str, Any] = ast.literal_eval(node.value)
            return found
    raise ValueError(f"{program.name} has no TRUTH")


def run(program: Path, length: float, settings: dict[str, Any], watched: bool) -> tuple[float, str]:
    """Seconds it took, and what the doctor printed."""
    millhead = os.path.join(sysconfig.get_path("scripts"), "millhead")
    command = [sys.executable, program.name]
    if watched:
        command = [millhead, "doctor", "--json", "--", *command]
    environment = {
        **os.environ,
        "REAL_LENGTH": str(length),
        "REAL_SETTINGS": json.dumps(settings),
        "PYTHONWARNINGS": "ignore",
    }
    began = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=program.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MOST,
        check=True,
    )
    return time.perf_counter() - began, done.stdout


def settings_of(verdict: dict[str, Any]) -> dict[str, Any]:
    """The fix, as the programs take it: settings of the DataLoader, and what a sample costs."""
    known = ("num_workers", "prefetch_factor", "persistent_workers", "in_order")
    settings = {
        key: verdict["fix_settings"][key] for key in known if key in verdict["fix_settings"]
    }
    if 0 < verdict["fix_cost"] < 1:
        settings["cost"] = verdict["fix_cost"]
    return settings


def wrong_with(truth: dict[str, Any], verdict: dict[str, Any]) -> str | None:
    """What the verdict got wrong; None: nothing."""
    if verdict["cause"] not in truth["causes"]:
        return f"named {verdict['cause']}"
    if truth.get("fix", "") not in verdict["fix"]:
        return f"the fix is not {truth['fix']}"
    if truth.get("loader", verdict["loader"]["dataset"]) != verdict["loader"]["dataset"]:
        return f"judged {verdict['loader']['dataset']}"
    first = [one["function"] for one in verdict["hot"][:8]]
    if "hot" in truth and not any(truth["hot"] in function for function in first):
        return f"no {truth['hot']} among {first}"
    return None


def judge(program: Path, length: float, fix: bool) -> dict[str, Any]:
    """One program at one length."""
    truth = truth_of(program)
    _, printed = run(program, length, {}, watched=True)
    verdict = json.loads(printed)
    case = {
        "program": program.stem,
        "length": length,
        "healthy": truth.get("healthy", False),
        "cause": verdict["cause"],
        "wrong": wrong_with(truth, verdict),
        "promised": verdict["predicted_gain"],
        "gained": None,
        "fix": verdict["fix"],
    }
    settings = settings_of(verdict)
    if fix and settings:
        before, _ = run(program, length, {}, watched=False)
        after, _ = run(program, length, settings, watched=False)
        case["gained"] = gained = before / after
        if case["promised"] > PROMISED and gained < NO_GAIN and "cost" not in settings:
            case["wrong"] = case["wrong"] or f"promised {case['promised']:.2f}, gained {gained:.2f}"
        off = max(case["promised"] / gained, gained / case["promised"])
        if truth.get("gains") and case["promised"] > NO_GAIN and off > WITHIN:
            case["wrong"] = case["wrong"] or f"promised {case['promised']:.2f}, gained {gained:.2f}"
    return case


def show(case: dict[str, Any]) -> str:
    """A case in a line."""
    gained = "" if case["gained"] is None else f" gained {case['gained']:.2f}"
    return (
        f"{'ok ' if case['wrong'] is None else 'NOT'} {case['program']:22} x{case['length']:<4g}"
        f" {case['cause']:14} promised {case['promised']:.2f}{gained}  {case['wrong'] or ''}"
    )


def sameness(cases: list[dict[str, Any]]) -> float:
    """The share of repeats that gave their program's commonest answer."""
    answers: dict[tuple[str, float], Counter[str]] = {}
    for case in cases:
        answers.setdefault((case["program"], case["length"]), Counter())[case["cause"]] += 1
    return sum(max(count.values()) for count in answers.values()) / len(cases)


def main() -> int:
    """Run, judge, report; 0 when the gates are met."""
    parser = argparse.ArgumentParser(description="judges real programs and compares with the truth")
    parser.add_argument("--only", default="", help="programs with this in their name")
    parser.add_argument("--lengths", type=float, nargs="+", default=LENGTHS)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--no-fix", action="store_true", help="do not apply the fixes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    programs = [
        path
        for path in sorted(PROGRAMS.glob("*.py"))
        if path.stem != "common" and options.only in path.stem
    ]
    cases = []
    for program in programs:
        for length in options.lengths:
            for _ in range(options.repeat):
                cases.append(judge(program, length, not options.no_fix))
                print(show(cases[-1]), file=sys.stderr, flush=True)
    if not cases:
        parser.error(f"no program has '{options.only}' in its name")
    right = sum(case["wrong"] is None for case in cases)
    alarms = sum(case["healthy"] and case["wrong"] is not None for case in cases)
    same = sameness(cases)
    report = {"runs": len(cases), "right": right, "false_alarms": alarms, "same": same}
    if options.json:
        print(json.dumps({**report, "cases": cases}))
    else:
        print(f"{right} of {len(cases)} right, {alarms} false alarms, {100 * same:.0f} % the same")
    return 0 if right >= RIGHT * len(cases) and not alarms and same >= SAME else 1


if __name__ == "__main__":
    sys.exit(main())
