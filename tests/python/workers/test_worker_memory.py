"""``worker_memory``: a worker that grows is replaced, and the batches stay what they were."""

from __future__ import annotations

import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import millhead
import millhead.torch.workers.replacement as replacing
import pytest
import torch
from helpers.accelerator import needs_no_accelerator
from helpers.compare import describe, seed_everything
from helpers.memory_cases import (
    Balloon,
    Dying,
    Garbage,
    Growing,
    HookedStream,
    Opened,
    OwnCount,
    Quitting,
    Stream,
    TwoBalloons,
)
from millhead._arguments import parse_worker_memory
from millhead.torch import DataLoader
from millhead.torch.start.template import Template
from millhead.torch.workers.memory_limit import read_note, wipe_note, write_note

Torchs = torch.utils.data.DataLoader
LIMIT = "100MB"
STARTS = ["fork", "spawn", "forkserver"]


def _epoch(loader: Any, pids: set[int] | None = None) -> list[Any]:
    """An epoch's batches, and on the way the workers' processes."""
    batches = []
    iterator = iter(loader)
    for batch in iterator:
        batches.append(describe(batch))
        if pids is not None:
            pids.update(worker.pid for worker in iterator._workers)
    return batches


def _both(dataset: Any, **arguments: Any) -> tuple[DataLoader[Any], list[Any], set[int], list[Any]]:
    """A loader with a limit, its batches, its workers' processes and torch's batches."""
    given = {"batch_size": 4, "num_workers": 2, **arguments}
    ours = {name: given.pop(name) for name in ("worker_memory", "dispatch") if name in given}
    pids: set[int] = set()
    seed_everything(3)
    loader = DataLoader(dataset, **{"worker_memory": LIMIT, **ours}, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", millhead.Advice)
        batches = _epoch(loader, pids)
    seed_everything(3)
    return loader, batches, pids, _epoch(Torchs(dataset, **given))


# --- the argument ---


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (None, None),
        (0, None),
        (0.0, None),
        ("auto", "auto"),
        (" Auto ", "auto"),
        (0.25, 0.25),
        (1.0, 1.0),
        ("4GB", 4 * 10**9),
        ("1.5 GiB", 3 * 2**29),
        (10**9, 10**9),
    ],
)
def test_a_limit_is_read(given: Any, read: Any) -> None:
    assert parse_worker_memory(given) == read
    assert DataLoader([1], worker_memory=given).worker_memory == given


@pytest.mark.parametrize("given", [-1, 1.5, -0.1, float("nan"), "4 QB", "", "0.5", "much", 2**63])
def test_no_limit_at_all_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="worker_memory should be"):
        DataLoader([1], worker_memory=given)


@pytest.mark.parametrize("given", [True, False, [], object(), b"4GB"])
def test_what_is_no_amount_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="worker_memory should be"):
        DataLoader([1], worker_memory=given)


def test_a_share_is_of_all_workers_of_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing._core, "memory", lambda: (64 * 10**9, 10**9))
    assert replacing.limit_of("auto", 8) == 8 * 10**9
    assert replacing.limit_of(0.25, 8) == 16 * 10**9
    assert replacing.limit_of("2GB", 8) == 2 * 10**9
    assert replacing.limit_of(0, 8) is None
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert replacing.limit_of("auto", 8) == 2 * 10**9


def test_without_a_limit_nothing_is_watched() -> None:
    loader = DataLoader(Growing(24), batch_size=4, num_workers=2)
    iterator: Any = iter(loader)
    assert loader.worker_memory is None
    assert iterator._group.replacements is None
    assert len(iterator._group.descriptors(0, 0)) == 6
    assert sum(1 for _ in iterator) == 6
    assert loader.stats()["workers_replaced"] == 0


# --- leaving between batches ---


@pytest.mark.parametrize("start", STARTS)
def test_workers_that_grow_are_replaced_and_the_batches_are_torchs(start: str) -> None:
    loader, batches, pids, torchs = _both(
        Growing(), multiprocessing_context=start, shuffle=True, worker_memory="120MB"
    )
    assert batches == torchs
    replaced = loader.stats()["workers_replaced"]
    assert replaced >= 2
    assert 2 < len(pids) <= 2 + replaced
    assert loader.stats()["start"] == ("fork" if start == "fork" else "template")


def test_workers_that_no_template_serves_are_replaced_too() -> None:
    loader, batches, _, torchs = _both(
        Opened(40, megabytes=12),
        multiprocessing_context="spawn",
        worker_memory="350MB",
        num_workers=1,
    )
    assert batches == torchs
    assert loader.stats()["start"] == "spawn"
    assert loader.stats()["workers_replaced"] >= 1


