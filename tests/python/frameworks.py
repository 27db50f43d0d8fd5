"""Runs frameworks with torch's iterators and with ours, and compares what their users see.

    python frameworks.py --json
    python frameworks.py --only lightning --only ignite --seed 3 --samples 100 --workers 4

Each framework runs in processes of its own. Prints, with --json as one object:

    {"frameworks": {NAME: {"iterator": "millhead", "batches_equal": true, "batches": 21, ...}}}

``iterator`` names who made the iterators in the run that should be ours: nothing but ``millhead``
where all is well. What is compared: batches, the generators afterwards, the trained weights, in every
rank. The exit status is 1 when anything differs, 2 when a framework could not be run.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import importlib
import json
import os
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from helpers import compare, procs
from helpers.framework_scenes import FRAMEWORKS, Framework, Sizes

SECONDS = 480.0  # most that one framework may take, on a machine with much else to do


# --- one process ---


@contextlib.contextmanager
def iterators_made() -> Iterator[set[str]]:
    """The packages whose classes the iterators made meanwhile are of."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    made: set[str] = set()
    begin = _BaseDataLoaderIter.__init__

    def note(self: Any, loader: Any) -> None:
        made.add(type(self).__module__.partition(".")[0])
        begin(self, loader)

    _BaseDataLoaderIter.__init__ = note  # type: ignore[method-assign]
    try:
        yield made
    finally:
        _BaseDataLoaderIter.__init__ = begin  # type: ignore[method-assign]


def _count_batches(seen: Any) -> int:
    """The dictionaries in what a scene has seen: every batch is one."""
    if isinstance(seen, dict):
        return 1
    return sum(map(_count_batches, seen)) if isinstance(seen, list | tuple) else 0


def _observe(scene: Callable[..., Any], cls: Any, sizes: Sizes, seed: int) -> tuple[Any, ...]:
    compare.seed_everything(seed)
    with iterators_made() as made:
        seen = scene(cls, sizes)
    gc.collect()  # frameworks make cycles: end their workers now
    return (compare.describe(seen), compare.rng_states()), made, _count_batches(seen)


def in_this_process(framework: Framework, sizes: Sizes, seed: int) -> dict[str, Any]:
    """Every scene: with our iterators by install(), by import where that reaches, with torch's."""
    import millhead.torch
    import torch
    import torch.utils.data

    torch.set_num_threads(1)
    importlib.import_module(framework.module)
    torchs, ours = torch.utils.data.DataLoader, millhead.torch.DataLoader
    if framework.launcher != "lightning":  # there, `millhead run` must have done it in every rank
        millhead.torch.install()
    kinds, baseline = set(), set()
    batches, differences = 0, []
    for scene in framework.scenes:
        observed = {"install": _observe(scene, torchs, sizes, seed)}
        millhead.torch.uninstall()
        if hasattr(scene, "keeps_class"):
            observed["import"] = _observe(scene, ours, sizes, seed)
        expected, made, count = _observe(scene, torchs, sizes, seed)
        millhead.torch.install()
        baseline |= made
        batches += count
        for way, (found, made, _) in observed.items():
            kinds |= made
            if place := compare.difference(expected, found):
                differences.append(f"{scene.__name__} by {way}: {place}")
    millhead.torch.uninstall()
    if torch.distributed.is_initialized():  # else torch now and then aborts the process at its end
        gc.collect()  # models in cycles would keep the group's threads
        torch.distributed.destroy_process_group()
    return {
        "iterators": "+".join(sorted(kinds)) or "none",
        "baseline": "+".join(sorted(baseline)) or "none",
        "batches": batches,
        "differences": differences,
    }


# --- all of them ---


def _command(name: str, options: argparse.Namespace, directory: str) -> list[str]:
    framework = FRAMEWORKS[name]
    program = [__file__, "--rank-of", name, "--into", directory, "--seed", str(options.seed)]
    for size in ("samples", "batch-size", "workers", "epochs"):
        program += [f"--{size}", str(getattr(options, size.replace("-", "_")))]
    if framework.launcher == "lightning":
        command = os.path.join(sysconfig.get_path("scripts"), "millhead")
        return [command, "run", *program]
    torchrun = ["-m", "torch.distributed.run", "--standalone"]
    ranks = [*torchrun, "--nproc-per-node", str(framework.ranks)] if framework.ranks > 1 else []
    return [sys.executable, *ranks, *program]


def run(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One framework in processes of its own: what all its ranks say together."""
    environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory() as directory:
        done = procs.run(_command(name, options, directory), seconds=SECONDS, env=environment)
        ranks = [json.loads(path.read_text()) for path in sorted(Path(directory).iterdir())]
    if done.returncode or len(ranks) != FRAMEWORKS[name].ranks:
        told = f"{name}: exit status {done.returncode}, {len(ranks)} ranks told"
        raise RuntimeError(f"{told}\n{done.stdout}\n{done.stderr}")
    differences = [
        f"rank {number}: {text}"
        for number, rank in enumerate(ranks)
        for text in rank["differences"]
    ]
    baseline = sorted({rank["baseline"] for rank in ranks})
    if baseline != ["torch"]:
        differences.append(f"compared with iterators of {baseline}, not of torch")
    return {
        "iterator": " ".join(sorted({rank["iterators"] for rank in ranks})),
        "batches_equal": not differences,
        "batches": sum(rank["batches"] for rank in ranks),
        "ranks": len(ranks),
        "left_running": len(done.left),  # type: ignore[attr-defined]
        "differences": differences,
    }


def is_good(report: dict[str, Any]) -> bool:
    """Whether every iterator was ours, nothing differed and nothing is left."""
    ours = report["iterator"] == "millhead" and report["batches"] > 0
    return bool(ours and report["batches_equal"] and not report["left_running"])


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The options of this program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", choices=FRAMEWORKS, help="again for more")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--samples", type=int, default=Sizes.samples)
    parser.add_argument("--batch-size", type=int, default=Sizes.batch_size)
    parser.add_argument("--workers", type=int, default=Sizes.workers)
    parser.add_argument("--epochs", type=int, default=Sizes.epochs)
    parser.add_argument("--rank-of", choices=FRAMEWORKS, help=argparse.SUPPRESS)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main() -> int:
    options = arguments()
    if options.rank_of:
        faulthandler.dump_traceback_later(SECONDS - 20, exit=True)
        sizes = Sizes(options.samples, options.batch_size, options.workers, options.epochs)
        report = in_this_process(FRAMEWORKS[options.rank_of], sizes, options.seed)
        rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or "0"
        (options.into / f"{rank}.json").write_text(json.dumps(report))
        return 0
    reports = {}
    for name in options.only or FRAMEWORKS:
        try:
            reports[name] = run(name, options)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 2
        if not options.json:
            print(name, reports[name], flush=True)
    if options.json:
        print(json.dumps({"frameworks": reports}))
    return 0 if all(map(is_good, reports.values())) else 1


if __name__ == "__main__":
    sys.exit(main())
