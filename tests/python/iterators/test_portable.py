"""Where there is no C core or an old torch, the drop-in is torch's own loader, and says so once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import millhead
import pytest
from millhead.torch import DataLoader

# Torch is imported first: it is here as built for Linux, whatever the platform is called later.
_PROGRAM = """
import importlib.abc, inspect, json, os, sys, warnings
import torch, torch.utils.data
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as Multi
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter as Single
from torchdata.stateful_dataloader import StatefulDataLoader

class Refusal(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "millhead._core":
            raise ImportError("undefined symbol: mh_gone")

if sys.argv[1] == "old torch":
    torch.__version__ = type(torch.__version__)("2.5.1+cpu")
else:
    sys.platform = sys.argv[1]
    sys.meta_path.insert(0, Refusal())
warnings.simplefilter("always")
import millhead, millhead.torch
from millhead.torch import DataLoader

class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return 23
    def __getitem__(self, i):
        return torch.rand(3) + i, {"i": i, "name": str(i), "worker": os.getpid() != parent}

class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from range(7)

parent = os.getpid()

def batches(kind, dataset, workers, **options):
    torch.manual_seed(5)
    loader = kind(dataset, batch_size=4, num_workers=workers, **options)
    found = [list(loader) for _ in range(2)]
    return loader, [repr(found), torch.rand(1).item()]

report = {"equal": [], "own": [], "stats": []}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for dataset, options in ((Noisy(), {"shuffle": True}), (Stream(), {})):
        for workers in (0, 2):
            _, expected = batches(torch.utils.data.DataLoader, dataset, workers, **options)
            loader, found = batches(DataLoader, dataset, workers, **options)
            iterator = iter(loader)
            report["equal"].append(expected == found)
            report["own"].append(isinstance(iterator, Multi if workers else Single))
            report["stats"].append(millhead.torch.stats(iterator))
            del iterator
    wanted = inspect.signature(torch.utils.data.DataLoader.__init__).parameters
    values = {n: p.default for n, p in wanted.items() if n not in ("self", "dataset")}
    values.update(num_workers=2, prefetch_factor=3, persistent_workers=True, in_order=False,
                  timeout=30, worker_init_fn=print, multiprocessing_context="fork",
                  generator=torch.Generator(), dispatch="batch", memory="1GB",
                  on_error="raise", rng=("torch",))
    everything = DataLoader(Noisy(), **values)
    report["everything"] = sum(1 for _ in everything)
    everything.stats(reset=True)
    report["after_reset"] = everything.stats()["batches"]
    everything._iterator._shutdown_workers()
    millhead.torch.install()
    torchs = torch.utils.data.DataLoader(Noisy(), batch_size=4)
    report["installed"] = [len(list(torchs)), millhead.torch.stats(torchs)["paths"]["torch"]]
    report["stateful"] = []
    for workers in (0, 2):
        first, second = (
            StatefulDataLoader(range(12), batch_size=4, num_workers=workers) for _ in range(2)
        )
        iterator = iter(first)
        next(iterator)
        second.load_state_dict(first.state_dict())
        kind = type(iterator).__module__.partition(".")[0]
        report["stateful"].append([kind, [batch.tolist() for batch in second]])

def sampled(kind, count, ranks, **options):
    samplers = [kind(range(count), ranks, rank, seed=3, **options) for rank in range(ranks)]
    for sampler in samplers:
        sampler.set_epoch(2)
    return [list(sampler) for sampler in samplers]

report["sampler"] = [
    sampled(millhead.torch.DistributedSampler, count, ranks, **options)
    == sampled(torch.utils.data.DistributedSampler, count, ranks, **options)
    for count in range(12) for ranks in range(1, 6)
    for options in ({}, {"shuffle": False}, {"drop_last": True})
]
report["uneven"] = sampled(millhead.torch.DistributedSampler, 10, 4, uneven=True)
sampler = millhead.torch.DistributedSampler(range(10), 2, 0)
whole = list(sampler)
sampler.load_state_dict(sampler.state_at(2))
report["resumed"] = list(sampler) == whole[2:]
order = iter(sampler)
order.load_state_dict({"given": 3})
report["skipped"] = list(order) == whole[3:] and order.state_dict() == {"given": 5}
try:
    millhead.torch.DistributedSampler(range(10), 2, 0, order="keyed")
except ValueError as error:
    report["keyed"] = str(error)
lengths = [1 + number % 7 for number in range(40)]
batched = millhead.torch.LengthBatchSampler(lengths, 4, num_replicas=1, rank=0)
blocks = millhead.torch.BlockShuffleSampler(range(40), 5, 2, num_replicas=1, rank=0)
shards = millhead.torch.ShardedIterable(range(40), lambda shard: [shard], shuffle=True)
mixed = millhead.torch.ShuffleBuffer(shards, 8, 4)
def epochs(sampler, flat):
    for epoch in (0, 1, 0):
        sampler.set_epoch(epoch)
        yield [*sum(sampler, [])] if flat else [*sampler]
report["others"] = [[*epochs(s, s is batched)] for s in (batched, blocks, shards, mixed)]
blocks.load_state_dict(blocks.state_at(17))
two = [millhead.torch.BlockShuffleSampler(range(40), 5, 2, num_replicas=2, rank=r) for r in (0, 1)]
for sampler in two:
    sampler.load_state_dict(blocks.state_dict())  # as it was loaded
report["taken up"] = [*two[0], *two[1]]
report["rest"] = [*blocks]
report["refused"] = []
for option in ({"dispatch": "sample"}, {"on_error": "skip"}):
    try:
        DataLoader(Noisy(), **option)
    except ValueError as error:
        report["refused"].append(str(error))
advice = [w for w in caught if issubclass(w.category, millhead.Advice)]
report["advice"] = [str(w.message) for w in advice]
report["at"] = [w.filename for w in advice]
report["version"] = millhead.__version__
report["error"] = [base.__name__ for base in millhead.Error.__mro__]
report["modules"] = [name for name in sys.modules if name.startswith("millhead")]
print(json.dumps(report))
"""

# The modules that need no C core; the engine's must not even be imported.
_PORTABLE = {"millhead"} | {
    f"millhead.{name}"
    for name in (
        "_arguments",
        "_import_hook",
        "_mounts",
        "_rank_info",
        "torch",
        "torch.core_available",
        "torch.device_copy",
        "torch.installation",
        "torch.iterators",
        "torch.iterators.failed_samples",
        "torch.iterators.fetch",
        "torch.iterators.torch_fallback",
        "torch.loader",
        "torch.loader_stats",
        "torch.ranks",
        "torch.ranks.agreement",
        "torch.ranks.batch_size",
        "torch.ranks.rank0_first",
        "torch.ranks.world",
        "torch.resume",
        "torch.resume.checkpoint",
        "torch.resume.json_values",
        "torch.resume.loader_position",
        "torch.resume.progress",
        "torch.resume.restore",
        "torch.resume.rng_state",
        "torch.resume.sampler_progress",
        "torch.resume.saved_position",
        "torch.sampling",
        "torch.sampling.block_order",
        "torch.sampling.blocks",
        "torch.sampling.distributed",
        "torch.sampling.epoch_sampler",
        "torch.sampling.lengths",
        "torch.sampling.padding",
        "torch.sampling.rank_order",
        "torch.sampling.shards",
        "torch.sampling.shuffle_buffer",
        "torch.workers",
        "torch.workers.dask_cluster",
        "torch.workers.position_rng",
    )
}


def _report(script: Path, platform: str) -> dict[str, Any]:
    script.write_text(_PROGRAM)
    done = subprocess.run(
        [sys.executable, script, platform], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Exception ignored" not in done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


@pytest.mark.parametrize("platform", ["darwin", "linux", "old torch"])
def test_torchs_own_iterators_serve_without_the_core(platform: str, tmp_path: Path) -> None:
    script = tmp_path / "portable.py"
    report = _report(script, platform)
    assert report["equal"] == [True] * 4
    assert report["own"] == [True] * 4
    assert set(report["modules"]) - {"millhead._core"} == _PORTABLE
    assert len(report["refused"]) == 2
    assert all("torch's own iterators" in text for text in report["refused"])
    real = DataLoader([1]).stats()
    # Each of two workers gives the whole stream.
    for stats, workers, batches in zip(report["stats"], [0, 2, 0, 2], [12, 12, 4, 8], strict=True):
        assert stats.keys() == real.keys()
        assert stats["wait_ms"].keys() == real["wait_ms"].keys()
        assert stats["path"] == "torch"
        assert stats["workers"] == workers
        assert stats["paths"] == {"slot": 0, "general": 0, "torch": batches}
        assert stats["wait_ms"]["count"] == 0
        assert stats["slowest"] == []
    assert report["sampler"] == [True] * 180
    assert sorted(index for indices in report["uneven"] for index in indices) == list(range(10))
    assert report["resumed"]
    assert report["skipped"]
    assert ("keyed" in report) == (platform != "old torch")  # the C core is there, then
    assert "C core" in report.get("keyed", "C core")
    for first, second, again in report["others"]:
        assert sorted(first) == sorted(second) == list(range(40))
        assert first == again
        assert len({tuple(first), tuple(second), tuple(range(40))}) == 3
    assert report["rest"] == report["others"][1][0][17:]
    assert sorted({*report["taken up"]}) == sorted(report["rest"])
    assert len(report["taken up"]) == 24  # 23 on two ranks
    assert report["everything"] == 23
    assert report["after_reset"] == 0
    assert report["installed"] == [6, 6]
    assert report["stateful"] == [["torchdata", [[4, 5, 6, 7], [8, 9, 10, 11]]]] * 2
    assert len(report["advice"]) == 1
    assert report["at"] == [str(script)]
    where = "torch 2.5.1\\+cpu" if platform == "old torch" else platform
    assert re.fullmatch(rf"millhead: .+ \({where}\): \S.+", report["advice"][0])
    if platform == "old torch":
        assert "torch 2.6 or later" in report["advice"][0]
    elif platform == "linux":  # there it should have loaded: why did it not
        assert "undefined symbol: mh_gone" in report["advice"][0]
        assert "reinstall" in report["advice"][0]
    else:
        assert "Linux" in report["advice"][0]
        assert "mh_gone" not in report["advice"][0]
    assert report["version"] == millhead.__version__
    assert report["error"][:2] == ["Error", "RuntimeError"]