def test_a_template_that_ends_while_it_starts_a_worker_is_replaced_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask_for, asked = Template._ask_for, []

    def ask(self: Template, plan: Any) -> None:
        asked.append(self)
        if len(asked) == 3:  # after the two workers that began
            raise BrokenPipeError("gone")
        ask_for(self, plan)

    monkeypatch.setattr(Template, "_ask_for", ask)
    loader, batches, _, torchs = _both(
        Growing(), multiprocessing_context="forkserver", worker_memory="120MB"
    )
    assert batches == torchs
    assert loader.stats()["workers_replaced"] >= 2
    assert len(set(asked)) == 2


def test_batches_that_fit_no_slot_are_not_overwritten_by_another_process() -> None:
    loader = _seeded(Growing(text=True), num_workers=2, prefetch_factor=8, worker_memory=LIMIT)
    iterator = iter(loader)
    batches = []
    for _ in range(3):  # workers leave, and others come, with batches that nobody has taken
        batches.append(describe(next(iterator)))
        time.sleep(0.5)
    batches += map(describe, iterator)
    seed_everything(9)
    assert batches == _epoch(Torchs(Growing(text=True), batch_size=4, num_workers=2))
    assert loader.stats()["workers_replaced"] >= 2
    assert loader.stats()["path"] == "general"


def test_slots_are_used_again_after_a_replacement() -> None:
    loader, batches, _, torchs = _both(Growing(120))
    assert batches == torchs
    replaced = loader.stats()["workers_replaced"]
    # At most those that were asked for before the new process knew what batches look like
    assert loader.stats()["paths"]["general"] <= 4 + 2 * replaced


def test_hooks_of_a_map_style_dataset_go_along() -> None:
    loader, batches, _, torchs = _both(OwnCount())
    assert batches == torchs
    assert loader.stats()["workers_replaced"] >= 2


def test_workers_that_persist_are_replaced_in_any_epoch() -> None:
    given: dict[str, Any] = {"batch_size": 4, "num_workers": 2, "persistent_workers": True}
    seed_everything(5)
    loader = DataLoader(Growing(24, megabytes=4), **given, shuffle=True, worker_memory=LIMIT)
    epochs = [_epoch(loader) for _ in range(4)]
    seed_everything(5)
    torchs = Torchs(Growing(24, megabytes=4), **given, shuffle=True)
    assert epochs == [_epoch(torchs) for _ in range(4)]
    assert loader.stats()["workers_replaced"] >= 2


def test_batches_in_any_order_are_all_there() -> None:
    loader = _seeded(Growing(), num_workers=2, in_order=False, worker_memory=LIMIT)
    assert sorted(number for batch in loader for number in batch[0].tolist()) == list(range(60))
    assert loader.stats()["workers_replaced"] >= 2


@needs_no_accelerator
@pytest.mark.usefixtures("accelerator")
def test_batches_are_pinned_whichever_process_made_them() -> None:
    loader, batches, _, torchs = _both(Growing(), pin_memory=True)
    assert batches == torchs
    assert loader.stats()["workers_replaced"] >= 2


@pytest.mark.parametrize("text", [False, True])
def test_workers_that_share_batches_are_replaced_between_runs(text: bool) -> None:
    expected = list(map(describe, _seeded(Growing(text=text), dispatch="sample")))
    loader = _seeded(
        Growing(text=text), dispatch="sample", num_workers=2, worker_memory=LIMIT, shuffle=False
    )
    assert _epoch(loader) == expected
    assert loader.stats()["workers_replaced"] >= 2


def _seeded(dataset: Any, **arguments: Any) -> DataLoader[Any]:
    seed_everything(9)
    return DataLoader(dataset, batch_size=4, **arguments)


def test_garbage_is_collected_before_a_worker_gives_up() -> None:
    loader, batches, pids, torchs = _both(Garbage(megabytes=10), worker_memory="200MB")
    assert batches == torchs
    assert loader.stats()["workers_replaced"] == 0
    assert len(pids) == 2


def test_what_the_trainer_holds_is_not_a_workers_own() -> None:
    dataset = Growing(12, megabytes=1)
    dataset.kept = [torch.ones(400 * 2**20, dtype=torch.uint8)]
    loader, batches, _, torchs = _both(dataset)
    assert batches == torchs
    assert loader.stats()["workers_replaced"] == 0


