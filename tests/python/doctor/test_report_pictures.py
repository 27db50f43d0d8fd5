"""``millhead report``: what its pictures and its page show of runs that tell little, or have odd names."""

from __future__ import annotations

import json
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from helpers import chromium, procs

COMMAND = os.path.join(sysconfig.get_path("scripts"), "millhead")
SVG = "{http://www.w3.org/2000/svg}"
HEADER = {"event": "header", "t": 0, "schema": "millhead-events", "version": 1, "unix": 1700000000}
LOADER = {"event": "loader", "t": 1, "loader": 0, "kind": "torch", "workers": 0, "batch_size": 4}
MS = 1_000_000

needs_chromium = pytest.mark.skipif(
    chromium.PROGRAM is None, reason="no chromium here: apt-get install chromium"
)


def _write(directory: Path, lines: list[dict[str, Any]], name: str = "events.jsonl") -> Path:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory


def _run(directory: Path, waits_ms: tuple[int, ...] = (20, 21, 24, 26)) -> Path:
    """A loop without workers: waits that last so long, steps of 10 ms."""
    lines: list[dict[str, Any]] = [{**HEADER}, {**LOADER}]
    at = 2
    for batch, wait in enumerate(waits_ms):
        whose = {"loader": 0, "epoch": 0, "batch": batch}
        nth = {"loader": 0, "epoch": 0, "worker": -1, "nth": batch, "samples": 4}
        lines.append({"event": "fetch", "t": at, "ns": wait * MS, "cpu": 0, "delay": 0, **nth})
        lines.append({"event": "wait", "t": at, "ns": wait * MS, "samples": 4, **whose})
        at += wait * MS
        lines.append({"event": "step", "t": at, "ns": 10 * MS, **whose})
        at += 10 * MS
    return _write(directory, [*lines, {"event": "end", "t": at, "ns": at}])


def _steps(directory: Path) -> Path:
    """What four ranks' step timers tell: phases, and nothing of how batches are made."""
    for rank in range(4):
        lines: list[dict[str, Any]] = [{**HEADER, "rank": rank, "world": 4, "host": "one"}]
        for step in range(30):
            at, data = step * 50 * MS, (25 if rank == 2 else 1) * MS
            rest = 49 * MS - data
            lines += [
                {"event": "phase", "t": at, "ns": data, "name": "data", "step": step},
                {"event": "phase", "t": at + data, "ns": rest, "name": "backward", "step": step},
            ]
        _write(directory, lines, "events.jsonl" if not rank else f"events.rank{rank}.jsonl")
    return directory


