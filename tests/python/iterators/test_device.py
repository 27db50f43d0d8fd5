"""``millhead.torch.to_device``: batches copied ahead of time.

There is no GPU here. What streams do is played by a model of torch's: work is queued and done later, in
any order that events allow, and memory that is freed is used again at once unless a stream that still
needs it was recorded. A loop must read the right numbers in all such orders. The rest (which batches come,
states, errors, ends) is tested with real loaders, on the CPU as it is.
"""

from __future__ import annotations

import collections
import gc
import random
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import millhead
import pytest
import torch
from helpers import procs
from helpers.parity_cases import Items
from millhead.torch import DataLoader, DistributedSampler, to_device
from millhead.torch.device_copy import convert
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data.datapipes.iter import IterableWrapper

pytestmark = pytest.mark.filterwarnings("ignore:millhead. batches that are not in pinned")

# --- a model of a device ---

CUDA = torch.device("cuda", 0)


class Stream:
    """Work in its order; an entry is a function, or an event to wait for."""

    def __init__(self, device: Any = None) -> None:
        self.work: collections.deque[Any] = collections.deque()
        self.free: list[list[Any]] = []  # memory that was allocated on it

    def record_event(self) -> Event:
        event = Event()
        self.work.append(event.set)
        return event

    def wait_event(self, event: Event) -> None:
        self.work.append(event)

    def can_go_on(self) -> bool:
        head = self.work[0] if self.work else None
        return head is not None and (not isinstance(head, Event) or head.done)

    def go_on(self) -> None:
        head = self.work.popleft()
        if not isinstance(head, Event):
            head()


class Event:
    """Whether a stream has come to a point of its work."""

    def __init__(self) -> None:
        self.done = False

    def set(self) -> None:
        self.done = True


class OnDevice(torch.Tensor):
    """A tensor of the device; ``memory[0]`` is what it holds, as far as the work has come."""

    memory: list[Any]
    streams: list[Any]

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CUDA

    def record_stream(self, stream: Any) -> None:
        self.streams.append(stream)

    def to(self, *_: Any, **__: Any) -> OnDevice:  # type: ignore[override]
        return self


class Device:
    """Stands for torch.cuda."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.consumer = self.current = Stream()
        self.streams = [self.consumer]
        self.under_way: list[bool] = []  # for each copy: whether it was asked not to block
        copies = self

        def to(tensor: torch.Tensor, device: Any, non_blocking: bool = False) -> torch.Tensor:
            return copies.copy(tensor, non_blocking)

        class Host(torch.Tensor):
            """A tensor that the device can copy."""

        Host.to = to  # type: ignore[assignment,method-assign]
        self.host = Host
        monkeypatch.setattr(torch.cuda, "Stream", self.new_stream)
        monkeypatch.setattr(torch.cuda, "stream", self.use)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: self.current)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)

    def new_stream(self, device: Any) -> Stream:
        self.streams.append(Stream())
        return self.streams[-1]

    def use(self, stream: Stream) -> Any:
        device = self

        class Used:
            def __enter__(self) -> None:
                self.before, device.current = device.current, stream

            def __exit__(self, *_: object) -> None:
                device.current = self.before

        return Used()

    def copy(self, tensor: torch.Tensor, non_blocking: bool) -> OnDevice:
        """Memory of the current stream, filled when its work comes to that."""
        stream, numbers = self.current, tensor.tolist()
        memory = stream.free.pop() if stream.free else [None]
        copied = torch.empty(0).as_subclass(OnDevice)
        copied.memory, copied.streams = memory, []
        stream.work.append(lambda: memory.__setitem__(0, numbers))
        recorded = copied.streams
        # Where another stream was recorded, memory waits for it: here, for the end of the test.
        weakref.finalize(copied, lambda: None if recorded else stream.free.append(memory))
        self.under_way.append(non_blocking)
        return copied

    def read(self, tensor: OnDevice, into: list[Any]) -> None:
        """A kernel of the consumer's."""
        memory = tensor.memory
        self.current.work.append(lambda: into.append(memory[0]))

    def run(self, choice: random.Random) -> None:
        """Do all work, in some order that is possible."""
        while ready := [stream for stream in self.streams if stream.can_go_on()]:
            choice.choice(ready).go_on()
        assert not any(stream.work for stream in self.streams)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


class OnHost:
    """A loader's batches as the model's, with all else the loader's."""

    def __init__(self, loader: Any, device: Device) -> None:
        self._loader = loader
        self._device = device

    def __iter__(self) -> Iterator[Any]:
        return _HostIterator(iter(self._loader), self._device)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _HostIterator:
    def __init__(self, iterator: Iterator[Any], device: Device) -> None:
        self._iterator, self._device = iterator, device

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return convert(next(self._iterator), self._to_host)

    def _to_host(self, leaf: Any) -> Any:
        return leaf.as_subclass(self._device.host) if isinstance(leaf, torch.Tensor) else leaf


