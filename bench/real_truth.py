"""Whether the doctor is right on real programs: each is run at three lengths, judged, fixed and run again.

    python bench/real_truth.py --only pillow --json
    python bench/real_truth.py --repeat 10 --lengths 1 --only healthy

A program of `real_programs/` says in its TRUTH what is wrong with it: `causes` (any of them is right),
`healthy` (any other name is a false alarm), `fix` (a text the fix must hold), `loader` (the dataset that must
be judged), `hot` (a function that must be among the first), `gains` (the promise must be within a quarter of
what the fix gains), `most_promised` (a higher promise for a setting is wrong), `causes_millhead` (those on our
loader, where they differ). A promise above 1.2 of a setting that gains
less than 1.05 is wrong in any case. `loaders`: whose DataLoaders it runs on, where not on torch's and ours.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parent / "real_programs"
LENGTHS = (0.5, 1.0, 2.0)
LOADERS = ("torch", "millhead")
SECONDS_MOST = 140
#: Gates: of right verdicts, of the same answer in repeats; and how far a promise may be off.
RIGHT, SAME, WITHIN = 0.9, 0.9, 1.25
PROMISED, NO_GAIN = 1.2, 1.05


@dataclass(frozen=True)
class Case:
    """A program at one length, with one kind of loader."""

    program: Path
    length: float
    loader: str


def truth_of(program: Path) -> dict[str, Any]:
    """What the program says is wrong with it."""
    for node in ast.parse(program.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "TRUTH":
            found: dict[str, Any] = ast.literal_eval(node.value)
            return found
    raise ValueError(f"{program.name} has no TRUTH")


def run(case: Case, settings: dict[str, Any], watched: bool) -> tuple[float, str]:
    """Seconds its loops took, and what the doctor printed."""
    millhead = os.path.join(sysconfig.get_path("scripts"), "millhead")
    command = [sys.executable, case.program.name]
    if watched:
        command = [millhead, "doctor", "--json", "--", *command]
    with tempfile.NamedTemporaryFile("r") as seconds:
        environment = {
            **os.environ,
            "REAL_LENGTH": str(case.length),
            "REAL_LOADER": case.loader,
            "REAL_SECONDS": seconds.name,
            "REAL_SETTINGS": json.dumps(settings),
            "PYTHONWARNINGS": "ignore",
        }
        done = subprocess.run(
            command,
            cwd=case.program.parent,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MOST,
            check=False,
        )
        if not done.stdout and watched:
            raise subprocess.SubprocessError(done.stderr[-300:])
        return float(seconds.read() or "nan"), done.stdout


def settings_of(verdict: dict[str, Any]) -> dict[str, Any]:
    """The fix, as the programs take it: settings of the DataLoader, and what a sample costs."""
    known = ("num_workers", "prefetch_factor", "persistent_workers", "in_order")
    known += ("threads", "in_flight")  # of a native loader
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


def wrong_with_gain(
    truth: dict[str, Any], promised: float, gained: float, code: bool
) -> str | None:
    """What the promise got wrong; `code`: the fix is cheaper code, of which only we know how much."""
    text = f"promised {promised:.2f}, gained {gained:.2f}"
    if promised > PROMISED and gained < NO_GAIN and not code:
        return text
    off = max(promised / gained, gained / promised)
    return text if truth.get("gains") and promised > NO_GAIN and off > WITHIN else None


def judge(case: Case, fix: bool) -> dict[str, Any]:
    """One program at one length."""
    truth = truth_of(case.program)
    truth["causes"] = truth.get(f"causes_{case.loader}", truth["causes"])
    _, printed = run(case, {}, watched=True)
    verdict = json.loads(printed)
    promised = verdict["predicted_gain"]
    wrong = wrong_with(truth, verdict)
    settings, gained = settings_of(verdict), None
    if "cost" not in settings and promised > truth.get("most_promised", promised):
        wrong = wrong or f"promised {promised:.2f}"
    if fix and settings:
        before, _ = run(case, {}, watched=False)
        after, _ = run(case, settings, watched=False)
        gained = before / after
        wrong = wrong or wrong_with_gain(truth, promised, gained, "cost" in settings)
    return {
        "program": case.program.stem,
        "length": case.length,
        "loader": case.loader,
        "healthy": truth.get("healthy", False),
        "cause": verdict["cause"],
        "wrong": wrong,
        "promised": promised,
        "gained": gained,
        "fix": verdict["fix"],
        "evidence": verdict["evidence"],
        "warnings": verdict["warnings"],
    }


def judge_or_fail(case: Case, fix: bool) -> dict[str, Any]:
    """As judge(); a program that fails is wrong."""
    try:
        return judge(case, fix)
    except (subprocess.SubprocessError, ValueError) as error:
        told = str(getattr(error, "stderr", "") or error)[-300:]
        known = {"program": case.program.stem, "length": case.length, "loader": case.loader}
        return {**known, "cause": "none", "wrong": f"failed: {told}", "promised": 1.0} | {
            "healthy": False,
            "gained": None,
        }


def show(told: dict[str, Any]) -> str:
    """A case in a line."""
    gained = "" if told["gained"] is None else f" gained {told['gained']:.2f}"
    return (
        f"{'ok ' if told['wrong'] is None else 'NOT'} {told['program']:22} x{told['length']:<4g}"
        f" {told['loader']:8} {told['cause']:14} promised {told['promised']:.2f}{gained}"
        f"  {told['wrong'] or ''}"
    )


def sameness(cases: list[dict[str, Any]]) -> float:
    """The share of repeats that gave their program's commonest answer."""
    answers: dict[tuple[str, float, str], Counter[str]] = {}
    for case in cases:
        key = case["program"], case["length"], case["loader"]
        answers.setdefault(key, Counter())[case["cause"]] += 1
    return sum(max(count.values()) for count in answers.values()) / len(cases)


def main() -> int:
    """Run, judge, report; 0 when the gates are met."""
    parser = argparse.ArgumentParser(description="judges real programs and compares with the truth")
    parser.add_argument(
        "--only", nargs="+", default=[""], help="programs with one of these in their name"
    )
    parser.add_argument("--lengths", type=float, nargs="+", default=LENGTHS)
    parser.add_argument("--loaders", nargs="+", choices=LOADERS, default=LOADERS)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--no-fix", action="store_true", help="do not apply the fixes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    programs = [
        path
        for path in sorted(PROGRAMS.glob("*.py"))
        if path.stem != "common" and any(part in path.stem for part in options.only)
    ]
    cases = [
        Case(program, length, loader)
        for program in programs
        for loader in options.loaders
        if loader in truth_of(program).get("loaders", LOADERS)
        for length in options.lengths
        for _ in range(options.repeat)
    ]
    if not cases:
        parser.error(f"no program has any of {options.only} in its name")
    told = []
    for case in cases:
        told.append(judge_or_fail(case, not options.no_fix))
        print(show(told[-1]), file=sys.stderr, flush=True)
    right = sum(one["wrong"] is None for one in told)
    alarms = sum(one["healthy"] and one["wrong"] is not None for one in told)
    same = sameness(told)
    report = {"runs": len(told), "right": right, "false_alarms": alarms, "same": same}
    if options.json:
        print(json.dumps({**report, "cases": told}))
    else:
        print(f"{right} of {len(told)} right, {alarms} false alarms, {100 * same:.0f} % the same")
    return 0 if right >= RIGHT * len(told) and not alarms and same >= SAME else 1


if __name__ == "__main__":
    sys.exit(main())
