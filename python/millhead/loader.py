"""The native loader: files read and batched by threads of the C core, without worker processes."""

from __future__ import annotations

import atexit
import inspect
import operator
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self, SupportsFloat

from millhead import _core
from millhead._arguments import parse_memory
from millhead._data_options import DataOptions, Range
from millhead._loader_counts import LoaderCounts
from millhead._native_arrays import Data, Opened
from millhead._rank_info import rank_info
from millhead._sample_choice import SampleChoice, Subset

__all__ = ["Loader"]

#: Values of ``shuffle=``, and the order they stand for.
_ORDERS: dict[bool | str, str] = {
    False: "sequential",
    True: "keyed",
    "blocks": "blocks",
    "torch": "torch",
}

#: Arguments of torch's DataLoader that have another name here.
_TORCH_NAMES = {
    "num_workers": "threads= says how many threads of the core read and decode",
    "prefetch_factor": "prefetch= says how many batches are made ahead",
    "collate_fn": "map= is called with each batch",
}

_MOST = {"threads": 2**31 - 1, "in_flight": 2**32 - 1, "prefetch": 2**32 - 1}


class Loader:
    """Batches of arrays, pictures or windows, on disk or at a URL, as dicts by field name.

    Threads of the core read ahead; no worker process is started. The order of samples depends on
    ``seed`` and the epoch alone, so any number of threads or ranks gives the same stream. A batch
    is yours: it may be written to, kept, and outlives the loader.

    Args:
        data: paths or URLs (``https://``, ``s3://``), one or a list, ``{000..099}`` for many. ``.npy`` and
            ``.npz`` files: a field for each array, named after it (docs/native.md). A folder with a
            folder for each class, or a ``.csv`` or ``.jsonl`` with a column of paths (docs/images.md).
            Zarr stores (docs/zarr.md), token files (docs/arrays.md), ``"synthetic:count=1000"``.
        batch_size: samples of this rank in a batch.
        fields: the ones to read, in the order of the dict; ``_index`` is a sample's number,
            ``_origin`` where a window begins.
        pipeline, profile: what becomes of pictures, ``"decode | random_resized_crop 224"``, and
            of arrays, ``"t2m: normalize mean=280 std=20 | cast f16"``.
        window, stride, select, target, decode: which parts of arrays with named dimensions are
            samples, ``window={"time": 4, "lat": 64}``; ``select`` has a slice of places or a pair
            of coordinates for a dimension, ``target`` the offset of a second window.
        join: of several Zarr stores: the dimension along which they are one, in the order of
            ``data``; None: the first whose length or coordinate varies.
        subset: the samples an epoch is made of, in this order where nothing shuffles them: numbers, a
            slice, a part like ``0.1``, or ``(0.1, seed)``: that many chosen at random, once.
        weights: one for each sample (of the subset): an epoch is as many draws by weight, with
            replacement, that follow from seed, epoch and position. Without ``shuffle``.
        shuffle: False, True (a full shuffle that takes no memory), ``"blocks"`` (samples of a chunk
            come close in time, mixed with those of others: docs/arrays.md), or ``"torch"``: the
            order of torch's DistributedSampler for the same seed and epoch.
        seed, epoch: what the order depends on; ``epoch`` is the one of the first ``iter()``.
        rank, world: this process among all; None: as torch.distributed or the launcher says.
        drop_last: only full batches. Otherwise ranks get equally many samples, some of them twice.
        uneven: no sample twice: a rank may get one more than others.
        limit_batches: batches of an epoch; None: all there are.
        threads: that read and place; 0: none, ``next()`` does it; None: as ``millhead plan cpus``.
        in_flight: reads under way at a time that the page cache cannot answer; None: 16.
        prefetch: batches ready or under way beyond the one in use; more where they are small.
        memory: most bytes for batches and chunks (a number or ``"2GB"``); None: a quarter of what is free.
        cache: where to keep what comes from URLs, ``"/scratch/mh:50GB"``.
        cache_check: ``"open"`` trusts what is kept where nothing had changed when the data was opened; ``"each"`` asks before
            each read.
        index: the file that keeps what opening found out about a folder; None: in the user's cache.
        storage_options: of URLs: ``key``, ``secret``, ``token``, ``endpoint_url``, ``region``,
            ``anon``, ``profile``.
        pin_memory: batches lie in pinned memory, which a GPU copies from while the program goes on: in
            blocks of torch's own allocator, filled in ``next()``. Without a GPU nothing is pinned.
        simulate: a slow link before the files, ``"latency=30ms,bandwidth=100MB/s,errors=0.1%"``.
        on_error: what becomes of a sample that is corrupt: ``"raise"``, ``"skip"`` (its batch is
            shorter) or ``"replace"`` (by another, the same for every number of threads and ranks).
            Failures of reading always raise.
        map: a function of the batch, called in ``next()``; what it returns is delivered.
        output: whose arrays a batch holds, ``"torch"``, ``"numpy"`` or ``"jax"``; None: torch's where it
            can be imported, else NumPy's.

    Raises:
        FileNotFoundError, OSError: a file cannot be read.
        ValueError: an argument makes no sense.
        MemoryError: ``memory`` is too small for a batch.
        millhead.Error: data that is corrupt or of a type that is not supported.

    Examples:
        >>> import millhead, numpy, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> numpy.save(f"{folder.name}/x.npy", numpy.arange(5) * 10)
        >>> with millhead.Loader(f"{folder.name}/x.npy", 2, output="numpy") as loader:
        ...     [batch["x"].tolist() for batch in loader]
        [[0, 10], [20, 30], [40]]
        >>> folder.cleanup()
    """

    def __init__(
        self,
        data: Data,
        batch_size: int = 1,
        *,
        fields: Iterable[str] | None = None,
        pipeline: str | None = None,
        profile: str | None = None,
        window: Mapping[str, int] | None = None,
        stride: Mapping[str, int] | None = None,
        select: Mapping[str, Range] | None = None,
        target: Mapping[str, int] | None = None,
        join: str | None = None,
        decode: str | None = "cf",
        subset: Subset | None = None,
        weights: Iterable[SupportsFloat] | None = None,
        shuffle: bool | str = False,
        seed: int = 0,
        epoch: int = 0,
        rank: int | None = None,
        world: int | None = None,
        drop_last: bool = False,
        uneven: bool = False,
        limit_batches: int | None = None,
        threads: int | None = None,
        in_flight: int | None = None,
        prefetch: int = 2,
        memory: int | str | None = None,
        pin_memory: bool = False,
        cache: str | os.PathLike[str] | None = None,
        cache_check: str = "open",
        index: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        simulate: str | None = None,
        on_error: str = "raise",
        map: Callable[[dict[str, Any]], Any] | None = None,
        output: str | None = None,
        **later: Any,
    ) -> None:
        began = time.monotonic_ns()
        _refuse(later)
        self.data = data
        self.batch_size = _whole("batch_size", batch_size, 1)
        self.fields = fields if fields is None or isinstance(fields, str) else list(fields)
        self.pipeline = pipeline
        self.profile = profile
        self.window = window
        self.stride = stride
        self.select = select
        self.target = target
        self.join = join
        self.decode = decode
        self.cache = cache
        self.cache_check = cache_check
        self.index = index
        self.storage_options = storage_options
        self.subset = subset
        self.weights = weights
        self.shuffle = shuffle
        self.seed = _whole("seed", seed, 0)
        self.epoch = _whole("epoch", epoch, 0)
        self.drop_last = bool(drop_last)
        self.uneven = bool(uneven)
        self.limit_batches = _optional("limit_batches", limit_batches, 1)
        self.threads = _optional("threads", threads, 0)
        self.in_flight = _optional("in_flight", in_flight, 1)
        self.prefetch = _whole("prefetch", prefetch, 1)
        self.memory = memory
        self.simulate = simulate
        self.on_error = _on_error(on_error)
        self.map = map
        self.output = output
        self._order = _order(shuffle)
        options = DataOptions(
            pipeline,
            profile,
            window,
            stride,
            select,
            target,
            decode,
            index,
            storage_options,
            cache,
            join,
            cache_check,
        )
        self._opened = Opened(data, self.fields, output, options)
        self._choice = SampleChoice.of(subset, weights, self._opened.core.count)
        self.pin_memory = bool(pin_memory)
        self._pins = self.pin_memory and _can_pin(self._opened)
        self.world, self.rank = _world_and_rank(rank, world)
        self._native = self._open()
        self._length = self._native.batches()
        #: Where the next iter() begins: epoch and samples of all ranks that are done.
        self._next = (self.epoch, 0)
        #: Of "blocks": an epoch, what other numbers of ranks had of it, and samples in all.
        self._legs: tuple[int, list[list[int]], int] = (self.epoch, [], 0)
        #: The iterator that was asked for nothing yet, and its epoch: it may be one that only looks
        #: whether there is one, as Lightning does, and must cost neither an epoch nor a position.
        self._unused: tuple[int, int] | None = None
        #: Whether the core's position is the loop's: an epoch was begun and is not over.
        self._active = False
        self._counts = LoaderCounts(time.monotonic_ns() - began)
        _close_at_exit(self)

    def _open(self) -> _core.NativeLoader:
        return _core.NativeLoader(
            self._opened.core,
            batch_size=self.batch_size,
            order=self._order,
            seed=self.seed,
            epoch=self.epoch,
            rank=self.rank,
            world=self.world,
            drop_last=self.drop_last,
            uneven=self.uneven,
            limit_batches=self.limit_batches or 0,
            threads=-1 if self.threads is None else self.threads,
            in_flight=self.in_flight or 0,
            prefetch=self.prefetch,
            memory=parse_memory(self.memory) or 0,
            simulate=self.simulate,
            on_error=self.on_error,
            subset=self._choice.numbers,
            weights=self._choice.weights,
        )

    def __repr__(self) -> str:
        return (
            f"millhead.Loader({self.data!r}, {self.batch_size}): {self._length} batches of "
            f"{self._opened.summary()}"
        )

    def __len__(self) -> int:
        """Batches of this rank in an epoch."""
        return self._length

    def __iter__(self) -> Iterator[Any]:
        """The next epoch, or the rest of the one a state was loaded for.

        An iterator that was made before gets no more batches; one that was never asked for any does
        not count as an epoch.
        """
        if "millhead.watching.loops" in sys.modules:
            from millhead.watching import native_loaders

            if (watch := native_loaders.watch_of(self)) is not None:
                return native_loaders.iterate(self, watch)
        return self._begin()

    def _begin(self) -> Iterator[Any]:
        """The same, unwatched."""
        epoch, start = self._next
        turn = self._native.begin(epoch, start)
        self._unused = (turn, epoch)
        self._active = False
        return _Batches(self, turn)

    def _use(self) -> None:
        """The iterator that was made last begins its epoch."""
        if self._unused is not None:
            self._next = (self._unused[1] + 1, 0)
            self._unused = None
            self._active = True

    def _deliver(self, turn: int) -> Any:
        """The next batch of the iterator that has this turn."""
        if self._unused is not None and self._unused[0] == turn:
            self._use()
        counts = self._counts
        counts.meter.begin_wait()
        try:
            arrays = self._native.next(turn)
        except Exception:
            counts.raised += 1
            raise
        if arrays is None:
            self._active = False
            raise StopIteration
        counts.delivered()
        batch = self._opened.batch(arrays)
        del arrays
        if self._pins:
            batch = counts.pinned(batch)
        return batch if self.map is None else counts.mapped(self.map, batch)

    @property
    def classes(self) -> list[str]:
        """The name of the class for each ``label``; empty where there are none."""
        return self._opened.core.classes

    def set_epoch(self, epoch: int) -> None:
        """Let the next ``iter()`` be that epoch; a loaded position in it stays."""
        epoch = _whole("epoch", epoch, 0)
        if epoch == self._next[0]:
            return
        self._use()
        self._next = (epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        """Where the loop is, for :meth:`load_state_dict`: plain numbers and texts."""
        epoch, position = self._native.position() if self._active else self._next
        state = {
            "millhead": 1,
            "kind": "native",
            "epoch": epoch,
            "position": position,
            **self._identity(),
        }
        if self._order == "blocks":
            state["legs"] = self._legs_at(epoch, position)
        return state

    def _legs_at(self, epoch: int, position: int) -> list[list[int]]:
        """``[ranks, samples of each]`` of those that had a part of the epoch, one after the other."""
        of_epoch, legs, done = self._legs
        if epoch != of_epoch or position < done:
            legs, done = [], 0
        if position > done:
            legs = [*legs, [self.world, -(-(position - done) // self.world)]]
        return legs

    def _identity(self) -> dict[str, Any]:
        """What a position is worth something with."""
        return {
            "seed": self.seed,
            "order": self._order,
            "count": self._opened.core.count,
            "fingerprint": f"{self._opened.core.fingerprint:016x}",
            "choice": self._choice.identity(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next ``iter()`` go on where ``state`` was taken.

        The batch size, the world, and the number of threads may differ from those of then.

        Raises:
            ValueError: it is not a state of a native loader, or one of other data, another seed or
                another order.
        """
        if state.get("millhead") != 1 or state.get("kind") != "native":
            raise ValueError("this is not a state of millhead.Loader")
        for name, own in self._identity().items():
            found = state.get(name)
            if found == own:
                continue
            if name == "order":
                name, found, own = "shuffle", _shuffle_of(found), self.shuffle
            if name == "choice":
                raise ValueError("the state is of another subset= or weights= than this loader's")
            raise ValueError(
                f"the state's {name} is {found!r}, this loader's is {own!r}: it would go on with "
                "other samples"
            )
        epoch = _whole("epoch", state.get("epoch"), 0)
        position = _whole("position", state.get("position"), 0)
        if self._order == "blocks":
            legs = [[_whole("legs", number, 0) for number in leg] for leg in state.get("legs", ())]
            self._native.seek_legs(epoch, legs)
            position = self._native.position()[1]
            self._legs = (epoch, legs, position)
        else:
            self._native.seek(epoch, position)
        self._next = (epoch, position)
        self._unused = None
        self._active = False

    def stats(self, reset: bool = False) -> dict[str, Any]:
        """What the loader did since it was made, or since ``reset=True`` was passed last."""
        return self._counts.report(self, reset)

    def close(self) -> None:
        """End the threads. Batches stay as they are; nothing more is delivered."""
        self._counts.last = self._counts.now(self)
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Batches:
    """One epoch of a loader."""

    def __init__(self, loader: Loader, turn: int) -> None:
        self._loader = loader
        self._turn = turn

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return self._loader._deliver(self._turn)


def _on_error(on_error: str) -> str:
    if on_error not in ("raise", "skip", "replace"):
        raise ValueError(f"on_error should be 'raise', 'skip' or 'replace', but got {on_error!r}")
    return on_error


def _can_pin(opened: Opened) -> bool:
    """Whether there is a device to pin memory for, as torch's loader asks.

    Raises:
        ValueError: batches are not torch's.
    """
    if opened.kind != "torch":
        raise ValueError(f"pin_memory=True needs torch's tensors: leave output={opened.kind!r} out")
    import torch

    return torch.accelerator.is_available()


def _refuse(later: dict[str, Any]) -> None:
    for name in later:
        from millhead._command_line import did_you_mean  # only where something went wrong

        known = [*inspect.signature(Loader).parameters]
        meant = _TORCH_NAMES.get(name) or did_you_mean(name, known)
        hint = f": {meant}" if meant else ""
        raise TypeError(f"Loader() got an unexpected keyword argument {name!r}{hint}")


def _order(shuffle: bool | str) -> str:
    if not isinstance(shuffle, bool | str) or shuffle not in _ORDERS:
        raise ValueError(f"shuffle should be False, True, 'blocks' or 'torch', but got {shuffle!r}")
    return _ORDERS[shuffle]


def _shuffle_of(order: Any) -> Any:
    """What ``shuffle=`` was for an order."""
    return next((shuffle for shuffle, kind in _ORDERS.items() if kind == order), order)


def _whole(name: str, value: Any, least: int) -> int:
    """A number that the core takes.

    Raises:
        TypeError, ValueError: it is not such a number.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} should be a number, but got {value!r}") from None
    if isinstance(value, bool):
        raise TypeError(f"{name} should be a number, but got {value!r}")
    most = _MOST.get(name, 2**64 - 1)
    if not least <= number <= most:
        raise ValueError(f"{name} should be from {least} to {most}, but got {value!r}")
    return number


def _optional(name: str, value: Any, least: int) -> int | None:
    return None if value is None else _whole(name, value, least)


def _world_and_rank(rank: int | None, world: int | None) -> tuple[int, int]:
    """``(world, rank)``, looked up where they were not given, as the drop-in does.

    Raises:
        ValueError: nobody knows, or those who do contradict each other.
    """
    if rank is not None and world is not None:
        return _whole("world", world, 1), _whole("rank", rank, 0)
    if rank is None and world is None and sys.modules.get("torch") is None:
        found = rank_info()
        return found.world, found.rank
    from millhead.torch.ranks.world import replica_or_alone

    try:
        return replica_or_alone(world, rank)
    except ValueError as error:
        raise ValueError(str(error).replace("num_replicas", "world")) from None


_live: weakref.WeakSet[Loader] = weakref.WeakSet()


def _close_at_exit(loader: Loader) -> None:
    """Before the interpreter ends, its loaders do: their threads read into memory it gives back."""
    if not _live:
        atexit.unregister(_close_all)
        atexit.register(_close_all)
    _live.add(loader)


def _close_all() -> None:
    for loader in list(_live):
        loader.close()
