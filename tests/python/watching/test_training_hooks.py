"""What hooks in torch take for training, and what for the loop's own work."""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millhead
import torch
import torch.utils.data


def _rows(count: int) -> torch.utils.data.DataLoader[torch.Tensor]:
    """Batches of four rows of four numbers."""
    rows: Any = torch.rand(count, 4)  # what can be indexed is a dataset
    return torch.utils.data.DataLoader(rows, batch_size=4)


def _all_events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_bytes().split(b"\n")[:-1]]


def _steps(run: Path) -> list[dict[str, Any]]:
    return [event for event in _all_events(run) if event["event"] == "step"]


def _compute(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Computes(torch.nn.Module):
    """A module whose forward computes for `seconds`."""

    def __init__(self, seconds: float, parameters: bool = True) -> None:
        super().__init__()
        self.seconds = seconds
        self.layer = torch.nn.Linear(4, 4) if parameters else torch.nn.Identity()

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        _compute(self.seconds)
        return self.layer(batch)


def test_waiting_for_the_device_is_training(tmp_path: Path) -> None:
    """On a device forward, backward and the update are launches, and ``.item()`` sleeps."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = _rows(32)
    for batch in (watched := millhead.watch(loader, run=tmp_path, hooks=True)):
        model(batch).sum().backward()
        optimizer.step()
        time.sleep(0.03)  # .item()
        _compute(0.01)
    watched.close()
    steps = _steps(tmp_path)
    assert len(steps) == 8
    for step in steps:
        assert 30e6 <= step["train"] <= step["ns"] - 10e6


def _steps_of(loop: Callable[[torch.Tensor], object], path: Path) -> list[dict[str, Any]]:
    """The steps of a loop of eight batches, seen by hooks."""
    loader = _rows(32)
    for batch in (watched := millhead.watch(loader, run=path, hooks=True)):
        loop(batch)
    watched.close()
    steps = _steps(path)
    assert len(steps) == 8
    return steps


def _usual_own(steps: list[dict[str, Any]]) -> float:
    """The loop's own work in a step: single ones are longer, the first above all."""
    return statistics.median(step["own"] for step in steps)


def test_a_forward_without_gradients_is_over_when_it_returns(tmp_path: Path) -> None:
    model = Computes(0.01)

    def evaluate(batch: torch.Tensor) -> None:
        with torch.no_grad():
            model(batch)
            _compute(0.02)  # a metric
            model(batch)
        time.sleep(0.01)

    steps = _steps_of(evaluate, tmp_path)
    for step in steps:
        assert 30e6 <= step["train"] <= step["ns"] - 20e6
        assert 20e6 <= step["own"]
    assert _usual_own(steps) < 30e6
    assert not model._forward_hooks


def test_a_forward_that_takes_no_hook_trains_to_the_end_of_the_step(tmp_path: Path) -> None:
    model = torch.jit.script(torch.nn.Linear(4, 1))  # type: ignore[no-untyped-call]

    def evaluate(batch: torch.Tensor) -> None:
        with torch.inference_mode():
            model(batch)
        _compute(0.01)

    for step in _steps_of(evaluate, tmp_path):
        assert step["train"] >= 10e6


def test_a_step_that_only_adds_to_the_gradients_trains_to_its_end(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    count = itertools.count(1)

    def accumulate(batch: torch.Tensor) -> None:
        model(batch).sum().backward()
        _compute(0.01)  # the backward
        if next(count) % 4 == 0:
            optimizer.step()

    steps = _steps_of(accumulate, tmp_path)
    assert all(10e6 <= step["train"] for step in steps)
    assert _usual_own(steps) < 10e6


def test_a_transform_in_the_loop_is_no_training(tmp_path: Path) -> None:
    model, transform = torch.nn.Linear(4, 1), Computes(0.01, parameters=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(batch: torch.Tensor) -> None:
        model(transform(batch)).sum().backward()
        optimizer.step()

    for step in _steps_of(train, tmp_path):
        assert step["own"] >= 10e6


def test_where_the_loop_sleeps_is_no_work_of_its_own(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def item() -> None:
        time.sleep(0.08)

    def train(batch: torch.Tensor) -> None:
        model(batch).sum().backward()
        optimizer.step()
        item()
        _compute(0.04)

    _steps_of(train, tmp_path)
    hot = [event for event in _all_events(tmp_path) if event["event"] == "hot"]
    loop = [event["name"] for event in hot if event["stage"] == "loop"]
    trains = [event["name"] for event in hot if event["stage"] == "train"]
    assert any("_compute" in name for name in loop)
    assert not any("item" in name for name in loop)
    assert any("item" in name for name in trains)


def test_what_the_loop_says_goes_before_the_hooks(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = _rows(16)
    for batch in (watched := millhead.watch(loader, run=tmp_path, hooks=True)):
        with watched.training():
            model(batch).sum().backward()
            optimizer.step()
        time.sleep(0.02)  # a request
    watched.close()
    assert all(step["train"] <= step["ns"] - 20e6 for step in _steps(tmp_path))


def test_training_is_told_or_seen(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = _rows(8)
    for batch in (told := millhead.watch(loader, run=tmp_path / "told")):
        with told.training():
            time.sleep(0.005)
        time.sleep(0.01)
    told.close()
    for batch in (seen := millhead.watch(loader, run=tmp_path / "seen", hooks=True)):
        _compute(0.01)  # the loop's own work
        loss = model(batch).sum()
        loss.backward()
        time.sleep(0.005)
        optimizer.step()
        _compute(0.01)
    seen.close()
    for run in ("told", "seen"):
        steps = _steps(tmp_path / run)
        assert len(steps) == 2
        for step in steps:
            assert 5e6 <= step["train"] <= step["ns"] - 10e6, run
    assert not torch.nn.modules.module._global_forward_pre_hooks