def _loader(workers: int = 0, count: int = 23, **options: Any) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(3)
    return DataLoader(
        Items("int", count),
        batch_size=2,
        shuffle="sampler" not in options,
        num_workers=workers,
        generator=generator,
        **options,
    )


def _numbers(loader: Any) -> list[Any]:
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_a_loop_reads_what_was_copied_in_whichever_order_the_device_works(
    device: Device, depth: int, seed: int
) -> None:
    expected, read = _numbers(_loader()), []
    for batch in to_device(OnHost(_loader(), device), "cuda", depth):
        device.read(batch, read)
        del batch  # its memory is free, and the kernel has not begun
    device.run(random.Random(seed))
    assert read == expected
    assert device.under_way == [True] * len(expected)


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_a_batch_waits_for_its_own_copy_only(device: Device, depth: int) -> None:
    """The consumer goes on as soon as that is done, however many others are under way."""
    iterator = iter(to_device(OnHost(_loader(), device), CUDA, depth))
    read: list[Any] = []
    device.read(next(iterator), read)
    side = device.streams[1]
    assert len(side.work) == 2 * (1 + depth)  # a copy and its event each
    side.go_on()
    side.go_on()
    while device.consumer.can_go_on():
        device.consumer.go_on()
    assert len(read) == 1


def test_the_next_batch_is_on_its_way_while_the_first_is_used(device: Device) -> None:
    taken: list[int] = []

    class Noted(Items):
        def __getitem__(self, index: int) -> Any:
            taken.append(index)
            return index

    loader = DataLoader(Noted("int", 6), batch_size=2)
    iterator = iter(to_device(OnHost(loader, device), "cuda"))
    assert taken == []
    next(iterator)
    assert taken == [0, 1, 2, 3]
    assert len(device.under_way) == 2


def test_tensors_in_containers_are_copied_and_other_things_stay(device: Device) -> None:
    pair = collections.namedtuple("pair", "left right")
    tensor = torch.tensor([1, 2]).as_subclass(device.host)
    thing = object()
    batch = {
        "list": [tensor, "text", 3],
        "tuple": (tensor, None),
        "named": pair(tensor, thing),
        "ordered": collections.OrderedDict(a=tensor),
        "there": torch.empty(0).as_subclass(OnDevice),
    }
    batch["there"].streams = []
    (found,) = to_device([batch], "cuda")
    assert isinstance(found["list"], list) and found["list"][1:] == ["text", 3]
    assert isinstance(found["tuple"], tuple) and found["tuple"][1] is None
    assert type(found["named"]) is pair and found["named"].right is thing
    assert type(found["ordered"]) is collections.OrderedDict
    assert found["there"] is batch["there"]
    copied = [found["list"][0], found["tuple"][0], found["named"].left, found["ordered"]["a"]]
    assert all(type(leaf) is OnDevice for leaf in copied)
    assert all(leaf.streams == [device.consumer] for leaf in copied)
    assert batch["ordered"]["a"] is tensor  # the loader's own batch is as it was


def test_what_moves_itself_is_moved_when_it_is_handed_over(device: Device) -> None:
    moves: list[Any] = []

    class Own:
        def to(self, place: torch.device) -> str:
            moves.append((place, device.current))
            return "moved"

    assert list(to_device([[Own()], [Own()]], "cuda")) == [["moved"], ["moved"]]
    assert moves == [(CUDA, device.consumer)] * 2


# --- which batches, states, errors and ends ---


@pytest.fixture(params=["cpu", "cuda"])
def moving(request: pytest.FixtureRequest, device: Device) -> Callable[..., Any]:
    """to_device, and for the model's device the numbers of its batches as they come."""

    def make(loader: Any, depth: int = 1) -> Any:
        if request.param == "cpu":
            return to_device(loader, "cpu", depth)
        return to_device(OnHost(loader, device), "cuda", depth)

    return make


def _seen(batch: Any, device: Device) -> Any:
    if not isinstance(batch, OnDevice):
        return batch.tolist()
    device.run(random.Random(1))
    return batch.memory[0]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("depth", [1, 3])