def test_a_resumed_run_goes_on_after_a_replacement() -> None:
    given: dict[str, Any] = {"num_workers": 2, "snapshot_rng": True, "worker_memory": LIMIT}
    whole = _epoch(_seeded(Growing(megabytes=15), **given))
    loader = _seeded(Growing(megabytes=15), **given)
    iterator = iter(loader)
    for _ in range(9):
        next(iterator)
    state = loader.state_dict()
    assert loader.stats()["workers_replaced"] >= 1
    del iterator
    resumed = DataLoader(Growing(megabytes=15), batch_size=4, **given)
    resumed.load_state_dict(state)
    assert _epoch(resumed) == whole[9:]
    assert resumed.stats()["workers_replaced"] >= 1


# --- iterable datasets ---


def test_a_stream_with_hooks_goes_on_in_another_process() -> None:
    loader, batches, _, torchs = _both(HookedStream())
    assert batches == torchs
    assert loader.stats()["workers_replaced"] >= 2


def test_a_stream_with_hooks_begins_its_next_epoch_at_its_start() -> None:
    given: dict[str, Any] = {"batch_size": 4, "num_workers": 2, "persistent_workers": True}
    seed_everything(5)
    loader = DataLoader(HookedStream(), **given, worker_memory=LIMIT)
    epochs = [_epoch(loader) for _ in range(3)]
    seed_everything(5)
    torchs = Torchs(HookedStream(), **given)
    assert epochs == [_epoch(torchs) for _ in range(3)]
    assert loader.stats()["workers_replaced"] >= 3


def test_a_stream_without_hooks_stays_and_that_is_said_once() -> None:
    seed_everything(3)
    loader = DataLoader(Stream(), batch_size=4, num_workers=2, worker_memory=LIMIT)
    with pytest.warns(millhead.Advice) as said:
        batches = _epoch(loader)
    seed_everything(3)
    assert batches == _epoch(Torchs(Stream(), batch_size=4, num_workers=2))
    assert loader.stats()["workers_replaced"] == 0
    [line] = [str(warning.message) for warning in said]
    assert "cannot be replaced (an iterable dataset without state_dict()" in line
    assert "worker_memory (100 MB)" in line


# --- ending in the middle of a batch ---


@pytest.mark.parametrize("start", STARTS)
def test_a_batch_that_takes_too_much_is_made_again(start: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"batch_size": 4, "num_workers": 2, "shuffle": True}
    given["multiprocessing_context"] = start
    seed_everything(3)
    loader = DataLoader(Balloon(str(tmp_path), times=1), **given, worker_memory=LIMIT)
    with pytest.warns(millhead.Advice, match="more than 95% of worker_memory") as said:
        batches = _epoch(loader)
    assert len(said) == 1
    assert loader.stats()["workers_replaced"] == 1
    seed_everything(3)
    assert batches == _epoch(Torchs(Balloon("", times=0), **given))


def test_a_batch_that_takes_too_much_twice_ends_the_run(tmp_path: Path) -> None:
    loader = DataLoader(
        Balloon(str(tmp_path), times=2), batch_size=4, num_workers=2, worker_memory=LIMIT
    )
    iterator = iter(loader)
    with (
        pytest.warns(millhead.Advice, match="took its place"),
        pytest.raises(RuntimeError) as raised,
    ):
        list(iterator)
    text = str(raised.value)
    assert text.startswith("DataLoader worker 1 was ended twice over the same batch, with ")
    assert "worker_memory is 100 MB" in text
    assert "sample index 21 (number 1 of its batch)" in text
    assert text.endswith("raise worker_memory, use a smaller batch, or look at this sample")
    with pytest.raises(RuntimeError, match="ended twice"):
        next(iterator)
    assert len(os.listdir(tmp_path)) == 2


def test_a_process_that_takes_long_to_end_hides_no_other_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = DataLoader(
        TwoBalloons(str(tmp_path)), batch_size=4, num_workers=2, worker_memory=LIMIT
    )
    iterator: Any = iter(loader)
    slow, quick = iterator._workers
    is_over = replacing.Replacements._is_over
    while not (slow.ended() and quick.ended()):
        time.sleep(0.02)

    def later(self: Any, worker: Any) -> bool:
        return is_over(self, worker) and (worker is not slow or iterator._workers[1] is not quick)

    monkeypatch.setattr(replacing.Replacements, "_is_over", later)
    with pytest.warns(millhead.Advice, match="took its place"):
        batches = list(iterator)
    assert torch.cat(batches).tolist() == list(range(24))
    assert loader.stats()["workers_replaced"] == 2


