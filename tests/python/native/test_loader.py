"""millhead.Loader: NumPy's values in the order asked for, whatever threads, ranks and resumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest
import torch
from millhead._data_options import DataOptions

COUNT = 103


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """x: 103 rows of 5 floats; label: a number each."""
    draw = np.random.default_rng(3)
    np.save(tmp_path / "x.npy", draw.random((COUNT, 5), np.float32))
    np.save(tmp_path / "label.npy", draw.integers(0, 1 << 40, COUNT))
    return [str(tmp_path / "x.npy"), str(tmp_path / "label.npy")]


def order_of(loader: millhead.Loader) -> list[int]:
    return [number for batch in loader for number in batch["_index"].tolist()]


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("shuffle", [False, True, "torch"])
def test_values_are_numpys(paths: list[str], shuffle: bool | str, threads: int) -> None:
    x, label = (np.load(path) for path in paths)
    with millhead.Loader(
        paths, 8, fields=["x", "_index", "label"], shuffle=shuffle, seed=5, threads=threads
    ) as loader:
        assert len(loader) == 13
        for epoch in range(3):
            numbers: list[int] = []
            for batch in loader:
                assert list(batch) == ["x", "_index", "label"]
                assert torch.equal(batch["x"], torch.from_numpy(x[batch["_index"].numpy()]))
                assert torch.equal(batch["label"], torch.from_numpy(label[batch["_index"].numpy()]))
                numbers += batch["_index"].tolist()
            assert sorted(numbers) == list(range(COUNT))
            if shuffle == "torch":
                generator = torch.Generator().manual_seed(5 + epoch)
                assert numbers == torch.randperm(COUNT, generator=generator).tolist()
            assert (numbers == list(range(COUNT))) == (shuffle is False)


def test_a_simulated_link_changes_the_time_alone(paths: list[str]) -> None:
    def read(simulate: str | None) -> list[int]:
        with millhead.Loader(
            paths, 8, fields=["x", "_index"], shuffle=True, in_flight=32, simulate=simulate
        ) as loader:
            return order_of(loader)

    assert read("latency=2ms,bandwidth=10MB/s") == read(None)
    with pytest.raises(OSError, match="simulated link"):
        read("errors=100%")
    with pytest.raises(ValueError, match="speed=3"):
        read("speed=3")


TYPES = [
    "f2",
    "f4",
    "f8",
    "i1",
    "i2",
    "i4",
    "i8",
    "u1",
    "u2",
    "u4",
    "u8",
    "b1",
    "c8",
    "c16",
    "M8[s]",
    "m8[ms]",
    "S7",
    "U3",
]


@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", TYPES)
def test_types_are_numpys(tmp_path: Path, dtype: str, output: str) -> None:
    raw = np.random.default_rng(1).integers(0, 2 if dtype == "b1" else 90, (12, 3))
    array = (raw + 1j * raw if dtype[0] == "c" else raw).astype(dtype)
    np.save(tmp_path / "a.npy", array)
    with millhead.Loader(tmp_path / "a.npy", 12, output=output) as loader:
        (batch,) = loader
    found = np.asarray(batch["a"])
    if dtype[0] in "SU":
        assert found.dtype == np.uint8
        found = found.view(dtype)[..., 0]
    elif dtype[0] in "Mm":
        assert found.dtype == np.int64
        found = found.view(dtype)
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


def test_batches_share_the_cores_memory_and_may_be_written(paths: list[str]) -> None:
    with millhead.Loader(paths, 8, output="numpy") as loader:
        batch = next(iter(loader))
    assert not batch["x"].flags.owndata and batch["x"].flags.writeable
    batch["x"][:] = 7
    with millhead.Loader(paths, 8, output="torch") as loader:
        batch = next(iter(loader))
    batch["x"].add_(1)
    assert np.array_equal(batch["x"].numpy(), np.load(paths[0])[:8] + 1)


def test_both_dlpack_layouts_lead_to_the_same_memory(paths: list[str]) -> None:
    arrays = millhead.open(paths)._opened.core.read([3, 1])
    views = [
        torch.utils.dlpack.from_dlpack(arrays[1].__dlpack__(max_version=version))
        for version in (None, (0, 8), (1, 0), (2, 1))
    ]
    arrays[1].__dlpack__()  # not used
    arrays[1].__dlpack__(max_version=(1, 0))
    assert arrays[1].__dlpack_device__() == (1, 0)
    assert len({view.data_ptr() for view in views}) == 1
    with pytest.raises(BufferError):
        arrays[1].__dlpack__(dl_device=(2, 0))
    del arrays
    views[0][0, 0] = 9
    assert views[3][0, 0] == 9
    assert memoryview(np.load(paths[0])[[3, 1]])[1, 0] == views[2][1, 0].item()


def test_batches_that_are_kept_stay_as_they_are(paths: list[str]) -> None:
    x = np.load(paths[0])
    loader = millhead.Loader(paths, 4, memory=4096, output="numpy")
    kept = [batch for _ in range(3) for batch in loader]
    loader.close()
    del loader
    assert np.array_equal(np.concatenate([batch["x"] for batch in kept]), np.concatenate([x] * 3))


@pytest.mark.parametrize("limit", [None, 6])
@pytest.mark.parametrize("shuffle", [True, "torch"])
def test_a_state_goes_on_at_every_step(
    paths: list[str], shuffle: bool | str, limit: int | None
) -> None:
    options: dict[str, Any] = {"fields": ["x", "_index"], "shuffle": shuffle, "seed": 2}
    options["limit_batches"] = limit
    with millhead.Loader(paths, 10, **options) as loader:
        whole = [[batch["_index"].tolist() for batch in loader] for _ in range(2)]
        loader.set_epoch(0)
        states = [loader.state_dict()]
        states += [loader.state_dict() for _ in loader]
        states.append(loader.state_dict())
    assert states[-1]["epoch"] == 1 and states[-1]["position"] == 0
    for step, state in enumerate(states):
        with millhead.Loader(paths, 10, **options, threads=0) as loader:
            loader.load_state_dict(state)
            assert loader.state_dict() == state
            loader.set_epoch(state["epoch"])  # as training loops do
            rest = [batch["_index"].tolist() for batch in loader]
            assert rest == (whole[0][step:] if state["epoch"] == 0 else whole[1])


def test_another_world_and_batch_size_take_up_the_rest(paths: list[str]) -> None:
    options: dict[str, Any] = {"fields": ["x", "_index"], "shuffle": True}
    with millhead.Loader(paths, 8, **options) as loader:
        whole = order_of(loader)
        loader.set_epoch(0)
        iterator = iter(loader)
        for _ in range(4):
            next(iterator)
        state = loader.state_dict()
    rest: dict[int, int] = {}
    for rank in range(3):
        with millhead.Loader(paths, 5, rank=rank, world=3, uneven=True, **options) as loader:
            loader.load_state_dict(state)
            rest |= {32 + rank + 3 * i: number for i, number in enumerate(order_of(loader))}
    assert [rest[at] for at in sorted(rest)] == whole[32:]


@pytest.mark.parametrize("change", ["seed", "order", "data", "kind"])
def test_a_state_of_something_else_is_refused_by_name(
    paths: list[str], tmp_path: Path, change: str
) -> None:
    with millhead.Loader(paths, 8, shuffle=True) as loader:
        state = loader.state_dict()
    np.save(tmp_path / "other.npy", np.zeros(COUNT))
    with millhead.Loader(
        str(tmp_path / "other.npy") if change == "data" else paths,
        shuffle="torch" if change == "order" else True,
        seed=1 if change == "seed" else 0,
    ) as loader:
        names = {
            "data": "fingerprint",
            "kind": "state of millhead.Loader",
            "order": "shuffle is True, this loader's is 'torch'",
        }
        name = names.get(change, change)
        with pytest.raises(ValueError, match=name):
            loader.load_state_dict({} if change == "kind" else state)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("mode", ["pad", "drop_last", "uneven"])
def test_ranks_share_the_samples(paths: list[str], world: int, mode: str) -> None:
    options: dict[str, Any] = {} if mode == "pad" else {mode: True}
    seen: list[list[int]] = []
    for rank in range(world):
        with millhead.Loader(
            paths, 7, fields=["x", "_index"], shuffle=True, rank=rank, world=world, **options
        ) as loader:
            assert (loader.rank, loader.world) == (rank, world)
            batches = [batch["_index"].tolist() for batch in loader]
            assert len(batches) == len(loader)
            seen.append([number for batch in batches for number in batch])
    together = [number for rank in seen for number in rank]
    if mode == "uneven":
        assert sorted(together) == list(range(COUNT))
    elif mode == "pad":
        assert {len(rank) for rank in seen} == {-(-COUNT // world)}
        assert set(together) == set(range(COUNT))
    else:
        assert len(together) == len(set(together)) == COUNT // (7 * world) * 7 * world


def test_the_launcher_says_which_rank_this_is(
    paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with millhead.Loader(paths) as loader:
        assert (loader.rank, loader.world) == (2, 4)
        assert loader.stats()["world"] == 4
    monkeypatch.delenv("RANK")
    with pytest.raises(ValueError, match="world and rank are unknown"):
        millhead.Loader(paths)


def test_each_iter_is_the_next_epoch_and_ends_the_one_before(paths: list[str]) -> None:
    options: dict[str, Any] = {"fields": ["x", "_index"], "shuffle": True}
    orders = []
    for epoch in range(4):
        with millhead.Loader(paths, 9, epoch=epoch, **options) as loader:
            orders.append(order_of(loader))
    with millhead.Loader(paths, 9, **options) as loader:
        assert order_of(loader) == orders[0]
        abandoned = iter(loader)
        next(abandoned)
        assert loader.state_dict()["epoch"] == 1
        assert order_of(loader) == orders[2]
        with pytest.raises(millhead.Error, match="newer iterator"):
            next(abandoned)
        loader.set_epoch(1)
        assert order_of(loader) == orders[1]
        ended = iter(loader)
        assert len(list(ended)) == 12 and next(ended, None) is None


def test_an_iterator_that_nobody_asks_costs_no_epoch_and_no_position(paths: list[str]) -> None:
    """Some loops make one only to see whether they can."""
    with millhead.Loader(paths, 8, shuffle=True, seed=5) as loader:
        first = [batch["label"].tolist() for batch in loader]
        state = {**loader.state_dict(), "epoch": 0, "position": 24}
        loader.load_state_dict(state)
        iter(loader)
        assert loader.state_dict() == state
        assert [batch["label"].tolist() for batch in loader] == first[3:]
        iter(loader)
        loader.set_epoch(0)
        assert [batch["label"].tolist() for batch in loader] == first
        iterator = iter(loader)
        loader.set_epoch(0)  # of the next one
        assert next(iterator)["label"].tolist() != first[0]
        assert next(iter(loader))["label"].tolist() == first[0]


def test_map_changes_batches_and_an_error_of_it_costs_one(paths: list[str]) -> None:
    def fail_at_the_second(batch: dict[str, Any]) -> Any:
        if 8 in batch["_index"]:
            raise KeyError("mine")
        return batch["_index"].tolist()

    with millhead.Loader(paths, 8, fields=["x", "_index"], map=fail_at_the_second) as loader:
        iterator = iter(loader)
        assert next(iterator) == list(range(8))
        with pytest.raises(KeyError, match="mine"):
            next(iterator)
        assert next(iterator) == list(range(16, 24))
        stats = loader.stats()
    assert stats["stages"]["map"]["count"] == 3


def test_stats_count_and_start_again(paths: list[str]) -> None:
    loader = millhead.Loader(paths, 8, threads=1)
    assert len(list(loader)) == 13
    stats = loader.stats(reset=True)
    assert stats["path"] == "native" and stats["threads"] == 1
    assert (stats["batches"], stats["samples"]) == (13, COUNT)
    assert stats["wait_ms"]["count"] == 13 and stats["setup_ms"] > 0
    assert stats["stages"]["read"]["bytes"] >= COUNT * 28
    assert loader.stats()["batches"] == 0
    next(iter(loader))
    loader.close()
    loader.close()
    assert loader.stats()["batches"] == 1 and len(loader) == 13
    with pytest.raises(millhead.Error, match="closed"):
        iter(loader)


def test_many_threads_share_one_loader(paths: list[str]) -> None:
    with millhead.Loader(paths, 1, fields=["x", "_index"], shuffle=True, threads=2) as loader:
        for _ in range(5):
            iterator = iter(loader)
            seen: list[int] = []

            def consume(batches: Any = iterator, into: list[int] = seen) -> None:
                for batch in batches:
                    into.append(batch["_index"].item())
                    loader.stats()
                    loader.state_dict()

            threads = [threading.Thread(target=consume) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(seen) == list(range(COUNT))


def test_a_loader_may_be_closed_while_others_wait_for_batches(paths: list[str]) -> None:
    loader = millhead.Loader(paths, 1, threads=2)
    ends: list[str] = []

    def consume() -> None:
        try:
            for _ in range(100_000):
                for _ in loader:
                    pass
        except millhead.Error as error:
            ends.append(error.code)

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    loader.close()
    for thread in threads:
        thread.join()
    assert ends == ["closed"] * 3


def test_a_forked_child_gets_a_clear_error_and_can_use_the_data(paths: list[str]) -> None:
    loader = millhead.Loader(paths, 8, fields=["x", "_index"])
    data = millhead.open(paths, output="numpy")
    label = np.load(paths[1])
    assert data[1]["label"] == label[1]
    iterator = iter(loader)
    first = next(iterator)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            next(iterator)
        except millhead.Error as error:
            code = 0 if error.code == "used after a fork" and "millhead.open" in str(error) else 2
        fine = data[2]["label"] == label[2] and first["_index"].tolist() == list(range(8))
        loader.close()
        with millhead.Loader(paths, 8) as own:
            fine = fine and len(list(own)) == 13
        os._exit(code if fine else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert next(iterator)["_index"].tolist() == list(range(8, 16))
    loader.close()


def run(
    program: str, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


_SLOW_READS = """
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
ssize_t preadv64v2(int fd, const struct iovec *v, int n, long at, int flags)
{
    (void)fd, (void)v, (void)n, (void)at, (void)flags;
    errno = EAGAIN;
    return -1;
}
ssize_t pread64(int fd, void *into, size_t size, long at)
{
    if (at > 0) /* not a header */
        usleep(4000000);
    return syscall(SYS_pread64, fd, into, size, at);
}
"""


@pytest.mark.parametrize("waits", [False, True])
def test_ctrl_c_ends_the_loop(paths: list[str], tmp_path: Path, waits: bool) -> None:
    """Also while next() waits for a disk that takes seconds."""
    program = """if True:
        import sys, time, millhead
        loader = millhead.Loader(sys.argv[1], 1, output="numpy", in_flight=1)
        try:
            print("ready", flush=True)
            while True:
                for batch in loader: print(end="", file=sys.stderr)
        except KeyboardInterrupt:
            print(loader.stats()["batches"] > 0, flush=True)
    """
    environment = dict(os.environ)
    if waits:
        (tmp_path / "slow.c").write_text(_SLOW_READS)
        shared = str(tmp_path / "slow.so")
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", shared, str(tmp_path / "slow.c")], check=True
        )
        before = environment.get("LD_PRELOAD", "")
        environment["LD_PRELOAD"] = f"{before}:{shared}" if before else shared
    child = run(program, paths[0], environment=environment)
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    began = time.monotonic()
    assert child.stdout.readline() == f"{not waits}\n"
    assert time.monotonic() - began < 3
    _, err = child.communicate(timeout=60)
    assert child.returncode == 0, err


def test_the_interpreter_ends_with_a_loader_in_use(paths: list[str]) -> None:
    program = """if True:
        import sys, threading, millhead
        loader = millhead.Loader(sys.argv[1:], 1, threads=2, prefetch=8)
        batches = iter(loader)
        batch = next(batches)
        def consume():
            while True:
                for _ in loader: pass
        threading.Thread(target=consume, daemon=True).start()
        print("bye")
    """
    for _ in range(3):
        child = run(program, *paths)
        out, err = child.communicate(timeout=60)
        assert (out, child.returncode) == ("bye\n", 0), err
        assert "Fatal" not in err


def test_numpy_arrays_come_where_torch_cannot_be_imported(paths: list[str]) -> None:
    program = """if True:
        import sys
        sys.modules["torch"] = None
        import millhead
        data, loader = millhead.open(sys.argv[1]), millhead.Loader(sys.argv[1], 8, memory="1MB")
        print(type(data[[1]]["x"]).__name__, type(next(iter(loader))["x"]).__name__)
        try:
            millhead.Loader(sys.argv[1], output="torch")
        except ImportError:
            print("no torch")
    """
    child = run(program, paths[0], environment={**os.environ, "RANK": "1", "WORLD_SIZE": "2"})
    out, err = child.communicate(timeout=60)
    assert out == "ndarray ndarray\nno torch\n", err


def test_what_is_wrong_with_the_data_has_its_exception(paths: list[str], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.npy"):
        millhead.Loader(tmp_path / "missing.npy")
    np.save(tmp_path / "object.npy", np.array([{}, []], object))
    with pytest.raises(millhead.Error, match="objects") as caught:
        millhead.Loader(tmp_path / "object.npy")
    assert caught.value.code == "not supported"
    (tmp_path / "cut.npy").write_bytes(Path(paths[0]).read_bytes()[:300])
    with pytest.raises(millhead.Error, match="cut") as caught:
        millhead.Loader(tmp_path / "cut.npy")
    assert caught.value.code == "corrupt data"
    with pytest.raises(ValueError, match="unknown field 'y'"):
        millhead.Loader(paths, fields=["y"])
    with pytest.raises(MemoryError, match="a batch takes"):
        millhead.Loader(paths, 100, memory="1KB")


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"pipeline": "x"}, ValueError, "data of the format npy takes no pipeline"),
        ({"window": {"x": 4}}, ValueError, "takes no window"),
        ({"window": 4}, TypeError, "window should be a dict"),
        ({"window": {"x": 4.0}}, TypeError, "window should have whole numbers"),
        ({"select": {"x": 4}}, TypeError, "a slice of places or a pair"),
        ({"storage_options": "key"}, TypeError, "storage_options should be a dict"),
        ({"pin_memory": True, "output": "numpy"}, ValueError, "pin_memory=True needs torch"),
        ({"shuffle": "other"}, ValueError, "shuffle should be"),
        ({"output": "cupy"}, ValueError, "'jax' or None"),
        ({"num_workers": 2}, TypeError, "unexpected keyword argument 'num_workers': threads="),
        ({"batchsize": 2}, TypeError, "'batchsize': did you mean 'batch_size'"),
        ({"sideways": 2}, TypeError, "unexpected keyword argument 'sideways'$"),
        ({"fields": "x"}, TypeError, "list of names"),
        ({"batch_size": 0}, ValueError, "batch_size should be from 1"),
        ({"batch_size": 1.5}, TypeError, "batch_size should be a number"),
        ({"prefetch": 0}, ValueError, "prefetch"),
        ({"threads": 5000}, ValueError, "threads"),
        ({"seed": -1}, ValueError, "seed"),
        ({"rank": 3, "world": 3}, ValueError, "rank 3 of 3"),
        ({"drop_last": True, "uneven": True}, ValueError, "exclude each other"),
        ({"memory": "lots"}, ValueError, "memory should be"),
        ({"limit_batches": 0}, ValueError, "limit_batches"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_by_name(
    paths: list[str], options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        millhead.Loader(paths, **options)


def test_the_numbers_of_samples_come_alone_where_nothing_else_is_named(paths: list[str]) -> None:
    batches = list(millhead.Loader(paths, 10, fields=["_index"]))
    assert [list(batch) for batch in batches] == [["_index"]] * len(batches)
    numbers = [int(number) for batch in batches for number in batch["_index"]]
    assert numbers == list(range(len(np.load(paths[0]))))


def test_options_become_the_texts_that_the_command_line_takes() -> None:
    options = DataOptions(
        window={"time": 4, "lat": 64},
        select={"time": slice(0, 100), "lat": ("40", "60"), "lon": slice(3, None)},
        target={"time": 6},
        decode=None,
        storage_options={"key": "a,b%", "anon": True, "token": None},
    )
    assert options.texts() == {
        "window": "time=4,lat=64",
        "select": "time=0:100,lat=40..60,lon=3:",
        "target": "time=6",
        "decode": "none",
        "storage": "key=a%2Cb%25,anon=true",
    }


def test_an_error_says_where_it_was(paths: list[str]) -> None:
    with millhead.Loader("synthetic:count=40,chunk=4,broken=100%", 8) as loader:
        with pytest.raises(millhead.Error) as caught:
            next(iter(loader))
        error: Any = caught.value
        assert (error.code, error.sample, error.unit) == ("corrupt data", 0, 0)
    data = millhead.open(paths[0])
    os.truncate(paths[0], 200)
    with pytest.raises(OSError, match="^sample 7: .*changed") as changed:  # not "[Errno 0] sample"
        data[7]
    error = changed.value
    assert (error.sample, error.source, error.offset) == (7, paths[0], None)
