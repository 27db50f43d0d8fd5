"""Getting samples out of a dataset, in the caller or in a worker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils.data import Subset, TensorDataset, default_collate

from millhead.torch.iterators.failed_samples import Faults, Tolerance
from millhead.torch.workers.position_rng import Generators, sample_key

if TYPE_CHECKING:
    from millhead._core import Meter, WorkerEnd
    from millhead.watching.fetch_times import Fetches

try:
    from numpy import ndarray as _Array
except ImportError:
    _Array = None  # type: ignore[assignment,misc]

_TENSOR_DATASET_ITEM = TensorDataset.__getitem__
_SUBSET_ITEM, _SUBSET_ITEMS = Subset.__getitem__, Subset.__getitems__
#: Datasets that may be nothing but rows in memory.
_ROWS = (TensorDataset, Subset, Tensor, _Array)


def as_list(index: Any) -> list[Any]:
    """The indices of a batch: a batch sampler may yield any iterable of them."""
    return index if type(index) is list else list(index)


def length(samples: Any) -> int:
    """How many samples; 1 for what does not say."""
    return len(samples) if hasattr(samples, "__len__") else 1


def in_short(numbers: list[Any]) -> str:
    """The first indices of a batch, for messages."""
    some = ", ".join(repr(number) for number in numbers[:8])
    return f"[{some}, ...]" if len(numbers) > 8 else f"[{some}]"


def is_plain_subset(dataset: Any) -> bool:
    """Whether a Subset does nothing but choose: neither its class nor the object is altered."""
    return (
        type(dataset) is Subset
        and Subset.__getitem__ is _SUBSET_ITEM
        and Subset.__getitems__ is _SUBSET_ITEMS
        and "__getitems__" not in vars(dataset)
    )


def fetches_together(dataset: Any) -> bool:
    """Whether a batch is fetched by one ``__getitems__``.

    A plain Subset has it only for the sake of the dataset it wraps: where that one has none,
    fetching one by one is the same, and can say which sample failed.
    """
    if not getattr(dataset, "__getitems__", None):
        return False
    if is_plain_subset(dataset):
        return callable(getattr(dataset.dataset, "__getitems__", None))
    return True


def columns_of(dataset: Any) -> Any:
    """What batches can be gathered from row by row, for ``gather``: the tensors of a TensorDataset,
    or a tensor or array that is the dataset. None for a dataset with code of its own."""
    kind = type(dataset)
    if kind is TensorDataset:
        plain = kind.__getitem__ is _TENSOR_DATASET_ITEM and not hasattr(dataset, "__getitems__")
        return dataset.tensors if plain else None
    return dataset if kind is Tensor or (_Array is not None and kind is _Array) else None


@dataclass(eq=False)
class Stream:
    """An iterable dataset's samples, in batches, by the rules of torch's own fetcher.

    Dropping it drops the iterator, and so closes a generator at once: its owner must not be part of
    a reference cycle with it.
    """

    iterator: Any
    drop_last: bool
    taken: int = 0
    failed: int = 0  # the number of the item that raised an exception last
    ended: bool = False

    def batch(self, count: int, timer: Meter | WorkerEnd, observer: Fetches | None) -> list[Any]:
        """The samples of the next batch. Raises StopIteration when there is none."""
        if self.ended:
            raise StopIteration
        iterator = self.iterator if observer is None else observer.timed(self.iterator)
        samples: list[Any] = []
        try:
            timer.fetch(iterator, count, self.taken, samples)
        except Exception:
            self._raised(len(samples))
            raise
        self.taken += len(samples)
        self.ended = len(samples) < count
        if not samples or (self.drop_last and self.ended):
            raise StopIteration
        return samples

    def one(self) -> Any:
        """The next sample, for loaders that make no batches."""
        if self.ended:
            raise StopIteration
        try:
            sample = next(self.iterator)
        except StopIteration:
            raise
        except Exception:
            self._raised(0)
            raise
        self.taken += 1
        return sample

    def _raised(self, offset: int) -> None:
        """An exception came instead of the item that many after the last batch."""
        self.failed = self.taken + offset
        self.taken = self.failed + 1


@dataclass(eq=False)
class Fetcher:
    """Turns the index of a batch into samples and those into a batch, by torch's rules.

    Where an exception comes of it, ``step`` tells in what: ``sample`` (number ``failed`` of
    ``numbers``, or of the stream), ``fetching`` (all of them together) or ``collating``.
    """

    dataset: Any
    collate_fn: Callable[[Any], Any]
    auto_collation: bool
    #: What deals with samples that raise an exception; None: they are the caller's to see.
    tolerance: Tolerance | None
    #: Fetches samples and times each: the first in the caller, the other in a worker.
    timer: Meter | WorkerEnd
    collate_in_c: Callable[[Any], Any]
    #: Of an iterable dataset.
    stream: Stream | None = None
    #: Who hears how long everything takes; None: nobody watches.
    observer: Fetches | None = None
    position: int = 0  # of the batch's first sample in the epoch
    step: str = ""
    numbers: Any = ()  # indices of the batch in hand
    failed: int = 0
    #: What happened to samples of the batch that could not be loaded.
    faults: Faults | None = None

    def __post_init__(self) -> None:
        self.default_collate = self.auto_collation and self.collate_fn is default_collate
        #: Whether it is worth to ask for ``rows``.
        self.may_gather = self.default_collate and type(self.dataset) in _ROWS

    def rows(self, index: Any) -> tuple[Any, list[Any]]:
        """The columns and rows to ``gather`` a batch from; (None, []) where that cannot be."""
        dataset = self.dataset
        if type(index) is not list:
            return None, []
        if not is_plain_subset(dataset):
            return columns_of(dataset), index
        columns = columns_of(dataset.dataset)
        if columns is None:
            return None, []
        return columns, [dataset.indices[number] for number in index]

    def fetch(self, index: Any) -> Any:
        """The samples of a batch, or the one sample where the loader makes no batches."""
        self.step, self.failed = "sample", 0
        if self.stream is not None:
            self.numbers = index if self.auto_collation else [index]
            samples = self._draw(self.stream, index)
        elif self.tolerance is not None:
            samples = self._fetch_tolerantly(self.tolerance, index)
        elif not self.auto_collation:
            self.numbers = [index]
            samples = self._source(self.dataset)[index]
        elif getattr(self.dataset, "__getitems__", None) and fetches_together(self.dataset):
            self.step, self.numbers = "fetching", index if hasattr(index, "__len__") else []
            samples = self.dataset.__getitems__(index)
        else:
            samples = self._fetch_one_by_one(index)
        if self.observer is not None:
            self.observer.fetched(length(samples) if self.auto_collation else 1)
        return samples

    def _source(self, samples: Any) -> Any:
        """What is asked for samples: a dataset, or what stands for it while it is watched."""
        return samples if self.observer is None else self.observer.timed(samples)

    def _fetch_one_by_one(self, index: Any) -> list[Any]:
        self.numbers = numbers = index if type(index) is list else list(index)
        dataset = self.dataset
        if type(dataset) is Subset and is_plain_subset(dataset):
            numbers = [dataset.indices[number] for number in numbers]
            dataset = dataset.dataset
        if self.observer is not None:
            dataset = self.observer.timed(dataset)
        samples: list[Any] = []
        try:
            self.timer.fetch(dataset, numbers, 0, samples)
        except Exception:
            self.failed = len(samples)
            raise
        return samples

    def fetch_some(self, numbers: list[Any], first: int, samples: list[Any]) -> None:
        """Append the samples of these indices; the first is number ``first`` of the batch."""
        self.timer.fetch(self._source(self.dataset), numbers, first, samples)

    def _fetch_tolerantly(self, tolerance: Tolerance, index: Any) -> Any:
        """The samples that can be had; what happened to the others is in ``faults``."""
        self.numbers = as_list(index) if self.auto_collation else [index]
        self.faults = None
        if self.auto_collation and fetches_together(self.dataset):
            with contextlib.suppress(Exception):  # one of them: see which, one by one
                return self.dataset.__getitems__(self.numbers)
        try:
            samples, self.faults = tolerance.fetch_batch(
                self.numbers, self.position, self.fetch_some
            )
        except Exception:
            self.failed = tolerance.failed
            raise
        return samples if self.auto_collation else samples[0]

    def _draw(self, stream: Stream, index: Any) -> Any:
        if not self.auto_collation:
            return stream.one()
        return stream.batch(len(index), self.timer, self.observer)

    def skip(self, batches: int, next_index: Callable[[], Any]) -> None:
        """Draw again what was consumed of a stream that cannot be told where to begin.

        Raises ValueError where there is less of it.
        """
        assert self.stream is not None
        for passed in range(batches):
            try:
                self._draw(self.stream, next_index())
            except StopIteration:
                raise ValueError(
                    f"millhead: cannot resume: the iterable dataset ended after {passed} of the "
                    f"{batches} batches that were consumed: it is not the one the state was made "
                    "with"
                ) from None
            except Exception:  # noqa: BLE001, S112 - it was raised then too, and the run went on
                continue

    def collate(self, samples: Any) -> tuple[str, Any]:
        """The batch, and how it was made, in the words of ``stats()["paths"]``."""
        batch = self.collate_in_c(samples) if self.default_collate else NotImplemented
        if batch is NotImplemented:
            return "general", self.collate_fn(samples)
        return "slot", batch


class KeyedFetcher(Fetcher):
    """For ``dispatch="sample"``: what a sample draws depends on its position alone.

    ``key`` is the epoch's; the positions of a batch's samples are ``stride`` apart.
    """

    generators: Generators
    key = 0
    stride = 1

    def fetch_run(self, numbers: list[Any], first: int) -> list[Any]:
        """The samples of some of a batch, of which the first is its number ``first``."""
        self.step, self.numbers = "sample", numbers
        samples: list[Any] = []
        if self.tolerance is None:
            self.fetch_some(numbers, first, samples)
        else:
            self.tolerance.seed, self.tolerance.stride = self.key, self.stride
            samples, self.faults = self.tolerance.fetch(
                numbers, self.position, self.fetch_some, first
            )
        if self.observer is not None:
            self.observer.fetched(len(samples))
        return samples

    def fetch_some(self, numbers: list[Any], first: int, samples: list[Any]) -> None:
        """Append samples to a list, each drawing from generators of its own."""
        dataset = self._source(self.dataset)
        for offset, number in enumerate(numbers, first):
            self.generators.seed(sample_key(self.key, self.position + self.stride * offset))
            self.failed = offset
            self.timer.fetch(dataset, [number], offset, samples)

    def _fetch_one_by_one(self, index: Any) -> list[Any]:
        self.numbers = as_list(index)
        samples: list[Any] = []
        self.fetch_some(self.numbers, 0, samples)
        return samples