def _epochs(directory: Path, count: int) -> Path:
    """So many epochs of three batches."""
    lines: list[dict[str, Any]] = [{**HEADER}, {**LOADER}]
    for batch in range(3 * count):
        at, whose = batch * 20 * MS + 2, {"loader": 0, "epoch": batch // 3, "batch": batch % 3}
        lines.append({"event": "wait", "t": at, "ns": 10 * MS, "samples": 4, **whose})
        lines.append({"event": "step", "t": at + 10 * MS, "ns": 10 * MS, **whose})
    end = 60 * count * MS + 2
    return _write(directory, [*lines, {"event": "end", "t": end, "ns": end}])


def _report(*arguments: object) -> dict[str, Any]:
    done = procs.run([COMMAND, "report", *map(str, arguments), "--json"], seconds=60)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _texts(picture: Path) -> list[tuple[str, dict[str, str]]]:
    """Every text of a picture with its attributes; marks of direction left out."""
    root = ElementTree.parse(picture).getroot()
    return [
        ("".join(one.itertext()).strip("\u2068\u2069"), dict(one.attrib))
        for one in root.iter(f"{SVG}text")
    ]


def test_the_legend_and_rows_are_of_what_is_there(tmp_path: Path) -> None:
    _report(_run(tmp_path / "run"), "--svg", tmp_path / "loop")
    loop = {text for text, _ in _texts(tmp_path / "loop" / "timeline.svg")}
    assert {"get samples", "train", "wait", "loop"} <= loop
    assert not {"transfer", "collate", "set-up"} & loop
    _report(_steps(tmp_path / "steps"), "--svg", tmp_path / "ranks")
    ranks = {text for text, _ in _texts(tmp_path / "ranks" / "timeline.svg")}
    assert {"train", "wait"} <= ranks
    assert not {"get samples", "loop", "set-up"} & ranks


def test_what_is_rare_does_not_colour_what_it_lies_on(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [{**HEADER}, {**LOADER, "workers": 1, "prefetch": 2}]
    for batch in range(4000):  # more than are drawn one by one
        at, nth = 2 + batch * 2 * MS, {"loader": 0, "epoch": 0, "worker": 0, "nth": batch}
        loop = {"loader": 0, "epoch": 0, "batch": batch}
        lines += [
            {"event": "fetch", "t": at, "ns": MS, "cpu": 0, "delay": 0, "samples": 4, **nth},
            {"event": "collate", "t": at + MS, "ns": MS // 50, "cpu": 0, **nth},
            {"event": "wait", "t": at, "ns": MS + MS // 50, "samples": 4, **nth, **loop},
            {"event": "step", "t": at + MS + MS // 50, "ns": MS // 2, **loop},
        ]
    run = _write(tmp_path / "run", [*lines, {"event": "end", "t": 8000 * MS, "ns": 8000 * MS}])
    _report(run, "--svg", tmp_path / "pictures")
    rows = ElementTree.parse(tmp_path / "pictures" / "timeline.svg").getroot().iter(f"{SVG}rect")
    collates = [one for one in rows if one.get("fill") == "#e5a000"][1:]  # but for the legend
    assert collates and max(float(one.get("fill-opacity", "1")) for one in collates) <= 0.05


def test_no_label_of_a_wait_is_crossed_by_another_mark(tmp_path: Path) -> None:
    _report(_run(tmp_path / "run"), "--svg", tmp_path)
    labels = {text.split()[0]: how for text, how in _texts(tmp_path / "waits.svg")}
    # the median is near the longest: its label would reach over that mark
    assert labels["p50"]["text-anchor"] == "end"
    assert labels["max"]["text-anchor"] == "start"


def test_a_long_name_leaves_room_for_what_is_said_of_it(tmp_path: Path) -> None:
    name = 40 * "name"
    _report(_run(tmp_path / name), "--svg", tmp_path / "pictures")
    title = _texts(tmp_path / "pictures" / "timeline.svg")[0][0]
    assert len(title) < 120 and "…" in title and "device idle" in title


def test_runs_whose_names_are_alike_as_files_keep_their_pictures(tmp_path: Path) -> None:
    names = ("日本", "中国", "a b", "a-b", "-a-b", "a-b-4", ".b")
    runs = [_run(tmp_path / name) for name in names]
    told = _report(*runs, "--svg", tmp_path / "pictures")
    files = {Path(path).name for path in told["pictures"]}
    assert len(files) == len(told["pictures"]) == 3 * len(runs) + 1
    assert {"run-waits.svg", "run-2-waits.svg", "a-b-waits.svg", "b-waits.svg"} <= files
    assert not [name for name in files if name.startswith(("-", "."))]


def test_what_was_not_measured_is_no_zero(tmp_path: Path) -> None:
    runs = (_run(tmp_path / "run"), _steps(tmp_path / "steps"))
    _report(*runs, "--svg", tmp_path / "pictures", "-o", tmp_path / "both.html")
    told = [text for text, _ in _texts(tmp_path / "pictures" / "compared.svg")]
    assert told[-2:] == ["steps", "not known"]


@pytest.mark.parametrize(
    ("epochs", "said"),
    [
        ((2, 3), "epochs"),
        ((1, 1), "tenths of the run"),
        ((1, 3), "epochs, or tenths of a run with one"),
    ],
)
def test_error_bars_are_of_what_is_said(tmp_path: Path, epochs: tuple[int, int], said: str) -> None:
    runs = [_epochs(tmp_path / f"run-{at}", count) for at, count in enumerate(epochs)]
    page = tmp_path / "both.html"
    _report(*runs, "-o", page)
    assert f'"error_bars": "{said}"' in page.read_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[chromium.Browser]:
    with chromium.browser() as one:
        yield one


@needs_chromium
def test_a_page_of_steps_has_no_empty_rows(browser: chromium.Browser, tmp_path: Path) -> None:
    page = tmp_path / "steps.html"
    _report(_run(tmp_path / "run"), _steps(tmp_path / "steps"), "-o", page)
    browser.look(1400, 900)
    browser.open(page.as_uri())
    bars = "document.querySelector('svg[aria-label=\"Configurations compared\"]').textContent"
    assert browser.evaluate(bars).endswith("not known")
    browser.evaluate(
        "(() => { const s = document.querySelector('#picker select'); s.value = 1;"
        " s.dispatchEvent(new Event('change')); })()"
    )
    rows = browser.evaluate(
        "[...document.querySelectorAll('[data-row]')].map((n) => n.dataset.row)"
    )
    assert rows == ["train", "wait"]
    slow = browser.evaluate("document.querySelector('tr.strong td').textContent")
    assert slow.startswith("2 ")
    assert browser.complaints() == []


@needs_chromium
def test_long_names_fit_a_phone(browser: chromium.Browser, tmp_path: Path) -> None:
    page = tmp_path / "names.html"
    runs = [_run(tmp_path / name) for name in (50 * "long", 30 * "🚀", 12 * "שלום ")]
    _report(*runs, "-o", page)
    browser.look(400, 800)
    browser.open(page.as_uri())
    assert browser.evaluate("document.documentElement.scrollWidth") <= 400
    bars = "document.querySelector('svg[aria-label=\"Configurations compared\"]').textContent"
    assert "\ufffd" not in browser.evaluate(bars)
    assert "🚀…" in browser.evaluate(bars)  # no half of a pair


@needs_chromium
def test_labels_of_waits_stand_apart(browser: chromium.Browser, tmp_path: Path) -> None:
    page = tmp_path / "near.html"
    _report(_run(tmp_path / "run"), "-o", page)
    browser.look(1400, 900)
    browser.open(page.as_uri())
    crossed = """(() => {
        const svg = document.querySelector('svg[aria-label^="Histogram"]');
        const boxes = [...svg.querySelectorAll("text")].map((t) => t.getBBox());
        const lines = [...svg.querySelectorAll(".mark")].map((l) => l.getBBox());
        const over = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
        const texts = boxes.flatMap((a, at) => boxes.slice(at + 1).filter((b) => over(a, b)));
        const marks = boxes.flatMap((a) => lines.filter((l) => l.x > a.x && l.x < a.x + a.width && l.y < a.y + a.height));
        return [texts.length, marks.length];
    })()"""
    assert browser.evaluate(crossed) == [0, 0]
