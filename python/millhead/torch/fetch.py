"""Getting samples out of a dataset: what the caller and its workers both need to know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils.data import Subset, TensorDataset

try:
    from numpy import ndarray as _Array
except ImportError:
    _Array = None  # type: ignore[assignment,misc]

_TENSOR_DATASET_ITEM = TensorDataset.__getitem__
_SUBSET_ITEM, _SUBSET_ITEMS = Subset.__getitem__, Subset.__getitems__


def as_list(index: Any) -> list[Any]:
    """The indices of a batch: a batch sampler may yield any iterable of them."""
    return index if type(index) is list else list(index)


def length(samples: Any) -> int:
    """How many samples; 1 for what does not say."""
    return len(samples) if hasattr(samples, "__len__") else 1


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


def within(dataset: Any, numbers: list[Any]) -> tuple[Any, list[Any]]:
    """A Subset's own dataset and indices in it; any other dataset as it is."""
    if is_plain_subset(dataset):
        return dataset.dataset, [dataset.indices[number] for number in numbers]
    return dataset, numbers


def columns_of(dataset: Any) -> Any:
    """What batches can be gathered from row by row, for ``gather``: the tensors of a TensorDataset,
    or a tensor or array that is the dataset. None for a dataset with code of its own."""
    kind = type(dataset)
    if kind is TensorDataset:
        plain = kind.__getitem__ is _TENSOR_DATASET_ITEM and not hasattr(dataset, "__getitems__")
        return dataset.tensors if plain else None
    return dataset if kind is Tensor or (_Array is not None and kind is _Array) else None


def rows_of(dataset: Any, numbers: list[Any]) -> tuple[Any, list[Any]]:
    """The columns and rows to ``gather`` a batch from; (None, []) where that cannot be."""
    if is_plain_subset(dataset):
        columns = columns_of(dataset.dataset)
        if columns is None:
            return None, []
        indices = dataset.indices
        return columns, [indices[number] for number in numbers]
    return columns_of(dataset), numbers


class Stream:
    """An iterable dataset's samples, in batches, by the rules of torch's own fetcher.

    Dropping it drops the iterator, and so closes a generator at once: its owner must not be part of
    a reference cycle with it.
    """

    def __init__(self, iterator: Any, drop_last: bool) -> None:
        self.iterator = iterator
        self.drop_last = drop_last
        self.taken = 0
        self.failed = 0  # the number of the item that raised an exception last
        self.ended = False

    def batch(self, count: int, draw: Callable[[Any, int, int], list[Any]]) -> list[Any]:
        """The samples of the next batch. Raises StopIteration when there is none.

        ``draw(iterator, first, count)`` gives the next ``count`` samples, fewer at the end. Where
        it raises an exception it first says with ``raised`` at which.
        """
        if self.ended:
            raise StopIteration
        samples = draw(self.iterator, self.taken, count)
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
            self.raised(0)
            raise
        self.taken += 1
        return sample

    def pass_over(self, batches: int, fetch: Callable[[], Any]) -> None:
        """Draw again what was consumed before, where nothing can tell the dataset to begin there.

        Raises ValueError where there is less of it.
        """
        for passed in range(batches):
            try:
                fetch()
            except StopIteration:
                raise ValueError(
                    f"millhead: cannot resume: the iterable dataset ended after {passed} of the "
                    f"{batches} batches that were consumed: it is not the one the state was made "
                    "with"
                ) from None
            except Exception:  # noqa: BLE001, S112 - it was raised then too, and the run went on
                continue

    def raised(self, offset: int) -> None:
        """An exception came instead of the item that many after the last batch."""
        self.failed = self.taken + offset
        self.taken = self.failed + 1
