"""`millhead bench`: a dataset under several loader configurations, and the one to take."""

from __future__ import annotations

import argparse
import datetime
import glob
import json
import os
from pathlib import Path
from typing import Any, NoReturn

from millhead import _bench_check, _bench_configs, _core
from millhead._bench_advice import recommend
from millhead._bench_configs import Config, Wrong
from millhead._bench_matrix import Matrix, Outcome, Settings, go_through, runs_of
from millhead._bench_summary import baseline_of, describe, rows_of
from millhead._bench_table import Progress, table, wants_colour
from millhead._bench_target import DEFAULT
from millhead._options import (
    duration,
    say,
    show,
    terminate_as_interrupt,
    train_step,
    whole,
)

HELP = """\
usage: millhead bench [TARGET] [OPTIONS]

Runs a dataset under several loader configurations, each in processes of its own,
and recommends one. TARGET is MODULE:NAME or FILE.py:NAME: a dataset, or a class or
function that makes one. Without it: millhead.data.Dummy, which costs nothing.

options:
  --configs FILE     YAML: configs: a list of mappings with a name, DataLoader
                     arguments and loader: torch or millhead
                     (default: the standard plan for this machine; see --plan)
  --plan             print the configurations as YAML, and run nothing
  --loader L         torch or millhead, where a configuration does not say
                     (default: millhead)
  --batch-size N     of the standard plan (default: 32)
  --epochs N         (default: 2)
  --limit-batches N  batches of an epoch, or 'all'; nothing is fetched beyond
                     (default: 50)
  --train-step S     seconds, or MODULE:NAME of a function that is given each batch
                     (default: 0.1)
  --repeats N        runs of each configuration, for error bars (default: 3 of the
                     standard plan, 1 with --configs)
  --cold             run each with an emptied page cache too (as root, or with --files)
  --files PATH       the data's file or directory, for --cold; may be repeated
  --time-limit T     for everything, as 90s, 10m or 1h (default: 10m)
  -o DIR             where the runs go; what is finished there is not run again
                     (default: bench-TIME, or the last one if it was killed)
  --continue         go on with the newest bench-TIME
  --cpus N, --gpus N plan for a machine other than this
  --json             one JSON object: configs, recommended, environment
  --help             this text

exit codes: 0 done, 1 no configuration could be measured, 2 usage or configuration,
130 interrupted (what is done is shown and kept)
"""

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


def main(arguments: list[str]) -> int:
    """The verb; returns the exit code."""
    try:
        options = _parse(arguments)
        if options.help:
            show(HELP, end="")
            return 0
        if options.plan:
            show(_as_yaml(_configs(options, streams=True)), end="")
            return 0
        return _bench(options)
    except Wrong as wrong:
        say(str(wrong))
        return EXIT_USAGE
    except KeyboardInterrupt:
        say("interrupted (bench): nothing more was measured")
        return EXIT_INTERRUPTED


# ---- the command line ----------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Wrong(f"{message} (bench): see millhead bench --help")


def _limit(text: str) -> int | None:
    return None if text == "all" else int(whole(1)(text))


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="millhead bench", add_help=False, allow_abbrev=False)
    parser.add_argument("target", nargs="?", default=DEFAULT)
    parser.add_argument("--configs", type=Path)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--loader", choices=_bench_configs.LOADERS, default="millhead")
    parser.add_argument("--batch-size", type=whole(1), default=32)
    parser.add_argument("--epochs", type=whole(1), default=2)
    parser.add_argument("--limit-batches", type=_limit, default=50)
    parser.add_argument("--train-step", type=train_step, default=0.1)
    parser.add_argument("--repeats", type=whole(1))
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--files", action="append", default=[])
    parser.add_argument("--time-limit", type=duration, default=600.0)
    parser.add_argument("-o", dest="output", type=Path)
    parser.add_argument("--continue", dest="go_on", action="store_true")
    parser.add_argument("--cpus", type=whole(1))
    parser.add_argument("--gpus", type=whole(0))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-h", "--help", action="store_true")
    options = parser.parse_args(arguments)
    for name in options.files:
        if not os.path.exists(name):
            raise Wrong(f"no file or directory '{name}' (--files): name the data's")
    if options.files and not options.cold:
        raise Wrong("--files is for --cold (bench): give both")
    if options.repeats is None:  # a file of configurations is run as it says
        options.repeats = 3 if options.configs is None else 1
    return options


def _configs(options: argparse.Namespace, streams: bool) -> list[Config]:
    if options.configs is not None:
        return _bench_configs.read(options.configs, options.loader)
    gpus = len(glob.glob("/dev/nvidia[0-9]*")) if options.gpus is None else options.gpus
    cpus = _core.cpus() if options.cpus is None else options.cpus
    workers = _core.plan_workers(cpus, max(1, gpus))
    return _bench_configs.standard(cpus, workers, options.batch_size, pin=gpus > 0, streams=streams)


