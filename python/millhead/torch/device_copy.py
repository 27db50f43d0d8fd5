"""Copies the next batches to the device while the present one is used.

Copies run on a stream of their own. The consumer's stream waits for the copy of a batch that is handed
over, and the allocator knows that this stream uses its memory: nobody waits on the CPU.
"""

from __future__ import annotations

import contextlib
import copy
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch

from millhead.torch.loader_stats import advise


def to_device(loader: Any, device: torch.device | str | int, depth: int = 1) -> DeviceLoader:
    """A loader whose batches are on ``device``, copied ahead of time where that is a CUDA device.

    Up to ``depth`` batches beyond the one in use are on their way, by ``non_blocking`` copies on a
    side stream; use ``pin_memory=True``, without which a copy stops the program. A loader without
    workers is asked, and draws random numbers, that much earlier. Tensors in lists, tuples and
    dictionaries are copied, whatever else has a ``to()`` is moved when it is handed over, and all
    other things stay as they are. For the CPU batches are handed through untouched.

    ``state_dict()`` and ``load_state_dict()`` are exact: batches that are on their way count as not
    consumed. ``len()``, ``set_epoch()`` and the attributes are the loader's.

        >>> from millhead.torch import DataLoader, to_device
        >>> for batch in to_device(DataLoader(range(4), batch_size=2), "cpu"):
        ...     print(batch)
        tensor([0, 1])
        tensor([2, 3])
    """
    place = torch.device(device)
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
        raise ValueError(f"depth should be at least 1, but got {depth!r}")
    return DeviceLoader(loader, place, depth)


@dataclass
class _Coming:
    """What a loader gave ahead of time: a batch with its copy, or the exception in its place."""

    #: The loader's state before it gave this; None where it has none.
    before: Any
    batch: Any = None
    copied: Any = None  # the event after its copies
    error: BaseException | None = None


class DeviceLoader:
    """What :func:`to_device` gives."""

    def __init__(self, loader: Any, device: torch.device, depth: int) -> None:
        self._loader = loader
        self._device = device
        self._depth = depth
        #: The state to tell while the loader itself is ahead of the consumer.
        self._state: Any = None

    def __iter__(self) -> Iterator[Any]:
        self._state = None
        if self._device.type == "cpu":
            return iter(self._loader)
        if self._device.type != "cuda":
            return (convert(batch, lambda leaf: move(leaf, self._device)) for batch in self._loader)
        if not getattr(self._loader, "pin_memory", True):
            advise(
                "unpinned",
                "batches that are not in pinned memory are copied while the program waits "
                "(to_device): give the loader pin_memory=True",
            )
        return Prefetcher(self, self._device, self._depth)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        # Copying and pickling ask before the loader is there.
        if name.startswith("__") or name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)

    def set_epoch(self, epoch: int) -> None:
        """The loader's, or its sampler's; without one nothing happens."""
        loader = self._loader
        batch_sampler = getattr(loader, "batch_sampler", None)
        inner = getattr(batch_sampler, "sampler", getattr(loader, "sampler", None))
        for owner in (loader, batch_sampler, inner):
            set_epoch: Any = getattr(owner, "set_epoch", None)
            if set_epoch is not None:
                set_epoch(epoch)
                return

    def state_dict(self) -> Any:
        """Where the consumer is, not where the loader is."""
        return self._loader.state_dict() if self._state is None else self._state

    def state_of_loader(self) -> Any:
        """Where the loader is; None where it cannot say."""
        with contextlib.suppress(Exception):  # who asks for it is told why
            return self._loader.state_dict()
        return None

    def load_state_dict(self, state: Any) -> None:
        """The loader's."""
        self._loader.load_state_dict(state)
        self._state = None


class Prefetcher:
    """An iterator that is up to ``depth`` batches ahead, for CUDA devices.

    Nothing refers to it but its consumer: when a loop breaks it goes, and the loader's iterator too.
    """

    def __init__(self, owner: DeviceLoader, device: torch.device, depth: int) -> None:
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        self._owner = owner
        self._device = device
        self._depth = depth
        self._batches = iter(owner._loader)
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._coming: deque[_Coming] = deque()

    def __iter__(self) -> Prefetcher:
        return self

    def __next__(self) -> Any:
        if not self._coming:
            self._take()
        now = self._coming.popleft()
        if now.error is None:
            self._make_ready(now)  # before others are copied: it need not wait for those
            while len(self._coming) < self._depth and not self._has_met_error():
                self._take()
        self._owner._state = self._coming[0].before if self._coming else None
        if now.error is not None:
            raise now.error
        return now.batch

    def _has_met_error(self) -> bool:
        """Whether the loader raised an exception that the consumer has still to see."""
        return bool(self._coming) and self._coming[-1].error is not None

    def _take(self) -> None:
        """Take a batch from the loader, and begin to copy it."""
        coming = _Coming(before=self._owner.state_of_loader())
        try:
            coming.batch = next(self._batches)
            with torch.cuda.stream(self._stream):
                coming.batch = convert(coming.batch, self._copy)
                coming.copied = self._stream.record_event()
        except StopIteration:
            coming.error = StopIteration()
        except Exception as error:  # noqa: BLE001 - the consumer's to see, in its place
            # Without this frame, which would keep the iterator alive.
            trace = error.__traceback__
            coming.error = error.with_traceback(trace and trace.tb_next)
        self._coming.append(coming)

    def _copy(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu":
            return leaf.to(self._device, non_blocking=True)
        return leaf

    def _make_ready(self, coming: _Coming) -> None:
        """Let the consumer's stream use a batch."""
        consumers = torch.cuda.current_stream(self._device)
        consumers.wait_event(coming.copied)

        def use(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor) and leaf.device == self._device:
                # Its memory is the side stream's: not to be used again before this one is done.
                leaf.record_stream(consumers)
                return leaf
            return move(leaf, self._device)

        coming.batch = convert(coming.batch, use)


def move(leaf: Any, device: torch.device) -> Any:
    """A tensor, or whatever else has ``to()``, on a device."""
    if isinstance(leaf, torch.Tensor):
        return leaf.to(device, non_blocking=True)
    return leaf.to(device) if callable(getattr(leaf, "to", None)) else leaf


def convert(value: Any, change: Callable[[Any], Any]) -> Any:
    """A batch with everything in it that is no container changed.

    An object with ``to()`` is not a container: it knows best what of it belongs on a device (packed sequences).
    """
    if isinstance(value, torch.Tensor) or callable(getattr(value, "to", None)):
        return change(value)
    if isinstance(value, Mapping):
        items = {key: convert(item, change) for key, item in value.items()}
        if type(value) is dict or not isinstance(value, MutableMapping):
            return items
        other = copy.copy(value)
        other.update(items)
        return other
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(convert(item, change) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(convert(item, change) for item in value)
    return change(value)
