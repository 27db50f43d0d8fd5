"""One run of one configuration, in a process of its own: ``python -P -m millhead.bench.child JOB``.

JOB is the path of a JSON file; its keys are the fields of :class:`Job`. The run's events go into the
job's directory, and ``result.json`` beside them says what was measured, or in one line what failed.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from millhead._command_line import UsageError
from millhead.bench.configs import Config, find_object

_PR_SET_PDEATHSIG = 1
#: A sleep ends late by what waking up takes; the rest of the step is spent looking at the clock.
_WAKE_NS = 200_000


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What all runs of a benchmark share."""

    target: str
    train_step: float | str
    epochs: int = 1
    limit_batches: int | None = None
    #: Empty the page cache first: of these files, or all of it where none are named.
    cold: bool = False
    files: tuple[str, ...] = ()
    #: Stop after these seconds, but not before these batches; None: at the end.
    limit_s: float | None = None
    least_batches: int | None = None


@dataclass(frozen=True, kw_only=True)
class Job(Settings):
    """One run, as its process reads it."""

    config: dict[str, Any]
    loader: str
    #: Its directory.
    run: str
    parent: int = 0

    def measured(self) -> dict[str, Any]:
        """What of it the numbers depend on: another run with the same is the same run."""
        same = asdict(self)
        del same["run"], same["parent"]
        return same


# ---- the dataset ---------------------------------------------------------------------------------


def make_dataset(text: str) -> Any:
    """The dataset called ``text``: the object itself, or what the class or function makes."""
    found = find_object(text, "TARGET")
    if not is_dataset(found) and callable(found):
        found = found()
    if not is_dataset(found):
        raise UsageError(
            f"'{text}' gives {type(found).__name__}, not a dataset (TARGET): it needs __getitem__ and "
            "__len__, or __iter__"
        )
    return found


def is_dataset(found: Any) -> bool:
    """Whether it is one already, and not what makes one."""
    kind = type(found)
    holds = hasattr(kind, "__getitem__") or hasattr(kind, "__iter__")
    return holds and not isinstance(found, type)


# ---- the loader ----------------------------------------------------------------------------------


class LimitedSampler:
    """A sampler of batches that ends after some: what is not asked for is not fetched."""

    def __init__(self, sampler: Any, most: int) -> None:
        self.sampler = sampler
        self.most = most

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self.sampler), self.most)

    def __len__(self) -> int:
        return min(len(self.sampler), self.most)


def make_loader(config: Config, dataset: Any, limit_batches: int | None) -> Any:
    """The DataLoader of a configuration; raises what its constructor raises, or UsageError."""
    arguments = config.arguments()
    if config.loader == "torch":
        from torch.utils.data import DataLoader

        return limit_sampler(DataLoader(dataset, **arguments), limit_batches)
    import torch

    import millhead.torch

    if arguments.get("prefetch_epoch"):
        arguments["generator"] = torch.Generator().manual_seed(0)
    return millhead.torch.DataLoader(dataset, limit_batches=limit_batches, **arguments)


def limit_sampler(loader: Any, most: int | None) -> Any:
    """Bound a loader of torch's own: break would leave prefetched batches behind.

    torch forbids setting its samplers, against surprises after the first ``iter()``. This is before
    it, and draws the same up to the end.
    """
    if most is not None:
        name = "sampler" if loader.batch_sampler is None else "batch_sampler"
        loader.__dict__[name] = LimitedSampler(getattr(loader, name), most)
    return loader


# ---- the step ------------------------------------------------------------------------------------


def step_of(text: float | str) -> Callable[[Any], Any]:
    """The train step: a time to pass, or the user's callable, given each batch."""
    if isinstance(text, str):
        found = find_object(text, "--train-step")
        step = found() if isinstance(found, type) else found
        if not callable(step):
            raise UsageError(f"'{text}' is not callable (--train-step): give a function of a batch")
        return step  # type: ignore[no-any-return]
    nanoseconds = round(text * 1e9)

    def pass_time(_batch: Any) -> None:
        end = time.perf_counter_ns() + nanoseconds
        if nanoseconds > _WAKE_NS:
            time.sleep((nanoseconds - _WAKE_NS) / 1e9)
        while time.perf_counter_ns() < end:
            pass

    return pass_time


# ---- the loop ------------------------------------------------------------------------------------


@dataclass
class Times:
    """Where the time of the loop went, in seconds."""

    setup: float = 0.0
    #: The first wait of each epoch, from iter() on; and all later ones.
    first: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    #: From the last step of an epoch to the first batch of the next.
    gaps: list[float] = field(default_factory=list)
    steps: float = 0.0
    batches: list[int] = field(default_factory=list)
    #: The time was over before the epochs were.
    cut: bool = False
    #: When the last step was done; what workers of a run that was cut still do is no part of it.
    ended: float = 0.0


