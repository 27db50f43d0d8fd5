"""The drop-in: a subclass of torch's DataLoader whose iterators are millhead's."""

from __future__ import annotations

import atexit
import inspect
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
import torch.utils.data
from torch.utils.data import (
    Dataset,
    IterableDataset,
    IterDataPipe,
    MapDataPipe,
    Sampler,
    default_collate,
)
from torch.utils.data.dataloader import _BaseDataLoaderIter, _DatasetKind

from millhead._arguments import WorkerMemory, parse_memory, parse_worker_memory, require_at_least
from millhead.torch import core_available
from millhead.torch.iterators import torch_fallback
from millhead.torch.iterators.failed_samples import POLICIES, choices_of
from millhead.torch.iterators.fetch import fetches_together
from millhead.torch.loader_stats import Stats, advise
from millhead.torch.ranks import agreement
from millhead.torch.resume.loader_position import LoaderPosition
from millhead.torch.workers.position_rng import NAMES, check_names

if core_available.why_not is None:
    from millhead import _core
    from millhead.torch.iterators import batch_schema, inline, multiprocess, sample_dispatch
    from millhead.torch.start.template import Template, reap_retired
    from millhead.torch.workers.processes import forking_a_worker

T_co = TypeVar("T_co", covariant=True)

#: Older torch's loader has no in_order=: its batches come in order.
_TAKES_IN_ORDER = "in_order" in inspect.signature(torch.utils.data.DataLoader.__init__).parameters


def _require_count(name: str, value: int | None) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise ValueError(f"{name} should be a count, but got {value!r}")


def _require_threads(worker_threads: int | None) -> None:
    if isinstance(worker_threads, bool) or not isinstance(worker_threads, int | None):
        raise TypeError(f"worker_threads should be an int or None, but got {worker_threads!r}")
    require_at_least(1, worker_threads=worker_threads)


