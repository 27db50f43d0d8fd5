"""Shuffling data that lies in blocks: how random it is, against what has to be read for it."""

from __future__ import annotations

import itertools
import json
import os
import pickle
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import millhead
import pytest
import torch
import torch.utils.data
from millhead.torch import BlockShuffleSampler, DataLoader

COUNT, BLOCK, POOL = 20_000, 100, 16

#: Said about some of the loops below; test_lengths.py tests it.
pytestmark = pytest.mark.filterwarnings("ignore:millhead. an epoch begins")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)


# --- randomness against reading -----------------------------------------------------------------


class Blocks:
    """Keeps the blocks that were used last, and counts those that had to be read."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.reads = 0
        self.kept: OrderedDict[int, Any] = OrderedDict()

    def get(self, number: int) -> Any:
        if number in self.kept:
            self.kept.move_to_end(number)
            return self.kept[number]
        if len(self.kept) == self.most:
            self.kept.popitem(last=False)
        self.reads += 1
        self.kept[number] = self.read(number)
        return self.kept[number]

    def read(self, number: int) -> Any:
        return number


def reads(order: Iterable[int], keep: int) -> int:
    blocks = Blocks(keep)
    for index in order:
        blocks.get(index // BLOCK)
    return blocks.reads


def follows(order: list[int]) -> float:
    """How well a sample's number foretells the next one's: 1 always, 0 not at all."""
    numbers = torch.tensor(order).double()
    return float(torch.corrcoef(torch.stack([numbers[:-1], numbers[1:]]))[0, 1])


def displacement(order: list[int]) -> float:
    """How far samples are from where they lie in the data; a third of it in a full shuffle."""
    return sum(abs(index - place) for place, index in enumerate(order)) / len(order) ** 2


def test_larger_pools_are_more_random_and_every_block_is_read_once() -> None:
    found = {
        pool: list(BlockShuffleSampler(range(COUNT), BLOCK, pool, seed=3)) for pool in (1, 16, 200)
    }
    for pool, order in found.items():
        assert sorted(order) == list(range(COUNT))
        assert reads(order, keep=pool) == COUNT // BLOCK
        assert 0.25 < displacement(order) < 0.42
    assert follows(found[1]) > 0.9  # the block is the same
    assert follows(found[16]) < 0.2  # about one in sixteen
    assert abs(follows(found[200])) < 0.05  # nothing left
    neighbours = [a // BLOCK == b // BLOCK for a, b in itertools.pairwise(found[16])]
    assert 0.5 / 16 < sum(neighbours) / len(neighbours) < 2 / 16


def test_a_full_shuffle_reads_nearly_a_block_for_every_sample() -> None:
    order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(0)).tolist()
    assert reads(order, keep=POOL) > COUNT / 2
    assert abs(follows(order)) < 0.05
    assert 0.3 < displacement(order) < 0.37


# --- every sample, every rank -------------------------------------------------------------------


def world(ranks: int, *arguments: Any, **options: Any) -> list[BlockShuffleSampler]:
    return [
        BlockShuffleSampler(*arguments, num_replicas=ranks, rank=rank, **options)
        for rank in range(ranks)
    ]


@pytest.mark.parametrize("blocks", [7, 1, 1000, "uneven"])
def test_ranks_give_equally_many_and_every_sample_comes(blocks: Any) -> None:
    for ranks, count in itertools.product((1, 2, 3, 7), (0, 1, 5, 60, 101)):
        sizes = blocks
        if blocks == "uneven":
            sizes = [count - count // 3 - count // 4, 0, count // 3, count // 4]
        samplers = world(ranks, range(count), sizes, 2)
        given = [list(sampler) for sampler in samplers]
        share = -(-count // ranks)
        assert [len(sampler) for sampler in samplers] == [len(each) for each in given]
        assert {len(each) for each in given} == {share}
        samples = list(itertools.chain.from_iterable(given))
        assert sorted({*samples}) == list(range(count))
        cut = list(
            itertools.chain.from_iterable(world(ranks, range(count), sizes, 2, drop_last=True))
        )
        assert len(cut) == len({*cut}) == count // ranks * ranks


def test_hardly_a_block_is_read_by_two_ranks() -> None:
    samplers = world(4, range(COUNT), BLOCK, POOL)
    assert sum(reads(sampler, keep=POOL) for sampler in samplers) <= COUNT // BLOCK + 3
    assert [samplers[0].block_of(index) for index in (0, 99, 100, COUNT - 1)] == [0, 0, 1, 199]


def test_an_epoch_follows_from_seed_and_epoch_alone() -> None:
    def order(seed: int, epoch: int, pool: int = 4) -> list[int]:
        sampler = BlockShuffleSampler(range(200), 10, pool, seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert order(1, 2) == order(1, 2)
    orders = [order(0, 0), order(0, 1), order(1, 0), order(0, 0, pool=5)]
    assert all(one != other for one, other in itertools.combinations(orders, 2))
    places = [[index % 10 for index in order(0, 0)[n : n + 40]] for n in (0, 40)]
    assert places[0] != places[1]  # pools are shuffled each in its own way


def test_blocks_that_are_not_the_datas_are_refused() -> None:
    with pytest.raises(ValueError, match="blocks of 9 samples in all do not make up the data of 8"):
        BlockShuffleSampler(range(8), [4, 5])
    with pytest.raises(ValueError, match="block_size should be at least 1, but got 0"):
        BlockShuffleSampler(range(8), 0)
    with pytest.raises(ValueError, match="pool_blocks should be at least 1, but got 0"):
        BlockShuffleSampler(range(8), 1, 0)


# --- in a loader --------------------------------------------------------------------------------


class Chunks(Blocks):
    def __init__(self, path: Path, most: int) -> None:
        super().__init__(most)
        self.path = path

    def read(self, number: int) -> Any:
        with self.path.open("rb") as file:
            data = os.pread(file.fileno(), BLOCK * 8, number * BLOCK * 8)
        return torch.frombuffer(bytearray(data), dtype=torch.int64)


class ChunkedFile(torch.utils.data.Dataset[Any]):
    """Samples of a file that is read in blocks, with who read how many of them so far."""

    def __init__(self, path: Path) -> None:
        self.chunks = Chunks(path, POOL)
        self.samples = path.stat().st_size // 8

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        value = self.chunks.get(index // BLOCK)[index % BLOCK]
        return value, os.getpid(), self.chunks.reads


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "numbers"
    path.write_bytes(torch.arange(4000).numpy().tobytes())
    return path


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_reads_each_block_once_in_every_worker(file: Path, workers: int) -> None:
    totals = {}
    for name in ("blocks", "full"):
        data = ChunkedFile(file)
        sampler: Any = BlockShuffleSampler(data, BLOCK, POOL)
        if name == "full":
            sampler = torch.utils.data.RandomSampler(data)
        most: dict[int, int] = {}
        seen = []
        for values, pids, counts in DataLoader(
            data, batch_size=20, sampler=sampler, num_workers=workers
        ):
            seen += values.tolist()
            most[int(pids[-1])] = int(counts[-1])
        assert sorted(seen) == list(range(4000))
        totals[name] = sum(most.values())
    # of two workers each sees half of a round, and may miss a block that it has to keep
    assert totals["blocks"] <= (40 if workers == 0 else 40 * workers * 1.05)
    assert totals["full"] > 20 * totals["blocks"]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_goes_on_in_the_middle_of_a_pool(file: Path, workers: int) -> None:
    def make(epoch: int | None) -> Any:
        data = ChunkedFile(file)
        sampler = world(3, data, BLOCK, 4, seed=1)[2]
        if epoch is not None:
            sampler.set_epoch(epoch)
        return DataLoader(data, batch_size=7, sampler=sampler, num_workers=workers)

    def values(batches: Iterable[Any]) -> list[int]:
        return [number for batch in batches for number in batch[0].tolist()]

    whole = values(make(6))
    for done in (0, 1, 64, 190):
        loader = make(6)
        iterator = iter(loader)
        seen = values(itertools.islice(iterator, done))
        state = json.loads(json.dumps(loader.state_dict()))
        del iterator
        for epoch in (6, None):
            resumed = make(epoch)
            resumed.load_state_dict(state)
            if done or epoch is not None:  # before the first sample nobody asked which epoch
                assert seen + values(resumed) == whole
                assert values(resumed) == whole


def test_a_copy_and_a_state_give_the_rest_and_strangers_are_refused() -> None:
    sampler = BlockShuffleSampler(range(100), 10, 3)
    order = list(sampler)
    sampler.load_state_dict(sampler.state_at(37))
    assert list(pickle.loads(pickle.dumps(sampler))) == order[37:]
    assert list(sampler) == order[37:]
    assert list(sampler) == order
    state = sampler.state_at(100)
    sampler.load_state_dict(state)
    assert list(sampler) == []
    with pytest.raises(ValueError, match="consumed should be up to 100, but got 101"):
        BlockShuffleSampler(range(100), 10, 3).state_at(101)
    for other in (BlockShuffleSampler(range(90), 10, 3), BlockShuffleSampler(range(100), 10, 4)):
        with pytest.raises(ValueError, match="what remains of its epoch is not known here"):
            other.load_state_dict(state)
    for legs in (None, [], [[1]], [[1, -1]], 7):
        with pytest.raises(ValueError, match="the state has no legs"):
            sampler.load_state_dict({**state, "legs": legs})


# --- ranks that come and go ---------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [10, [30, 0, 50, 1, 20]], ids=str)
@pytest.mark.parametrize("worlds", [(1, 2, 1), (2, 3, 4), (4, 2, 2), (3, 1, 5)], ids=str)
def test_other_numbers_of_ranks_take_up_the_rest(worlds: tuple[int, ...], blocks: Any) -> None:
    state: Any = None
    seen: list[int] = []
    for ranks in worlds:
        samplers = world(ranks, range(101), blocks, 3, seed=5)
        for sampler in samplers:
            if state is not None:
                sampler.load_state_dict(state)
        given = [list(sampler) for sampler in samplers]
        assert len({len(each) for each in given}) == 1
        assert sorted({*seen, *itertools.chain.from_iterable(given)}) == list(range(101))
        assert len(given[0]) == -(-(101 - len({*seen})) // ranks)
        state = json.loads(json.dumps(samplers[-1].state_at(len(given[0]) // 3, state)))
        seen += [number for each in given for number in each[: len(given[0]) // 3]]
        assert len(seen) == len({*seen}) == state["position"]


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_order_is_that_of_the_native_loader(ranks: int) -> None:
    for rank, sampler in enumerate(world(ranks, range(2030), 50, 17, seed=9)):
        with millhead.Loader(
            "synthetic:count=2030,shape=2,chunk=50", 7, fields=["label"], shuffle="blocks",
            seed=9, epoch=4, rank=rank, world=ranks, output="numpy",
        ) as loader:  # fmt: skip
            native = [number for batch in loader for number in batch["label"].tolist()]
        sampler.set_epoch(4)
        assert list(sampler) == native