def _as_yaml(configs: list[Config]) -> str:
    """What --configs would read; values are JSON, which is YAML."""
    lines = ["configs:"]
    for config in configs:
        pairs = [f"{key}: {json.dumps(value)}" for key, value in config.given.items()]
        threads = config.given.get("worker_threads")
        streaming = f" + {threads} streaming (threads in each)" if threads else ""
        lines.append(f"- {{{', '.join(pairs)}}} # {config.workers} loader{streaming}")
    return "\n".join(lines) + "\n"


def _output(options: argparse.Namespace) -> Path:
    if options.output is not None:
        found: Path = options.output
        return found
    if options.go_on:
        earlier = sorted(Path.cwd().glob("bench-[0-9]*"))
        if not earlier:
            raise Wrong("no bench-TIME here (--continue): name the directory with -o")
        return earlier[-1].relative_to(Path.cwd())
    return Path(f"bench-{datetime.datetime.now():%Y%m%d-%H%M%S}")


def _killed(configs: list[Config], settings: Settings) -> Matrix | None:
    """The newest bench-TIME here, where it holds these very runs and was killed before its end:
    it has no bench.json, which one that is interrupted writes too."""
    earlier = sorted(Path().glob("bench-[0-9]*"))
    runs = runs_of(configs, settings)
    if not earlier or (earlier[-1] / "bench.json").exists():
        return None
    if not any((earlier[-1] / run.name / "run.json").is_file() for run in runs):
        return None  # not a benchmark's, perhaps
    try:
        matrix = Matrix(earlier[-1], settings)
    except Wrong:  # it still runs, or is somebody else's
        return None
    try:
        done = sum(matrix.finished(run) is not None for run in runs)
    except Wrong:  # of other runs
        done = 0
    if done:
        say(
            f"{matrix.directory} was killed with {done} of {len(runs)} runs done (bench): going on "
            "there; -o DIR begins anew"
        )
        return matrix
    matrix.close()
    return None


# ---- the benchmark -------------------------------------------------------------------------------


def _bench(options: argparse.Namespace) -> int:
    terminate_as_interrupt()
    configs = _configs(options, streams=False)
    seen = _bench_check.look(options.target, options.train_step, configs, options.time_limit)
    if seen["streams"]:
        configs = _configs(options, streams=True)
    settings = Settings(
        target=options.target,
        epochs=options.epochs,
        limit_batches=options.limit_batches,
        train_step=options.train_step,
        repeats=options.repeats,
        cold=options.cold,
        files=tuple(os.path.abspath(name) for name in options.files),
    )
    matrix = None
    if options.output is None and not options.go_on:
        matrix = _killed(configs, settings)
    matrix = matrix or Matrix(_output(options), settings)
    try:
        outcomes, interrupted = _run(matrix, configs, options.time_limit)
        report = _report(configs, outcomes, seen["environment"])
        _save(matrix.directory / "bench.json", report)
    finally:
        matrix.close()
    return _show(options, report, matrix, interrupted)


def _run(matrix: Matrix, configs: list[Config], seconds: float) -> tuple[list[Outcome], bool]:
    """The outcomes so far, and whether Ctrl-C or SIGTERM ended it."""
    runs = runs_of(configs, matrix.settings)
    progress = Progress(len(runs))
    outcomes: list[Outcome] = []
    try:
        outcomes.extend(go_through(matrix, runs, seconds, progress.tell))
    except KeyboardInterrupt:
        return outcomes, True
    finally:
        progress.end()
    return outcomes, False


def _report(
    configs: list[Config], outcomes: list[Outcome], environment: dict[str, Any]
) -> dict[str, Any]:
    rows = rows_of(configs, outcomes)
    baseline = baseline_of(rows)
    recommended = None
    if baseline is not None:
        chosen, reason = recommend(rows, baseline)
        recommended = {"name": chosen.config.name, "reason": reason}
    return {
        "configs": [describe(row, baseline) for row in rows],
        "recommended": recommended,
        "baseline": baseline.config.name if baseline else None,
        "environment": environment,
    }


def _save(path: Path, report: dict[str, Any]) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(report, indent=1) + "\n")
    part.replace(path)


def _show(
    options: argparse.Namespace, report: dict[str, Any], matrix: Matrix, interrupted: bool
) -> int:
    directory, recommended = matrix.directory, report["recommended"]
    if options.json:
        show(json.dumps(report))
    else:
        show(table(report, wants_colour()))
        if recommended:
            show(f"\nrecommended: {recommended['name']}: {recommended['reason']}")
        show(f"logs and bench.json: {directory}")
    if interrupted:
        say(f"interrupted ({directory}): what is done is kept; -o {directory} goes on from there")
        return EXIT_INTERRUPTED
    if matrix.missing:
        say(
            f"time is up with {len(matrix.missing)} runs left (--time-limit): -o {directory} goes "
            "on from there, --limit-batches shortens"
        )
    elif not recommended:
        first = next(row["error"] for row in report["configs"] if row["error"])
        say(f"no configuration could be measured: {first} ({options.target}): see {directory}")
    return 0 if recommended else EXIT_FAILED
