"""Starting workers: in a chain of forks, from a template, or one by one as torch does it."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import warnings
from multiprocessing import context as mp_context
from typing import TYPE_CHECKING, Any

import torch

from millhead.torch.loader_stats import advise
from millhead.torch.start.fork_chain import can_chain, fork_workers
from millhead.torch.start.machine_limits import FORKED_BYTES, SPAWNED_BYTES, warn_of_memory
from millhead.torch.start.pickled_job import digest_of, surroundings
from millhead.torch.start.template import (
    Template,
    TemplateWorker,
    UnpicklableError,
    UnusableError,
    reap_retired,
)
from millhead.torch.workers.batch_worker import Job, WorkerPlan, prepare_to_fork, run
from millhead.torch.workers.native_pools import lent, sizes
from millhead.torch.workers.processes import ChildWorker, Worker, end_all

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
        warn_of_memory(len(plans), FORKED_BYTES)
        _set_start(plans, "template")
        try:
            return "template", _from_template(engine, job, plans, timeout)
        except UnusableError as error:
            refusal = error.with_traceback(None)  # which holds this frame
        engine.no_template = str(refusal)
        return method, _without_template(context, method, job, plans, refusal)
    warn_of_memory(len(plans), FORKED_BYTES if method == "fork" else SPAWNED_BYTES)
    _set_start(plans, method)
    workers: list[Worker] = []
    if method == "fork":
        prepare_to_fork()
        caps = plans[0].caps
        caps.sizes = sizes(caps.limit, method)
        if plain and can_chain():
            workers = fork_workers(context, job, plans)
    return method, _one_by_one(context, method, job, plans, workers)


def _without_template(
    context: Any, method: str, job: Job, plans: list[WorkerPlan], error: UnusableError
) -> list[Worker]:
    """Start workers one by one, of which the refused template is the first where it can be."""
    _set_start(plans, method)
    with contextlib.ExitStack() as stack:
        first = None
        if error.spare is not None:
            stack.callback(error.spare.close)
        if not isinstance(error, UnpicklableError):  # else starting one by one says all there is
            advise(
                "no-template",
                f"workers start one by one, each with a copy of the dataset ({error}): a dataset "
                "that opens files, starts threads and seeds generators of its own only when asked "
                "for a sample starts faster",
            )
        if error.spare is not None:
            first = error.spare.become(plans[0])
        return _one_by_one(context, method, job, plans, [] if first is None else [first])


def start_successor(
    engine: Engine, context: Any, job: Job, plan: WorkerPlan, timeout: float, before: Worker
) -> Worker:
    """Start a worker in the place of another, in the way that one was started."""
    if isinstance(before, TemplateWorker):
        _set_start([plan], "template")
        worker = before.another(plan)
        if worker is not None:
            return worker
    _, (worker,) = start_workers(engine, context, job, [plan], timeout)
    return worker


def _set_start(plans: list[WorkerPlan], start: str) -> None:
    for plan in plans:
        plan.start = start


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
        engine.template = Template(job, timeout, plans[0].caps.variables)
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
    context: Any, method: str, job: Job, plans: list[WorkerPlan], workers: list[Worker]
) -> list[Worker]:
    """Add to the workers that are there those that are missing."""
    # Not lent to a fork server: it would keep them for others.
    environment = lent(plans[0].caps.variables) if method == "spawn" else contextlib.nullcontext()
    try:
        with environment:
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
