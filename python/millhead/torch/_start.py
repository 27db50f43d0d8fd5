"""Starting workers: in a chain of forks, from a template, or one by one as torch does it."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import warnings
from multiprocessing import context as mp_context
from typing import TYPE_CHECKING, Any

import torch

from millhead.torch._chain import can_chain, fork_workers
from millhead.torch._limits import FORKED_BYTES, SPAWNED_BYTES, missing_memory
from millhead.torch._native_pools import lent, sizes
from millhead.torch._parcel import digest_of, surroundings
from millhead.torch._stats import advise
from millhead.torch._template import (
    Template,
    TemplateWorker,
    UnpicklableError,
    UnusableError,
    reap_retired,
)
from millhead.torch._workers import ChildWorker, Worker, end_all
from millhead.torch.worker import Job, WorkerPlan, prepare_to_fork, run

if TYPE_CHECKING:
    from millhead.torch.loader import Engine

#: Contexts that start processes in no way of their own: ours can stand for them.
_PLAIN_CONTEXTS = (
    mp_context.DefaultContext,
    mp_context.ForkContext,
    mp_context.SpawnContext,
    mp_context.ForkServerContext,
)


def start_workers(
    engine: Engine, context: Any, job: Job, plans: list[WorkerPlan], timeout: float
) -> tuple[str, list[Worker]]:
    """Start a worker for each plan: how, as ``stats()["start"]`` names it, and their handles.

    ``timeout``: most seconds that unpickling the job may take; 0: any number.
    """
    if context is None:
        context = torch.multiprocessing
    method = str(context.get_start_method())
    plain = context in (torch.multiprocessing, multiprocessing) or type(context) in _PLAIN_CONTEXTS
    if plain and method in ("spawn", "forkserver") and engine.no_template is None:
        _warn_of_memory(len(plans), FORKED_BYTES)
        _tell_start(plans, "template")
        try:
            return "template", _from_template(engine, job, plans, timeout)
        except UnpicklableError as error:  # starting one by one says all there is
            engine.no_template = str(error)
        except UnusableError as error:
            engine.no_template = str(error)
            advise(
                "no-template",
                f"workers start one by one, each with a copy of the dataset ({error}): a dataset "
                "that opens files, starts threads and seeds generators of its own only when asked "
                "for a sample starts faster",
            )
    else:
        _warn_of_memory(len(plans), FORKED_BYTES if method == "fork" else SPAWNED_BYTES)
    _tell_start(plans, method)
    workers: list[Worker] = []
    if method == "fork":
        prepare_to_fork()
        caps = plans[0].caps
        caps.sizes = sizes(caps.limit, method)
        if plain and can_chain():
            workers = fork_workers(context, job, plans)
    # Not lent to a fork server: it would keep them for others.
    environment = lent(plans[0].caps.variables) if method == "spawn" else contextlib.nullcontext()
    with environment:
        return method, _one_by_one(context, job, plans, workers)


def start_successor(
    engine: Engine, context: Any, job: Job, plan: WorkerPlan, timeout: float, before: Worker
) -> Worker:
    """Start a worker in the place of another, in the way that one was started."""
    if isinstance(before, TemplateWorker):
        _tell_start([plan], "template")
        worker = before.another(plan)
        if worker is not None:
            return worker
    _, (worker,) = start_workers(engine, context, job, [plan], timeout)
    return worker


def _tell_start(plans: list[WorkerPlan], start: str) -> None:
    for plan in plans:
        plan.start = start


def _warn_of_memory(workers: int, each: int) -> None:
    text = missing_memory(workers, each)
    if text is not None:
        advise("little-memory", text)


def _from_template(
    engine: Engine, job: Job, plans: list[WorkerPlan], timeout: float
) -> list[Worker]:
    reap_retired()
    if engine.template is not None and engine.template.closed:  # it could not start a successor
        engine.template = None
    template = engine.template
    if template is not None:
        how = template.ended()
        if how is not None:
            advise("template-ended", f"the workers' template is gone ({how}): starting a new one")
        if how is not None or not _still_same(template, job):
            engine.template = None
            template.close()
    if engine.template is None:
        engine.template = Template(job, timeout)
    try:
        return engine.template.start(plans)
    except BaseException:
        engine.template = None
        raise


def _still_same(template: Template, job: Job) -> bool:
    if template.digest is None or template.surroundings != surroundings():
        return False
    try:
        return digest_of(job) == template.digest
    except Exception:  # noqa: BLE001 - it can no longer be pickled: starting anew says why
        return False


def _one_by_one(
    context: Any, job: Job, plans: list[WorkerPlan], workers: list[Worker]
) -> list[Worker]:
    """Add to the workers that are there those that are missing."""
    try:
        for plan in plans[len(workers) :]:
            process = context.Process(target=run, args=(plan, job))
            process.daemon = True
            workers.append(_start(process))
    except BaseException:
        for worker in workers:
            worker.kill()
        end_all(workers, 1.0)
        raise
    return workers


def _start(process: Any) -> ChildWorker:
    """Start a worker, with torch's own words where its arguments cannot be pickled."""
    try:
        return ChildWorker(process)
    except (TypeError, AttributeError, pickle.PicklingError):
        warnings.warn(
            "Got pickle error when attempting to start a worker Process. "
            "This might be because the worker Process arguments are not picklable. "
            "Define the dataset, collate_fn and worker_init_fn at the top level of a module, or "
            "use multiprocessing_context='fork'.",
            stacklevel=2,
        )
        raise
