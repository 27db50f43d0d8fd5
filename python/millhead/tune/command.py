"""`millhead tune`: find the loader's settings for a dataset and a train step, without a grid search."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from millhead import _command_line as cli
from millhead import _core
from millhead._arguments import parse_memory
from millhead.bench.check import check_target
from millhead.bench.child import Settings
from millhead.bench.configs import LOADERS, Config
from millhead.bench.runs import BenchDirectory, OutOfTime
from millhead.tune import output
from millhead.tune.measurements import Limits, Setting
from millhead.tune.search import Failed, NothingFits, Search
from millhead.tune.trials import Trials

HELP = """\
usage: millhead tune TARGET [OPTIONS]

Finds the number of workers, prefetch, dispatch and threads for a dataset and a train
step: measures it without workers, predicts the rest by replay, tries the predicted best
and its neighbours, and stops when another step gains less than noise.
TARGET is MODULE:NAME or FILE.py:NAME: a dataset, or a class or function that makes one.

options:
  --train-step S     seconds of a step, or MODULE:NAME of a function that is given each
                     batch (default: 0.1)
  --batch-size N,... samples of a batch; several: the sizes it may choose from
                     (default: 32)
  --max-workers N    (default: 4 for each allowed CPU, at least 16; more than there are
                     CPUs are taken only where they wait and do not compute)
  --memory SIZE      of the process and its workers, as 2GB (default: what is available)
  --loader L         torch or millhead (default: millhead)
  --time-limit T     for everything, as 90s, 10m or 1h (default: 2m)
  -o FILE            write the best there, as YAML (or JSON, where it ends so): for
                     DataLoader(dataset, **millhead.load_config(FILE)) and
                     millhead bench --configs FILE
  --json             one JSON object: best, samples_per_s, tried, stopped_because, seconds
  --help             this text

exit codes: 0 done, 1 TARGET fails or there was no time, 2 usage, or nothing fits the
limits, 130 interrupted (what is known is shown)
"""

#: Workers that wait for storage or a network need no CPU each.
WORKERS_A_CPU, LEAST_LIMIT = 4, 16


def main(arguments: list[str]) -> int:
    """The verb; returns the exit code."""
    return cli.run_verb(HELP, lambda: _parse(arguments), _tune, "(tune): nothing was measured yet")


# ---- the command line ----------------------------------------------------------------------------


def _sizes(text: str) -> tuple[int, ...]:
    read = cli.whole(1)
    return tuple(dict.fromkeys(read(part) for part in text.split(",")))


def _bytes(text: str) -> int:
    try:
        size = parse_memory(text)
    except ValueError:
        size = None
    if size is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size like 2GB or 512 MiB")
    return size


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = cli.Parser("tune")
    parser.add_argument("target", nargs="?")
    parser.add_argument("--train-step", type=cli.train_step, default=0.1)
    parser.add_argument("--batch-size", type=_sizes, default=(32,))
    parser.add_argument("--max-workers", type=cli.whole(0))
    parser.add_argument("--memory", type=_bytes)
    parser.add_argument("--loader", choices=LOADERS, default="millhead")
    parser.add_argument("--time-limit", type=cli.duration, default=120.0)
    parser.add_argument("-o", dest="output", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.target is None and not options.help:
        raise cli.UsageError("no TARGET (tune): give MODULE:NAME or FILE.py:NAME of a dataset")
    if options.output is not None:
        output.write(options.output, None)  # not after minutes of measuring
    return options


def _limits(options: argparse.Namespace, streams: bool) -> Limits:
    cpus = _core.cpus()
    workers = options.max_workers
    return Limits(
        batch_sizes=options.batch_size,
        most_workers=max(LEAST_LIMIT, WORKERS_A_CPU * cpus) if workers is None else workers,
        cpus=cpus,
        memory=_core.memory()[1] if options.memory is None else options.memory,
        streams=streams,
        loader=options.loader,
    )


# ---- the search ----------------------------------------------------------------------------------


def _tune(options: argparse.Namespace) -> int:
    began = time.monotonic()
    cli.terminate_as_interrupt()  # trials and their directory go in either case
    first = Setting(options.batch_size[0]).given("first", options.loader)
    seen = check_target(
        options.target,
        options.train_step,
        [Config("first", first, options.loader)],
        options.time_limit,
    )
    limits = _limits(options, seen["streams"])
    with tempfile.TemporaryDirectory(
        prefix="millhead-tune-", ignore_cleanup_errors=True
    ) as directory:
        progress = output.Progress(options.time_limit)
        settings = Settings(target=options.target, train_step=options.train_step)
        bench = BenchDirectory(Path(directory), settings)
        trials = Trials(bench, limits, began + options.time_limit, progress.begin)
        search = Search(trials, limits)
        try:
            code, because = _search(search, options)
        finally:
            progress.end()
            bench.close()
    if not because:
        return code
    report = output.report_of(search, because, time.monotonic() - began)
    return _show(options, report, code)


def _search(search: Search, options: argparse.Namespace) -> tuple[int, str]:
    """The exit code, and why the search ended; no reason: there is nothing to show."""
    try:
        search.run()
    except Failed as failed:
        cli.say(f"{failed} ({options.target}): correct it, or the dataset it makes")
        return cli.EXIT_FAILED, ""
    except NothingFits as why:
        cli.say(
            f"nothing fits: even without workers it {why} of {search.limits.memory / 1e6:.4g} MB "
            "(--memory): allow more, or give a smaller --batch-size"
        )
        return cli.EXIT_USAGE, ""
    except OutOfTime:
        if not search.tried:
            cli.say(
                f"time was up before the first trial ended (--time-limit): give more than "
                f"{options.time_limit:g}s"
            )
            return cli.EXIT_FAILED, ""
        because = f"time is up after {options.time_limit:g} s (--time-limit)"
        noisy = "; so far it is noisier than any difference" if search.is_noisier() else ""
        return 0, because + noisy
    except KeyboardInterrupt:
        if not search.tried:
            raise
        return cli.EXIT_INTERRUPTED, "interrupted"
    return 0, search.why_stopped()


def _show(options: argparse.Namespace, report: dict[str, Any], code: int) -> int:
    if options.output is not None:
        output.write(options.output, output.as_file(report, options.output))
    if options.json:
        cli.show(json.dumps(report))
    else:
        cli.show(output.table(report, cli.wants_colour()))
        cli.show(f"\nstopped because: {report['stopped_because']}")
        count = len(report["tried"])
        cli.show(f"{count} setting{'s' if count > 1 else ''} in {report['seconds']:.0f} s\n")
        cli.show(output.as_yaml(report), end="")
        if options.output is not None:
            cli.show(f"\nwritten to {options.output}")
    if code == cli.EXIT_INTERRUPTED:
        cli.say("interrupted (tune): the best so far is shown")
    return code
