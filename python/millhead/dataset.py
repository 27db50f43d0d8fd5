"""Samples by number, read by the C core: a map-style dataset for any loader."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from millhead._data_options import PLAIN, DataOptions
from millhead._native_arrays import Data, Field, Opened

__all__ = ["Dataset", "Mapped", "open"]


class Dataset:
    """What :func:`millhead.open` gives.

    ``[i]`` is one sample, a dict by field; ``[[i, j]]`` and ``[i:j]`` are a batch, a dict of arrays
    with the samples along the first axis. It may be used by any number of threads, goes with a
    fork, and opens the same files again where it is unpickled.
    """

    def __init__(
        self,
        data: Data,
        fields: Iterable[str] | None = None,
        *,
        output: str | None = None,
        options: DataOptions = PLAIN,
    ) -> None:
        self.data = data
        self.output = output
        self._wanted = fields if fields is None or isinstance(fields, str) else list(fields)
        self._options = options
        self._opened = Opened(data, self._wanted, output, options)
        self._count = self._opened.core.count

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"millhead.open({self.data!r}): {self._count} samples of {self._opened.summary()}"

    @property
    def fields(self) -> dict[str, Field]:
        """The type and the shape of each field of a sample."""
        return self._opened.fields()

    @property
    def classes(self) -> list[str]:
        """The name of the class for each ``label``; empty where there are none."""
        return self._opened.core.classes

    def __getitem__(self, index: Any) -> dict[str, Any]:
        """One sample, or a batch.

        Raises:
            IndexError: there is no such sample.
            OSError: a file cannot be read or has changed.
        """
        one, numbers = numbers_of(index, self._count)
        batch = self._opened.batch(self._opened.core.read(numbers))
        return {name: array[0] for name, array in batch.items()} if one else batch

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[number] for number in range(self._count))

    def map(self, fn: Callable[[dict[str, Any]], Any]) -> Mapped:
        """The same samples after ``fn``, which runs where they are asked for: in the workers."""
        return Mapped(self, fn)

    def __reduce__(self) -> tuple[Any, ...]:
        reopen = functools.partial(Dataset, output=self.output, options=self._options)
        return reopen, (self.data, self._wanted)


class Mapped:
    """A dataset whose samples a function has changed: ``[i]`` is ``fn(dataset[i])``.

    ``[[i, j]]`` is a list of such samples.
    """

    def __init__(self, dataset: Dataset | Mapped, fn: Callable[[Any], Any]) -> None:
        self.dataset = dataset
        self.fn = fn

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def fields(self) -> dict[str, Field]:
        """Those of the samples that ``fn`` gets."""
        return self.dataset.fields

    def __getitem__(self, index: Any) -> Any:
        one, numbers = numbers_of(index, len(self))
        samples = [self.fn(self.dataset[number]) for number in numbers]
        return samples[0] if one else samples

    def __iter__(self) -> Iterator[Any]:
        return (self[number] for number in range(len(self)))

    def map(self, fn: Callable[[Any], Any]) -> Mapped:
        """The same samples after one more function."""
        return Mapped(self, fn)


def open(
    data: Data, fields: Iterable[str] | None = None, *, output: str | None = None, **options: Any
) -> Dataset:
    """Open data as a dataset of samples by number.

    Args:
        data: as :class:`millhead.Loader` takes it.
        fields: the ones to read, in the order of the dict; ``_index`` is a sample's number.
        output: ``"torch"``, ``"numpy"`` or ``"jax"``; None: torch where it can be imported.
        options: what to read, as :class:`millhead.Loader` takes it: ``pipeline``, ``profile``,
            ``window``, ``stride``, ``select``, ``target``, ``join``, ``decode``,
            ``index``, ``storage_options``, ``cache``, ``cache_check``.

    Raises:
        FileNotFoundError, OSError: a file cannot be read.
        ValueError: an unknown field, or lengths that differ.
        millhead.Error: data that is corrupt or of a type that is not supported.

    Examples:
        >>> import millhead, numpy, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> numpy.save(f"{folder.name}/x.npy", numpy.arange(5) * 10)
        >>> millhead.open(f"{folder.name}/x.npy")[[4, 2]]["x"].tolist()
        [40, 20]
        >>> folder.cleanup()
    """
    return Dataset(data, fields, output=output, options=DataOptions(**options))


def numbers_of(index: Any, count: int) -> tuple[bool, list[int]]:
    """The samples that an index names, and whether it is one alone.

    Raises:
        IndexError: there is no such sample.
        TypeError: neither a number, a slice nor a list of numbers.
    """
    if isinstance(index, slice):
        return False, list(range(*index.indices(count)))
    if getattr(index, "ndim", 0):  # torch takes a tensor with one number for that number
        return False, [_number(one, count) for one in index]
    if isinstance(index, Sequence) and not isinstance(index, str | bytes):
        return False, [_number(one, count) for one in index]
    return True, [_number(index, count)]


def _number(index: Any, count: int) -> int:
    number = operator.index(index)
    if not -count <= number < count:
        raise IndexError(f"no sample {number}: there are {count}")
    return number + count if number < 0 else number
