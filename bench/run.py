"""Compare loaders side by side: interleaved rounds, paired ratios, an A/A row.

Every arm has its own process in its own environment; one is active at a time. In each round all
arms run a block in random order; reported are the median over rounds of the ratio to torch with a
bootstrap 95 % interval, the highest rate, and processor time per sample. See bench/README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import machine
import ratios
import report
import workloads
from arms import unsuitable
from ratios import Round
from session import ARMS, DATA, ArmFailed, Session, missing, version
from workloads import Cell

ROUNDS, QUICK_ROUNDS = 11, 5
EXTRA_ROUNDS = 0.5  # at most this share more, to replace discarded rounds


def say(text: str) -> None:
    """A progress line on stderr."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def open_sessions(
    cell: Cell, arms: Sequence[str], stack: contextlib.ExitStack
) -> tuple[dict[str, Session], dict[str, str]]:
    """Start the arms of a cell at once; return those that came up and why others did not."""
    notes = {arm: note for arm in arms if (note := unsuitable(arm, cell))}
    sessions = {arm: stack.enter_context(Session(arm, cell)) for arm in arms if arm not in notes}
    for arm, session in list(sessions.items()):
        try:
            session.wait_ready()
        except ArmFailed as error:
            notes[arm] = f"failed: {error}"
            del sessions[arm]
    return sessions, notes


def check_parity(sessions: dict[str, Session]) -> dict[str, str]:
    """Compare an epoch of every torch-compatible arm with torch's, batch by batch."""
    answers = {arm: session.ask(do="parity")["digests"] for arm, session in sessions.items()}
    expected = answers.get("torch")
    verdicts = {}
    for arm, digests in answers.items():
        if arm in ("spdl", "grain") or expected is None:
            verdicts[arm] = "not compared"
        elif digests == expected:
            verdicts[arm] = f"equal ({len(digests)} batches)"
        elif len(digests) != len(expected):
            verdicts[arm] = f"differs: {len(digests)} batches, not {len(expected)}"
        else:
            first = next(i for i, pair in enumerate(zip(digests, expected)) if pair[0] != pair[1])
            verdicts[arm] = f"differs from batch {first}"
    return verdicts


def run_rounds(
    cell: Cell, sessions: dict[str, Session], wanted: int, generator: random.Random
) -> list[Round]:
    """Warm up, then run rounds until enough quiet ones are there or the allowance is used."""
    for session in sessions.values():
        session.block(cell.block_s)
        session.ask(do="stats", reset=True)
    rounds: list[Round] = []
    most = wanted + int(wanted * EXTRA_ROUNDS)
    while len(ratios.quiet(rounds)) < wanted and len(rounds) < most:
        order = generator.sample(sorted(sessions), len(sessions))
        before = machine.Ticks.now()
        blocks = {arm: sessions[arm].block(cell.block_s) for arm in order}
        rounds.append(Round(blocks, before.steal_share(machine.Ticks.now())))
    return rounds


def measure(
    cell: Cell, arms: Sequence[str], absent: dict[str, str], wanted: int, generator: random.Random
) -> list[dict[str, Any]]:
    """All rows of one cell."""
    with contextlib.ExitStack() as stack:
        present = [arm for arm in arms if arm not in absent]
        sessions, notes = open_sessions(cell, present, stack)
        try:
            parity = check_parity(sessions)
            rounds = run_rounds(cell, sessions, wanted, generator)
            stats = {arm: session.ask(do="stats", reset=False) for arm, session in sessions.items()}
            if cell.repeatable:
                after = check_parity(sessions)
                parity |= {arm: after[arm] for arm in after if after[arm].startswith("differs")}
        except ArmFailed as error:
            say(f"{cell.title}: {error}")
            return [report.empty_row(cell, arm, f"failed: {error}") for arm in arms]
    kept = ratios.quiet(rounds)
    notes |= absent
    if not kept:
        notes |= dict.fromkeys(sessions, f"not measured: none of {len(rounds)} rounds was quiet")
    return [
        report.empty_row(cell, arm, notes[arm])
        if arm in notes
        else report.row(cell, arm, kept, len(rounds), parity[arm], stats[arm])
        for arm in arms
    ]


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="bench/run.py", description=__doc__.splitlines()[0])
    parser.add_argument(
        "workloads", nargs="*", default=workloads.WORKLOADS, help="W11, W1p, or a kind: W11:int"
    )
    parser.add_argument("--json", type=Path, metavar="F", help="write rows and gates here")
    parser.add_argument("--md", type=Path, metavar="F", help="write the tables here, not to stdout")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"quiet rounds ({ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="a look, not figures to quote")
    parser.add_argument("--workers", help="worker counts (0,1,2,4; quick: 0,2)")
    parser.add_argument("--arms", default=",".join(ARMS), help=f"default: {','.join(ARMS)}")
    parser.add_argument("--seed", type=int, default=1, help="of the order of arms")
    args = parser.parse_args(argv)
    args.arms = args.arms.split(",")
    if unknown := set(args.arms) - set(ARMS):
        parser.error(f"unknown arm {', '.join(sorted(unknown))}; known: {', '.join(ARMS)}")
    try:
        counts = [int(n) for n in (args.workers or ("0,2" if args.quick else "0,1,2,4")).split(",")]
        args.cells = workloads.cells(args.workloads, counts, args.quick)
    except ValueError as error:
        parser.error(str(error))
    args.rounds = args.rounds or (QUICK_ROUNDS if args.quick else ROUNDS)
    return args


def header(args: argparse.Namespace, absent: dict[str, str]) -> dict[str, Any]:
    """Everything a reader needs to know about where the figures come from."""
    found: dict[str, Any] = machine.description()
    found["versions"] = {arm: version(arm) for arm in args.arms if arm not in absent}
    found |= {"rounds": args.rounds, "seed": args.seed, "quick": args.quick}
    if any(cell.kind == "pillow" for cell in args.cells):
        say("preparing images")
        found["images_sha256"] = workloads.prepare_images(DATA)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when it ran, whatever the figures say."""
    args = options(argv)
    began = time.monotonic()
    absent = {arm: note for arm in args.arms if (note := missing(arm))}
    for arm, note in absent.items():
        say(f"{arm}: {note}")
    result: dict[str, Any] = {"header": header(args, absent), "rows": []}
    generator = random.Random(args.seed)
    for number, cell in enumerate(args.cells, 1):
        say(f"{number}/{len(args.cells)} {cell.title}")
        result["rows"] += measure(cell, args.arms, absent, args.rounds, generator)
    result["gates"] = report.gates(result["rows"])
    result["header"]["seconds"] = round(time.monotonic() - began, 1)
    text = report.markdown(result)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    if args.md:
        args.md.write_text(text)
    else:
        print(text)
    for gate in result["gates"]:
        say(f"{gate['gate']}: {gate['result']}")
    return 0


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        try:
            sys.exit(main())
        except KeyboardInterrupt:
            sys.exit(130)