class Engine:
    """What a loader keeps between its iterators: batch memory, the schema, the numbers."""

    def __init__(self, budget: int | None) -> None:
        self.pid = os.getpid()
        #: Where spawned workers come from, or why they cannot.
        self.template: Template | None = None
        self.no_template: str | None = None
        if budget is None:
            budget = max(_core.memory()[1] // 4, 1)
        self.pool = _core.Pool(budget)  # may fail; what __del__ looks at is there already
        self.schema: batch_schema.Schema | None = None
        #: Batches that all live iterators together may have under way.
        self.under_way = 0
        _engines.add(self)

    def close_template(self) -> None:
        """End the template; the next workers start a new one."""
        if self.template is not None:
            self.template.close()
            self.template = None

    def __del__(self) -> None:
        self.close_template()


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _before_fork() -> None:
    """A child of the user's sees the slots of batches held now: never write them again."""
    if not forking_a_worker():
        for engine in list(_engines):
            engine.pool.freeze_held()


def _close_at_exit() -> None:
    for engine in list(_engines):
        engine.close_template()
    reap_retired(patience=0.5, force=True)


if core_available.why_not is None:
    os.register_at_fork(before=_before_fork)
    atexit.register(_close_at_exit)


class Keeper:
    """What millhead keeps with a loader between its iterators.

    Ours is its own keeper; a loader of another class that :func:`millhead.torch.install` reaches
    has one beside it.
    """

    # The arguments that torch's class does not have
    limit_batches: int | None
    snapshot_every_n_steps: int | None
    snapshot_rng: bool
    prefetch_epoch: bool
    worker_threads: int | None
    worker_memory: WorkerMemory
    on_error: str
    dispatch: str
    rng: Sequence[str]
    accumulate: int

    def _keep(self, memory: int | str | None) -> None:
        self._memory_bytes = parse_memory(memory)
        self._stats = Stats()
        self._engine: Engine | None = None
        self._position = LoaderPosition()


def served_by_torch(loader: torch.utils.data.DataLoader[Any]) -> bool:
    """Whether torch's own iterators serve a loader."""
    return core_available.why_not is not None or isinstance(
        loader.dataset, (IterDataPipe, MapDataPipe)
    )


def check_sample_dispatch(loader: torch.utils.data.DataLoader[Any]) -> None:
    """Raises ValueError for what cannot be split into samples."""
    why = None
    if loader._dataset_kind == _DatasetKind.Iterable:
        why = "needs a map-style dataset"
    elif served_by_torch(loader):
        why = "does not reach torch's own iterators"
    elif not loader._auto_collation:
        why = "needs batches, and batch_size=None makes none"
    elif loader.collate_fn is not default_collate:
        why = "needs torch's default_collate"
    elif fetches_together(loader.dataset):
        why = "fetches one sample at a time, and the dataset whole batches (__getitems__)"
    if why is not None:
        raise ValueError(f"dispatch='sample' {why}: use dispatch='batch'")


def iterator_for(loader: torch.utils.data.DataLoader[Any], keeper: Keeper) -> _BaseDataLoaderIter:
    """An iterator over a loader: millhead's, or torch's own where the engine cannot serve."""
    agreement.compare_loader(loader)
    workers = loader.num_workers > 0
    if workers:
        loader.check_worker_number_rationality()
    if served_by_torch(loader):
        torchs = torch_fallback.TorchMultiIter if workers else torch_fallback.TorchSingleIter
        return torchs(loader, keeper)
    by_sample = keeper.dispatch == "sample"
    if by_sample:
        check_sample_dispatch(loader)  # again: attributes may have been set since
    kind: Any
    if workers:
        if keeper._engine is None or keeper._engine.pid != os.getpid():
            keeper._engine = Engine(keeper._memory_bytes)
        kind = sample_dispatch.SampleIter if by_sample else multiprocess.MultiprocessIter
    else:
        kind = sample_dispatch.SampleSingleIter if by_sample else inline.InlineIter
    found: _BaseDataLoaderIter = kind(loader, keeper)
    keeper._position.current = weakref.ref(found)
    return found


def forget_parents_iterator(loader: torch.utils.data.DataLoader[Any]) -> None:
    """A persistent iterator that came along in a fork belongs to the parent's workers."""
    if getattr(loader._iterator, "_pid", None) not in (None, os.getpid()):
        loader._iterator = None


def report(workers: int, keeper: Keeper, reset: bool) -> dict[str, Any]:
    """What ``stats()`` returns."""
    slots = {"count": 0, "bytes": 0, "held": 0, "frozen": 0}
    if keeper._engine is not None:
        slots = keeper._engine.pool.stats()
    keeper._stats.refresh()
    numbers = keeper._stats.report(workers, slots)
    if reset:
        keeper._stats.clear()
    return numbers


class DataLoader(torch.utils.data.DataLoader[T_co], Keeper):
    """torch's DataLoader, the same batches bit for bit, with less in between.

    Takes all of ``torch.utils.data.DataLoader``'s arguments, and:

    Args:
        dispatch: ``"batch"``: whole batches go to workers in turn, as torch does it. ``"sample"``:
            any worker takes any samples, so that a batch is shared by all who are idle; random
            numbers then depend on a sample's position alone, and batches are the same for every
            ``num_workers``, 0 too. Map-style datasets and torch's default_collate only.
        rng: which global generators ``dispatch="sample"`` seeds before each sample.
        limit_batches: batches of an epoch; nothing is fetched beyond. None: all there are.
        prefetch_epoch: let workers begin the next epoch before this one is over. The order of the
            next epoch is drawn then, so ``generator`` must be the loader's own; workers must
            persist, and the dataset be map-style.
        snapshot_every_n_steps: how often workers bring the states of the dataset's hooks along, for
            ``state_dict()``; batches after the last such are fetched again on resuming.
        snapshot_rng: let workers bring their generators' states too, so that a resumed run repeats
            random augmentation exactly.
        on_error: what to do about a sample whose ``__getitem__`` raises an exception: ``"raise"``
            it when its batch is due, as torch does; ``"skip"`` it and deliver a shorter batch;
            ``"replace"`` it by another sample. Map-style datasets only; ``stats()`` counts.
        memory: most bytes for batches under way and held (``2 * 10**9`` or ``"2GB"``); None: a
            quarter of what is available under the machine's and the container's limits.
        worker_threads: most threads in each thread pool of a worker (torch, OpenMP and BLAS,
            OpenCV, dask, zarr, ...), where you have not set it yourself; None leaves them alone.
        worker_memory: most memory of a worker's own, as bytes (``4 * 10**9`` or ``"4GB"``), as a
            fraction of what there is (``0.1``), or ``"auto"`` for an equal share of it; a worker
            that has more is replaced by a new process, and the batches stay the same. None or 0:
            any amount.
        accumulate: batches over which you accumulate gradients. Nothing is loaded differently: the
            effective batch size is told with it (:func:`millhead.torch.effective_batch_size`).

    Raises:
        ValueError, TypeError: for the same arguments as torch's.

        >>> from millhead.torch import DataLoader
        >>> list(DataLoader([1, 2, 3], batch_size=2))
        [tensor([1, 2]), tensor([3])]
    """

    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        dispatch: str = "batch",
        memory: int | str | None = None,
        limit_batches: int | None = None,
        snapshot_every_n_steps: int = 1,
        snapshot_rng: bool = False,
        prefetch_epoch: bool = False,
        worker_threads: int | None = 1,
        worker_memory: WorkerMemory = None,
        on_error: str = "raise",
        rng: Sequence[str] = NAMES,
        accumulate: int = 1,
    ) -> None:
        if dispatch not in ("batch", "sample"):
            raise ValueError(f"dispatch should be 'batch' or 'sample', but got {dispatch!r}")
        check_names(rng)
        if core_available.why_not is not None:
            advise("not native", core_available.why_not)
        _require_count("accumulate", accumulate)
        if not accumulate:
            raise ValueError(f"accumulate should be at least 1, but got {accumulate!r}")
        _require_threads(worker_threads)
        parse_worker_memory(worker_memory)
        _require_count("limit_batches", limit_batches)
        _require_count("snapshot_every_n_steps", snapshot_every_n_steps)
        self._keep(memory)
        self.dispatch = dispatch
        self.memory = memory
        self.limit_batches = limit_batches
        self.snapshot_every_n_steps = snapshot_every_n_steps
        self.snapshot_rng = snapshot_rng
        self.prefetch_epoch = prefetch_epoch
        self.worker_threads = worker_threads
        self.worker_memory = worker_memory
        self.on_error = on_error
        self.rng = rng
        self.accumulate = accumulate
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            **({"in_order": in_order} if _TAKES_IN_ORDER else {}),
        )
        self._check_on_error()
        if dispatch == "sample":
            check_sample_dispatch(self)
        if prefetch_epoch:
            self._check_prefetch_epoch()

    def _check_prefetch_epoch(self) -> None:
        needs = {
            "persistent_workers=True": self.persistent_workers,
            "a generator of the loader's own": self.generator is not None,
            "a map-style dataset": not isinstance(self.dataset, IterableDataset),
            "in_order=True": self.in_order,
            "dispatch='batch'": self.dispatch == "batch",
            "a sampler without set_epoch(), which would come too late": not hasattr(
                self.sampler, "set_epoch"
            ),
        }
        missing = [need for need, met in needs.items() if not met]
        if missing:
            raise ValueError(f"prefetch_epoch needs {', '.join(missing)}")

    def __len__(self) -> int:
        """Batches in an epoch."""
        length = self._position.last_len = super().__len__()
        return length if self.limit_batches is None else min(length, self.limit_batches)

    def _check_on_error(self) -> None:
        if self.on_error not in POLICIES:
            raise ValueError(f"on_error should be one of {POLICIES}, but got {self.on_error!r}")
        if self.on_error == "raise":
            return
        if self._dataset_kind == _DatasetKind.Iterable:
            raise ValueError(
                f"on_error={self.on_error!r} needs a map-style dataset: an iterable dataset has to "
                "catch the exceptions of its samples itself"
            )
        if served_by_torch(self):
            raise ValueError(f"on_error={self.on_error!r} does not reach torch's own iterators")
        if self.on_error == "replace" and not choices_of(self):
            raise ValueError(
                "on_error='replace' needs a dataset with a length, to draw others from"
            )

    def _get_iterator(self) -> _BaseDataLoaderIter:
        return iterator_for(self, self)

    def __iter__(self) -> _BaseDataLoaderIter:
        forget_parents_iterator(self)
        return super().__iter__()

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is in its data: a checkpoint holds this, and a new loader of the same
        dataset goes on from there with :meth:`load_state_dict`.

        Batches that were prefetched but not handed over count as not yet loaded. Can be written as
        JSON where the dataset's and sampler's own hooks give what can.
        """
        if served_by_torch(self):
            raise RuntimeError(
                "millhead: torch's own iterator serves this loader (DataPipes, or no C core): it "
                "has no position to save"
            )
        return self._position.state(self, self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next ``iter()`` go on from a state that :meth:`state_dict` gave.

        The sampler is asked again for what was consumed, but none of it is fetched. The number of
        workers may differ, except for iterable datasets. An empty dict does nothing.

        Raises:
            ValueError: for a state of another dataset, version or origin, or a damaged one.
        """
        if state_dict != {}:
            self._position.load(state_dict, self)
            self._iterator = None

    def stats(self, reset: bool = False) -> dict[str, Any]:
        """What this loader has measured since it was made, or since ``reset=True``.

        ``path`` says how most batches came: ``slot`` (through millhead's memory), ``general``
        (anything that does not fit there) or ``torch`` (torch's own iterator).
        """
        return report(self.num_workers, self, reset)

    def __getstate__(self) -> dict[str, Any]:
        """The loader without what only lives in this process: it pickles and copies after use."""
        state = self.__dict__.copy()
        state.update(_iterator=None, _engine=None, _stats=None, _position=None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._keep(self.memory)