def test_epochs_have_the_loaders_batches(
    moving: Callable[..., Any], device: Device, depth: int, workers: int
) -> None:
    plain = _loader(workers)
    expected = [_numbers(plain) for _ in range(2)]
    loader = moving(_loader(workers), depth)
    assert len(loader) == 12
    assert [[_seen(batch, device) for batch in loader] for _ in range(2)] == expected
    assert loader.stats()["epoch"] == 2
    assert loader.batch_size == 2


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("at", [0, 1, 7, 11, 12, 13])
def test_a_resumed_loop_goes_on_after_the_batch_in_use(
    moving: Callable[..., Any], device: Device, at: int, depth: int, workers: int
) -> None:
    """``at`` batches were handed over; 13: and the end was met."""
    plain = _loader(workers)
    expected = [_numbers(plain) for _ in range(2)]
    first = moving(_loader(workers), depth)
    iterator = iter(first)
    handed = [_seen(next(iterator), device) for _ in range(min(at, 12))]
    if at == 13:
        assert next(iterator, None) is None
    state = first.state_dict()
    assert handed == expected[0][: len(handed)]
    del iterator
    assert first.state_dict()["_num_yielded"] == state["_num_yielded"]  # the loop was left
    second = moving(_loader(workers), depth)
    second.load_state_dict(state)
    rest = [_seen(batch, device) for batch in second]
    assert rest == (expected[1] if at == 13 else expected[0][at:])


def test_the_state_is_the_plain_loaders_at_every_batch(
    moving: Callable[..., Any], device: Device
) -> None:
    plain, ahead = _loader(2), moving(_loader(2), 2)
    for mine, _ in zip(plain, ahead, strict=True):
        del mine
        assert ahead.state_dict() == plain.state_dict()
    assert ahead.state_dict() == plain.state_dict()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_comes_in_its_place_and_the_loop_may_go_on(
    moving: Callable[..., Any], device: Device, workers: int
) -> None:
    dataset = Items("int", 8, errors=((5, "KeyError"),))
    loader = moving(DataLoader(dataset, batch_size=2, num_workers=workers), depth=3)
    iterator = iter(loader)
    assert [_seen(next(iterator), device) for _ in range(2)] == [[0, 1], [2, 3]]
    assert loader.state_dict()["_num_yielded"] == 2
    with pytest.raises(KeyError):
        next(iterator)
    assert [_seen(batch, device) for batch in iterator] == [[6, 7]]
    with pytest.raises(StopIteration):
        next(iterator)


def test_leaving_a_loop_ends_the_workers(moving: Callable[..., Any]) -> None:
    before = procs.children()
    gc.disable()
    try:
        for count, _ in enumerate(moving(_loader(2, count=80), depth=3)):
            if count == 3:
                break
        for count, _ in enumerate(moving(_loader(2), depth=3)):
            if count == 10:  # the end is known already
                break
        assert procs.wait_until(lambda: procs.children() == before)
    finally:
        gc.enable()


@pytest.mark.parametrize("cls", [DataLoader, torch.utils.data.DataLoader])
def test_a_loader_without_a_state_is_served_too(device: Device, cls: Any) -> None:
    loader = to_device(OnHost(cls(IterableWrapper(range(6)), batch_size=2), device), "cuda")
    assert [_seen(batch, device) for batch in loader] == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises((RuntimeError, AttributeError)):
        loader.state_dict()


def test_leaving_a_loop_closes_a_generator(device: Device) -> None:
    ended: list[str] = []

    class Stream:
        def __iter__(self) -> Iterator[Any]:
            try:
                yield from (torch.tensor([n]).as_subclass(device.host) for n in range(9))
            finally:
                ended.append("closed")

    for _ in to_device(Stream(), "cuda"):
        break
    assert ended == ["closed"]


def test_set_epoch_reaches_the_sampler(moving: Callable[..., Any]) -> None:
    sampler = DistributedSampler(range(8), num_replicas=2, rank=0)
    moving(_loader(sampler=sampler)).set_epoch(5)
    assert sampler.epoch == 5
    moving(DataLoader(range(8))).set_epoch(1)  # nobody there to know


def test_on_the_cpu_batches_are_the_loaders_own_objects() -> None:
    batches = [torch.rand(2), {"a": torch.rand(2)}, object()]
    assert all(map(lambda one, other: one is other, to_device(batches, "cpu"), batches))


def test_other_devices_get_their_batches_as_they_are_asked_for() -> None:
    """Really moved: to the device that holds nothing."""
    packed = pack_sequence([torch.ones(2), torch.ones(1)])
    loader = to_device([[torch.rand(3), "x", packed]], "meta")
    ((tensor, text, sequence),) = loader
    assert tensor.is_meta and tensor.shape == (3,) and text == "x"
    assert isinstance(sequence, PackedSequence) and sequence.data.is_meta
    assert not sequence.batch_sizes.is_meta


def test_memory_that_is_not_pinned_is_told(device: Device) -> None:
    with pytest.warns(millhead.Advice, match="pin_memory=True"):
        iter(to_device(OnHost(_loader(), device), "cuda"))


@pytest.mark.parametrize("depth", [0, -1, 1.5, True])
def test_what_is_no_depth_is_refused(depth: Any) -> None:
    with pytest.raises(ValueError, match="depth should be at least 1"):
        to_device([], "cpu", depth)
