"""What ranks do with ``millhead.torch``: run by torchrun, one report for all.

    torchrun --standalone --nproc-per-node 4 ranks.py DIRECTORY CASE...

Rank 0 writes DIRECTORY/CASE.WORLD.json: a list of what the case returned on each rank. Every step of
a loop is a collective operation, as in training: ranks that do not step together hang.
"""

from __future__ import annotations

import gc
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from millhead._mounts import Mount
from millhead.torch import (
    BlockShuffleSampler,
    Checkpoint,
    DataLoader,
    DistributedSampler,
    LengthBatchSampler,
    ShardedIterable,
    TensorDataset,
    auto_rank0_first,
    loader_stats,
    local_rank0_first,
    rank0_first,
)
from millhead.torch.ranks import rank0_first as rank0_first_module
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

#: 4 ranks do 2 steps of 5 (40 samples), 2 ranks 3 steps (30), 3 ranks the rest: 34, padded to 36.
COUNT = 104
BATCH = 5
STEPS = {4: 2, 2: 3}

NUMBERS = TensorDataset(torch.arange(COUNT))


def steps(sampler: DistributedSampler[int], most: int | None = None) -> list[int]:
    """Trains: the samples this rank saw in an epoch, or in its first steps."""
    return train(DataLoader(NUMBERS, batch_size=BATCH, sampler=sampler, num_workers=1), most)


def train(loader: Any, most: int | None = None) -> list[int]:
    """All ranks step together, or wait for each other for ever."""
    seen: list[int] = []
    for step, (batch,) in enumerate(loader, 1):
        together = torch.tensor([step])
        dist.all_reduce(together)
        assert together.item() == step * dist.get_world_size()
        seen += batch.tolist()
        if step == most:
            break
    return seen


def epoch(_: Path) -> Any:
    sampler = DistributedSampler(NUMBERS, seed=3)
    sampler.check()
    sampler.set_epoch(2)
    return {"rank": sampler.rank, "of": sampler.num_replicas, "seen": steps(sampler)}


def uneven(_: Path) -> Any:
    """Every sample once, in a model's training: ranks that end first shadow the others."""
    data = TensorDataset(torch.arange(4.0 * dist.get_world_size() + 1).unsqueeze(1))
    sampler = DistributedSampler(data, uneven=True)
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    seen = []
    with Join([model]):
        for (batch,) in DataLoader(data, batch_size=2, sampler=sampler):
            model(batch).sum().backward()
            seen += [int(number) for number in batch.flatten().tolist()]
    return {"seen": seen, "lengths": sampler.lengths()}


def mesh(_: Path) -> Any:
    """Two data-parallel replicas of two tensor-parallel ranks each."""
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    replicas = grid["dp"]
    sampler = DistributedSampler(
        NUMBERS, num_replicas=replicas.size(), rank=replicas.get_local_rank()
    )
    sampler.check()
    return {"dp": sampler.rank, "tp": grid["tp"].get_local_rank(), "seen": steps(sampler)}


def disagree(_: Path) -> Any:
    """What check() says about ranks that do not fit together."""
    rank, size = dist.get_rank(), dist.get_world_size()
    samplers = {
        "length": DistributedSampler(range(10 - (rank == 1))),
        "seed": DistributedSampler(range(10), seed=rank),
        "rank": DistributedSampler(range(10), num_replicas=size, rank=0),
    }
    said = {}
    for name, sampler in samplers.items():
        try:
            sampler.check()
        except RuntimeError as error:
            said[name] = str(error)
    return said


def unlike(_: Path) -> Any:
    """What loaders say by themselves about ranks whose samplers differ, or do not."""
    rank = dist.get_rank()
    torchs = torch.utils.data.DistributedSampler
    if rank == 2:  # looks at its own data before it trains
        next(iter(DataLoader(range(77), sampler=DistributedSampler(range(77)))))
    samplers = {
        "same": [DistributedSampler(range(10)), torchs(range(11), shuffle=False)],
        "length": [DistributedSampler(range(10 - (rank == 1)))],
        "torch's": [torchs(range(10 - (rank == 1)))],
        "seed": [DistributedSampler(range(10), seed=int(rank == 1))],
        "own": [DistributedSampler(range(10 + rank), num_replicas=1, rank=0)],
    }
    said = {}
    for name, some in samplers.items():
        loader_stats._advised.discard("ranks disagree")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for sampler, turn in ((sampler, turn) for sampler in some for turn in range(2)):
                dist.barrier()
                if turn == int(rank > 0):  # rank 0 has the first word
                    list(DataLoader(sampler.dataset, sampler=sampler))
        said[name] = [str(each.message) for each in caught]
    return said


def stop(directory: Path) -> Any:
    """Trains some steps from where another world stopped, if one did, and leaves its state."""
    sampler = DistributedSampler(NUMBERS, seed=3)
    saved = directory / "state.json"
    if saved.exists():
        sampler.load_state_dict(json.loads(saved.read_text()))
        sampler.check()
    sampler.set_epoch(2)
    seen = steps(sampler, STEPS.get(sampler.num_replicas))
    state = sampler.state_at(len(seen))
    dist.barrier()  # all have read the old one
    if sampler.rank == 0:
        saved.write_text(json.dumps(state))
    return {"seen": seen, "state": state}