def train(
    loader: Any,
    epochs: int,
    step: Callable[[Any], Any],
    limit_s: float | None = None,
    least_batches: int | None = None,
) -> Times:
    """Train on a watched loader for some epochs, or some time from the first batch on."""
    times = Times()
    clock = time.perf_counter
    stepped: float | None = None
    ends = float("inf")
    for epoch in range(epochs):
        began = clock()
        iterator = iter(loader)
        asked = clock()
        if epoch == 0:
            times.setup = asked - began
        times.batches.append(0)
        for batch in iterator:
            got = clock()
            if times.batches[-1] > 0:
                times.waits.append(got - asked)
            else:
                if not times.first and limit_s is not None:
                    ends = got + limit_s
                times.first.append(got - asked)
                if stepped is not None:
                    times.gaps.append(got - stepped)
            times.batches[-1] += 1
            with loader.training():
                step(batch)
            asked = stepped = clock()
            times.steps += asked - got
            if asked >= ends and sum(times.batches) >= (least_batches or 0):
                times.cut = True
                times.ended = asked
                return times
    times.ended = clock()
    return times


def _samples(config: Config, dataset: Any, times: Times) -> int:
    """How many were delivered: batches are full, except the last of a dataset with a length."""
    size = config.batch_size or 1
    try:
        most = len(dataset)
    except TypeError:
        return size * sum(times.batches)
    return sum(min(size * batches, most) for batches in times.batches)


def quantiles(values: list[float]) -> dict[str, float | None]:
    """Mean, median, 99th percentile and greatest; null where there are none."""
    if not values:
        return dict.fromkeys(("mean", "p50", "p99", "max"))
    ordered = sorted(values)

    def rank(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    mean = sum(ordered) / len(ordered)
    return {"mean": mean, "p50": rank(0.50), "p99": rank(0.99), "max": ordered[-1]}


def measure(job: Job) -> dict[str, Any]:
    """Make dataset and loader, train, and return what it took."""
    import torch

    import millhead.torch  # now: importing takes time that is no loader's

    config = Config(job.config["name"], job.config, job.loader)
    step = step_of(job.train_step)
    torch.manual_seed(0)
    began = time.perf_counter()
    dataset = make_dataset(job.target)
    dataset_s = time.perf_counter() - began
    if job.cold:
        empty_cache(job.files)
    cpu_before = cpu_seconds()
    began = time.perf_counter()
    loader = make_loader(config, dataset, job.limit_batches)
    made = time.perf_counter() - began
    watched = millhead.watch(loader, run=job.run)
    times = train(watched, job.epochs, step, job.limit_s, job.least_batches)
    total = times.ended - began
    watched.close()
    samples = _samples(config, dataset, times)
    del loader, watched
    gc.collect()  # ends workers that persist: their CPU time counts once they have ended
    return {
        "total_s": total,
        "dataset_s": dataset_s,
        "setup_s": made + times.setup,
        "first_batch_s": times.first[0] if times.first else None,
        "epoch_gap_s": sum(times.gaps) / len(times.gaps) if times.gaps else None,
        "wait_s": quantiles(times.waits),
        "waited_s": sum(times.waits),
        "step_s": times.steps,
        "batches": sum(times.batches),
        "cut": times.cut,
        "samples": samples,
        "cpu_s": cpu_seconds() - cpu_before,
    }


def cpu_seconds() -> float:
    """CPU time of this process so far, and of those it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


# ---- a cold cache --------------------------------------------------------------------------------

_DROP = "/proc/sys/vm/drop_caches"


def empty_cache(files: tuple[str, ...]) -> None:
    """Make the next reads come from storage; raises UsageError where that is not possible."""
    os.sync()  # dirty pages stay
    if not files:
        try:
            Path(_DROP).write_text("1")
        except OSError as error:
            raise UsageError(
                f"the page cache cannot be emptied: {error.strerror} (--cold): name the data's "
                "files or directories with --files, or run as root outside a container"
            ) from None
    for name in files:
        for path in [name, *(str(found) for found in Path(name).rglob("*"))]:
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


# ---- the process ---------------------------------------------------------------------------------


def describe_error(error: BaseException) -> str:
    """What was raised, and for which sample, in a line."""
    lines = str(error).splitlines()
    if lines and lines[0].startswith("Caught ") and "worker process" in lines[0]:
        # A worker's traceback, as text: what is not indented after it is exception and notes.
        last = max(at for at, line in enumerate(lines) if "Traceback" in line)
        parts = [line for line in lines[last + 1 :] if line.strip() and not line.startswith(" ")]
    else:
        kind = type(error).__name__
        parts = [f"{kind}: {lines[0].strip()}" if lines else kind]
        parts += getattr(error, "__notes__", [])
    prefix = "millhead: sample "
    samples = [part[len(prefix) :] for part in parts if part.startswith(prefix)]
    return f"{parts[0]} (sample {samples[0]})" if samples else parts[0]


def die_with_parent(parent: int) -> None:
    """A benchmark that is killed takes its run along."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent and os.getppid() != parent:
        os._exit(1)


def main(path: str) -> int:
    """Run the job and write its result; the exit code says whether it was done."""
    job = Job(**json.loads(Path(path).read_text()))
    die_with_parent(job.parent)
    try:
        result = {"status": "done", **measure(job)}
    except UsageError as error:
        result = {"status": "refused", "what": str(error)}
    except Exception as error:  # noqa: BLE001 - the user's code; the table shows it
        import traceback

        traceback.print_exc()  # into the run's output.txt
        result = {"status": "failed", "what": describe_error(error)}
    (Path(job.run) / "result.json").write_text(json.dumps(result))
    return 0 if result["status"] == "done" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
