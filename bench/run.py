"""Compare loaders side by side: interleaved rounds, paired ratios, an A/A row.

Every arm has its own process in its own environment; one is active at a time. In each round all
arms run a block in random order; reported are the median over rounds of the ratio to torch with a
bootstrap 95 % interval, the highest rate, and processor time per sample. Where the first batch of a
process or its memory is measured, every block has a new process. See bench/README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import machine
import ratios
import report
import workloads
from arms import unsuitable
from ratios import Block, Round
from session import DATA, ArmFailed, Session, missing, version
from workloads import ARMS, ROUNDS, SLOW_ROUNDS, Cell

EXTRA_ROUNDS = 0.5  # at most this share more, to replace discarded rounds


@dataclass(frozen=True)
class Measured:
    """What the rounds of a cell gave; notes say why an arm is not among them."""

    rounds: list[Round]
    parity: dict[str, str]
    stats: dict[str, dict[str, Any]]
    notes: dict[str, str]


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
    return compare({arm: session.ask(do="parity")["digests"] for arm, session in sessions.items()})


def compare(answers: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Say for every arm whether its batches are torch's."""
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


def quiet(cell: Cell, rounds: Sequence[Round]) -> list[Round]:
    """The rounds that count: all of them where seconds are not what is judged."""
    return ratios.quiet(rounds) if cell.timed else list(rounds)


def run_rounds(
    cell: Cell, arms: Sequence[str], run_block: Callable[[str], Block], generator: random.Random
) -> list[Round]:
    """Run rounds until enough quiet ones are there or the allowance is used."""
    rounds: list[Round] = []
    most = cell.rounds + int(cell.rounds * EXTRA_ROUNDS)
    while len(quiet(cell, rounds)) < cell.rounds and len(rounds) < most:
        before = machine.Ticks.now()
        blocks = {arm: run_block(arm) for arm in generator.sample(sorted(arms), len(arms))}
        rounds.append(Round(blocks, before.steal_share(machine.Ticks.now())))
    return rounds


def measure_kept(cell: Cell, arms: Sequence[str], generator: random.Random) -> Measured:
    """Rounds in which every arm keeps its process."""
    with contextlib.ExitStack() as stack:
        sessions, notes = open_sessions(cell, arms, stack)
        parity = check_parity(sessions)
        for session in sessions.values():
            session.block(cell.block_s)  # to warm up
            session.ask(do="stats", reset=True)
        rounds = run_rounds(
            cell, list(sessions), lambda arm: sessions[arm].block(cell.block_s), generator
        )
        stats = {arm: session.ask(do="stats", reset=False) for arm, session in sessions.items()}
        if cell.repeatable:
            parity = _worst(parity, check_parity(sessions))
    return Measured(rounds, parity, stats, notes)


def measure_fresh(cell: Cell, arms: Sequence[str], generator: random.Random) -> Measured:
    """Rounds in which every block has a new process; the batches compared are those timed."""
    stats: dict[str, dict[str, Any]] = {}

    def run_block(arm: str) -> Block:
        with Session(arm, cell) as session:
            session.wait_ready()
            block = session.block(cell.block_s)
            stats[arm] = session.ask(do="stats", reset=False)
        return block

    rounds = run_rounds(cell, arms, run_block, generator)
    parity: dict[str, str] = {}
    for round_ in rounds:
        found = compare({arm: block.digests for arm, block in round_.blocks.items()})
        parity = _worst(parity, found)
    return Measured(rounds, parity, stats, {})


def _worst(parity: dict[str, str], later: dict[str, str]) -> dict[str, str]:
    """What was found before, unless batches differed later."""
    changed = {a: v for a, v in later.items() if a not in parity or v.startswith("differs")}
    return parity | changed


def measure(
    cell: Cell, arms: Sequence[str], absent: dict[str, str], generator: random.Random
) -> list[dict[str, Any]]:
    """All rows of one cell."""
    arms = [arm for arm in arms if arm in cell.arms]
    present = [arm for arm in arms if arm not in absent]
    try:
        found = (measure_fresh if cell.fresh else measure_kept)(cell, present, generator)
    except ArmFailed as error:
        say(f"{cell.title}: {error}")
        return [report.empty_row(cell, arm, f"failed: {error}") for arm in arms]
    kept = quiet(cell, found.rounds)
    notes = found.notes | absent
    tried = len(found.rounds)
    if not kept:
        notes |= dict.fromkeys(found.parity, f"not measured: none of {tried} rounds was quiet")
    return [
        report.empty_row(cell, arm, notes[arm])
        if arm in notes
        else report.row(cell, arm, kept, tried, found.parity[arm], found.stats[arm])
        for arm in arms
    ]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    known = ", ".join(workloads.WORKLOADS)
    found = argparse.ArgumentParser(prog="bench/run.py", description=__doc__.splitlines()[0])
    found.add_argument(
        "workloads",
        nargs="*",
        default=workloads.WORKLOADS,
        metavar="WORKLOAD",
        help=f"{known}, or a kind: W11:int, W12:fork4 (default: all)",
    )
    found.add_argument("--json", type=Path, metavar="F", help="write rows and gates here")
    found.add_argument("--md", type=Path, metavar="F", help="write the tables here, not to stdout")
    found.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help=f"quiet rounds ({ROUNDS}; {SLOW_ROUNDS} to 5 where torch is slow)",
    )
    found.add_argument("--quick", action="store_true", help="a look, not figures to quote")
    found.add_argument(
        "--workers", help="worker counts of W11, W1p (0,1,2,4; quick: 0,2) and TD (0,2)"
    )
    found.add_argument(
        "--arms",
        default=",".join(ARMS),
        help=f"of {','.join(ARMS)}; default: all that a workload is for",
    )
    found.add_argument("--seed", type=int, default=1, help="of the order of arms")
    return found


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    reader = parser()
    args = reader.parse_args(argv)
    args.arms = args.arms.split(",")
    if unknown := set(args.arms) - set(ARMS):
        reader.error(f"unknown arm {', '.join(sorted(unknown))}; known: {', '.join(ARMS)}")
    if args.rounds is not None and args.rounds < 1:
        reader.error("--rounds wants 1 or more")
    try:
        counts = [int(n) for n in (args.workers or ("0,2" if args.quick else "0,1,2,4")).split(",")]
        args.cells = workloads.cells(args.workloads, counts, args.quick)
    except ValueError as error:
        reader.error(str(error))
    if args.rounds:
        args.cells = [replace(cell, rounds=args.rounds) for cell in args.cells]
    args.arms = [arm for arm in args.arms if any(arm in cell.arms for cell in args.cells)]
    return args


def header(args: argparse.Namespace, absent: dict[str, str]) -> dict[str, Any]:
    """Everything a reader needs to know about where the figures come from."""
    found: dict[str, Any] = machine.description()
    found["versions"] = {arm: version(arm) for arm in args.arms if arm not in absent}
    found |= {"rounds": max(cell.rounds for cell in args.cells), "seed": args.seed}
    found["quick"] = args.quick
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
        result["rows"] += measure(cell, args.arms, absent, generator)
    result["gates"] = report.gates(result["rows"])
    result["header"]["seconds"] = round(time.monotonic() - began, 1)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    text = report.markdown(result)
    if args.md:
        args.md.write_text(text)
    else:
        print(text)
    for gate in result["gates"]:
        ratio = "" if gate["ratio"] is None else f"; ratio {gate['ratio']:.2f}"
        say(f"{gate['gate']}: {gate['result']}{ratio}")
    return 0


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        try:
            sys.exit(main())
        except KeyboardInterrupt:
            sys.exit(130)