def _visit(enter: Any, log: Path, fails: int | None = None) -> Any:
    """Goes through a block that appends to a log; what was there on entering, and what was raised."""
    rank = dist.get_rank()
    seen: Any = None
    try:
        with enter() as first:
            seen = log.read_text().split() if log.exists() else []
            time.sleep(0.2 if first else 0)  # the others would overtake, if they could
            if rank == fails:
                raise OSError(f"no route\nto host {rank}")
            with log.open("a") as file:
                file.write(f"{rank}\n")
    except (OSError, RuntimeError) as error:
        return {"seen": seen, "raised": f"{type(error).__name__}: {error}"}
    return {"seen": seen, "first": first, "left": sorted(log.read_text().split())}


def first(directory: Path) -> Any:
    """Who goes first, on one machine and on two of equally many ranks."""
    rank, world = dist.get_rank(), dist.get_world_size()

    def log(name: str) -> Path:
        return directory / f"{name}.{world}.log"

    found = {
        "rank0": _visit(rank0_first, log("rank0")),
        "one machine": _visit(local_rank0_first, log("one")),
        "rank 0 fails": _visit(rank0_first, log("fails"), fails=0),
        "rank 1 fails": _visit(rank0_first, log("last fails"), fails=1),
        "afterwards": _visit(rank0_first, log("afterwards")),
    }
    rank0_first_module.machine = lambda: f"machine {rank * 2 // world}"  # type: ignore[assignment]
    found["two machines"] = _visit(local_rank0_first, log("two"))
    found["second machine fails"] = _visit(local_rank0_first, log("second"), fails=world // 2)
    found["local disk"] = _visit(lambda: auto_rank0_first(directory), log("local"))
    shared = Mount("server:/data", "/data", "nfs4")
    rank0_first_module.mount_of = lambda path: shared  # type: ignore[assignment]
    found["shared mount"] = _visit(lambda: auto_rank0_first("/data/set"), log("shared"))
    if rank == 1:  # mounted elsewhere here: nobody may rely on it
        rank0_first_module.mount_of = lambda path: Mount("/dev/sda", "/", "ext4")  # type: ignore[assignment]
    found["mixed mounts"] = _visit(lambda: auto_rank0_first("/data/set"), log("mixed"))
    return found


class Kept:
    """Stands for a loader whose state is its rank's own."""

    found: Any = None

    def state_dict(self) -> Any:
        return {"rank": dist.get_rank()}

    def load_state_dict(self, state: Any) -> None:
        self.found = state["rank"]


def checkpoint(directory: Path) -> Any:
    """Trains some steps from where another world stopped, and leaves a checkpoint, which the same
    world goes on from too. Only rank 0 sees the file."""
    rank, world = dist.get_rank(), dist.get_world_size()
    place = directory if rank == 0 else directory / "nobody's"

    def load() -> tuple[Checkpoint, DataLoader[Any], dict[str, Any]]:
        sampler = DistributedSampler(NUMBERS, seed=3)
        loader = DataLoader(NUMBERS, batch_size=BATCH, sampler=sampler, num_workers=1)
        saved = Checkpoint(place / "progress.json", loader)
        state = saved.load()
        sampler.set_epoch(2)
        return saved, loader, state

    saved, loader, state = load()
    seen: list[int] = []
    for step, (batch,) in enumerate(loader, 1):
        seen += batch.tolist()
        state["global_step"] += 1
        saved.save(state)
        if step == STEPS.get(world):
            break
    rest = [index for (batch,) in load()[1] for index in batch.tolist()]
    kept, others = Kept(), Kept()
    Checkpoint(place / "kept.json", others).load()
    dist.barrier()  # all have read the other world's
    Checkpoint(place / "kept.json", kept).save(state)
    Checkpoint(place / "kept.json", kept).load()
    broken = place / "broken.json"
    if rank == 0:
        broken.write_text("{")
    try:
        said = str(Checkpoint(broken).load())
    except RuntimeError as error:
        said = str(error).replace(str(place), "PLACE")
    return {
        "seen": seen,
        "rest": rest,
        "step": state["global_step"],
        "kept": kept.found,
        "others": others.found,
        "said": said,
        "made": place.exists(),
    }


def sampling(_: Path) -> Any:
    """The other samplers and shards, with the ranks of the process group."""
    lengths = LengthBatchSampler([1 + number % 17 for number in range(COUNT)], max_tokens=40)
    blocks = BlockShuffleSampler(NUMBERS, 10, 3)
    each = COUNT // dist.get_world_size()
    shards = ShardedIterable([7, 50, 3], numbered, samples_per_rank=each)
    return {
        "lengths": train(DataLoader(NUMBERS, batch_sampler=lengths, num_workers=1)),
        "blocks": train(DataLoader(NUMBERS, batch_size=BATCH, sampler=blocks, num_workers=1)),
        "shards": train(DataLoader(shards, batch_size=BATCH, num_workers=2)),
    }


def numbered(count: int) -> Any:
    return ((number,) for number in range(count))


CASES = {
    case.__name__: case
    for case in (epoch, uneven, mesh, disagree, unlike, stop, first, checkpoint, sampling)
}


def main() -> None:
    directory, names = Path(sys.argv[1]), sys.argv[2:]
    launched = DistributedSampler(range(10))  # before there is a process group
    dist.init_process_group("gloo")
    assert (launched.rank, launched.num_replicas) == (dist.get_rank(), dist.get_world_size())
    for name in names:
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, CASES[name](directory))
        if dist.get_rank() == 0:
            report = directory / f"{name}.{dist.get_world_size()}.json"
            report.write_text(json.dumps(everyone))
    gc.collect()  # models in cycles keep the group's threads, at which torch aborts at its exit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
