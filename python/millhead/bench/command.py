"""`millhead bench`: a dataset under several loader configurations, and the one to use."""

from __future__ import annotations

import argparse
import datetime
import glob
import json
import os
import time
from pathlib import Path
from typing import Any

from millhead import _command_line as cli
from millhead import _core
from millhead.bench import configs
from millhead.bench.check import check_target
from millhead.bench.child import Settings
from millhead.bench.configs import Config
from millhead.bench.report import make_report, table
from millhead.bench.runs import BenchDirectory, Outcome, Run, run_all, runs_of

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


def main(arguments: list[str]) -> int:
    """The verb; returns the exit code."""
    return cli.run_verb(
        HELP, lambda: _parse(arguments), _bench, "(bench): nothing more was measured"
    )


# ---- the command line ----------------------------------------------------------------------------


def _limit(text: str) -> int | None:
    return None if text == "all" else cli.whole(1)(text)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = cli.Parser("bench")
    parser.add_argument("target", nargs="?", default="millhead.data:Dummy")
    parser.add_argument("--configs", type=Path)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--loader", choices=configs.LOADERS, default="millhead")
    parser.add_argument("--batch-size", type=cli.whole(1), default=32)
    parser.add_argument("--epochs", type=cli.whole(1), default=2)
    parser.add_argument("--limit-batches", type=_limit, default=50)
    parser.add_argument("--train-step", type=cli.train_step, default=0.1)
    parser.add_argument("--repeats", type=cli.whole(1))
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--files", action="append", default=[])
    parser.add_argument("--time-limit", type=cli.duration, default=600.0)
    parser.add_argument("-o", dest="output", type=Path)
    parser.add_argument("--continue", dest="go_on", action="store_true")
    parser.add_argument("--cpus", type=cli.whole(1))
    parser.add_argument("--gpus", type=cli.whole(0))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    for name in options.files:
        if not os.path.exists(name):
            raise cli.UsageError(f"no file or directory '{name}' (--files): name the data's")
    if options.files and not options.cold:
        raise cli.UsageError("--files is for --cold (bench): give both")
    if options.repeats is None:  # a file of configurations is run as it says
        options.repeats = 3 if options.configs is None else 1
    return options


def _configs(options: argparse.Namespace, streams: bool) -> list[Config]:
    if options.configs is not None:
        return configs.read(options.configs, options.loader)
    gpus = len(glob.glob("/dev/nvidia[0-9]*")) if options.gpus is None else options.gpus
    cpus = _core.cpus() if options.cpus is None else options.cpus
    workers = _core.plan_workers(cpus, max(1, gpus))
    return configs.standard(cpus, workers, options.batch_size, pin=gpus > 0, streams=streams)


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
            raise cli.UsageError("no bench-TIME here (--continue): name the directory with -o")
        return earlier[-1].relative_to(Path.cwd())
    return Path(f"bench-{datetime.datetime.now():%Y%m%d-%H%M%S}")


def _killed(runs: list[Run], settings: Settings) -> BenchDirectory | None:
    """The newest bench-TIME here, where it holds these very runs and was killed before its end:
    it has no bench.json, which one that is interrupted writes too."""
    earlier = sorted(Path().glob("bench-[0-9]*"))
    if not earlier or (earlier[-1] / "bench.json").exists():
        return None
    if not any((earlier[-1] / run.name / "run.json").is_file() for run in runs):
        return None  # not a benchmark's, perhaps
    try:
        bench = BenchDirectory(earlier[-1], settings)
    except cli.UsageError:  # it still runs, or is somebody else's
        return None
    try:
        done = sum(bench.finished(run) is not None for run in runs)
    except cli.UsageError:  # of other runs
        done = 0
    if done:
        cli.say(
            f"{bench.directory} was killed with {done} of {len(runs)} runs done (bench): going on "
            "there; -o DIR begins anew"
        )
        return bench
    bench.close()
    return None


# ---- the benchmark -------------------------------------------------------------------------------


def _bench(options: argparse.Namespace) -> int:
    if options.plan:
        cli.show(_as_yaml(_configs(options, streams=True)), end="")
        return 0
    cli.terminate_as_interrupt()
    configs = _configs(options, streams=False)
    seen = check_target(options.target, options.train_step, configs, options.time_limit)
    if seen["streams"]:
        configs = _configs(options, streams=True)
    settings = Settings(
        target=options.target,
        train_step=options.train_step,
        epochs=options.epochs,
        limit_batches=options.limit_batches,
        files=tuple(os.path.abspath(name) for name in options.files),
    )
    runs = runs_of(configs, options.repeats, options.cold)
    bench = None
    if options.output is None and not options.go_on:
        bench = _killed(runs, settings)
    bench = bench or BenchDirectory(_output(options), settings)
    try:
        outcomes, interrupted = _run(bench, runs, options.time_limit)
        report = make_report(configs, outcomes, seen["environment"])
        path = bench.directory / "bench.json"
        part = path.with_name(f".{path.name}.part")
        part.write_text(json.dumps(report, indent=1) + "\n")
        part.replace(path)
    finally:
        bench.close()
    return _show(options, report, bench, interrupted)


def _run(bench: BenchDirectory, runs: list[Run], seconds: float) -> tuple[list[Outcome], bool]:
    """The outcomes so far, and whether Ctrl-C or SIGTERM ended it."""
    progress = Progress(len(runs))
    outcomes: list[Outcome] = []
    try:
        outcomes.extend(run_all(bench, runs, seconds, progress.begin))
    except KeyboardInterrupt:
        return outcomes, True
    finally:
        progress.end()
    return outcomes, False


class Progress(cli.ProgressLine):
    """How far the runs are."""

    def __init__(self, runs: int) -> None:
        super().__init__()
        self.runs = runs
        self.began = time.monotonic()
        self.first: int | None = None

    def begin(self, number: int, run: Run) -> None:
        """A run begins; how long the rest takes is guessed from those before it."""
        self.first = number if self.first is None else self.first
        finished = number - self.first
        left = ""
        if finished:
            seconds = (time.monotonic() - self.began) / finished * (self.runs - number)
            about = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
            left = f"about {about} left; "
        self.show(number / self.runs, f"{left}{number + 1} of {self.runs}: {run.name}")


def _show(
    options: argparse.Namespace, report: dict[str, Any], bench: BenchDirectory, interrupted: bool
) -> int:
    directory, recommended = bench.directory, report["recommended"]
    if options.json:
        cli.show(json.dumps(report))
    else:
        cli.show(table(report, cli.wants_colour()))
        if recommended:
            settings = ", ".join(
                f"{name}={value!r}"
                for name, value in recommended["config"].items()
                if name != "name"
            )
            cli.show(f"\nrecommended: {recommended['name']}: {recommended['reason']}")
            cli.show(f"its settings: {settings}")
        cli.show(f"logs and bench.json: {directory}")
    if interrupted:
        cli.say(
            f"interrupted ({directory}): what is done is kept; -o {directory} goes on from there"
        )
        return cli.EXIT_INTERRUPTED
    if bench.missing:
        cli.say(
            f"time is up with {len(bench.missing)} runs left (--time-limit): -o {directory} goes "
            "on from there, --limit-batches shortens"
        )
    elif not recommended:
        first = next(row["error"] for row in report["configs"] if row["error"])
        cli.say(f"no configuration could be measured: {first} ({options.target}): see {directory}")
    return 0 if recommended else cli.EXIT_FAILED