def test_batches_too_short_to_note_how_they_begin_are_made_again_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millhead.torch.workers.memory_limit._BESIDES_S", -1e9)
    loader = DataLoader(
        Balloon(str(tmp_path), times=1), batch_size=4, num_workers=2, worker_memory=LIMIT
    )
    with pytest.warns(millhead.Advice, match="took its place"):
        batches = list(loader)
    assert [number for batch in batches for number in batch[0].tolist()] == list(range(60))
    drawn = [value for batch in batches for value in batch[1].tolist()]
    assert len(set(drawn)) == len(drawn)  # nothing is drawn twice


# --- what stays as it was, and what goes wrong ---


@pytest.mark.parametrize("dispatch", ["batch", "sample"])
def test_another_death_of_a_worker_is_reported_as_ever(dispatch: str) -> None:
    loader = DataLoader(
        Dying(megabytes=0), batch_size=4, num_workers=2, worker_memory=LIMIT, dispatch=dispatch
    )
    with pytest.raises(RuntimeError, match=r"exited unexpectedly: killed by SIGKILL.*index 9 "):
        list(loader)
    assert loader.stats()["workers_replaced"] == 0


def test_a_worker_that_quits_in_a_batch_is_not_looked_at_while_it_ends() -> None:
    loader = DataLoader(Quitting(), batch_size=4, num_workers=2, worker_memory="200MB")
    with pytest.raises(RuntimeError, match=r"exited unexpectedly: exited with status 3 "):
        list(loader)
    assert loader.stats()["workers_replaced"] == 0


def test_a_worker_that_begins_with_too_much_stays_and_that_is_said() -> None:
    with pytest.warns(millhead.Advice, match="it needs that before it has fetched anything"):
        batches = list(DataLoader(Growing(12), batch_size=4, num_workers=1, worker_memory=1000))
    assert len(batches) == 3


def test_leaving_the_loop_while_another_process_starts_leaves_nothing() -> None:
    loader = DataLoader(Growing(), batch_size=4, num_workers=2, worker_memory=LIMIT)
    iterator: Any = iter(loader)
    while not loader.stats()["workers_replaced"]:
        next(iterator)
    del iterator  # conftest looks for processes and descriptors


@pytest.mark.parametrize("error", [KeyboardInterrupt, BlockingIOError])
def test_a_replacement_that_cannot_be_started_ends_the_run(
    error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise error("no more processes")

    monkeypatch.setattr(replacing, "start_successor", fail)
    iterator = iter(DataLoader(Growing(), batch_size=4, num_workers=2, worker_memory=LIMIT))
    with pytest.raises(KeyboardInterrupt if error is KeyboardInterrupt else RuntimeError):
        list(iterator)
    with pytest.raises(RuntimeError, match=r"could not be replaced \(.*\): raise worker_memory"):
        next(iterator)


def test_the_line_of_an_epoch_counts_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MILLHEAD_VERBOSE", "1")
    loader, _, _, _ = _both(Growing())
    replaced = loader.stats()["workers_replaced"]
    assert f"; {replaced} workers replaced" in capsys.readouterr().err


@pytest.mark.parametrize("dispatch", ["batch", "sample"])
def test_a_watched_worker_goes_on_counting_in_another_process(
    dispatch: str, tmp_path: Path
) -> None:
    loader = DataLoader(
        Growing(),
        batch_size=4,
        num_workers=2,
        worker_memory=LIMIT,
        persistent_workers=True,
        dispatch=dispatch,
    )
    watched = millhead.watch(loader, run=tmp_path)
    for _ in range(2):
        assert len(list(watched)) == 15
    assert loader.stats()["workers_replaced"] >= 2
    del watched, loader
    events = [json.loads(line) for file in tmp_path.rglob("*.jsonl") for line in file.open()]
    fetches = [event for event in events if event["event"] == "fetch"]
    places = [(event["epoch"], event["worker"], event["nth"]) for event in fetches]
    assert len({event["pid"] for event in fetches}) > 2
    assert len(set(places)) == len(places)
    if dispatch == "batch":
        whole = {(epoch, nth % 2, nth // 2) for epoch in range(2) for nth in range(15)}
        assert set(places) == whole


def test_notes_are_read_as_they_were_written() -> None:
    file = os.memfd_create("note")
    try:
        assert read_note(file) is None
        for note in ({"a": 1}, "x" * 10**6, (1, 2)):
            write_note(file, note)
            assert read_note(file) == note
        wipe_note(file)
        assert read_note(file) is None
    finally:
        os.close(file)
