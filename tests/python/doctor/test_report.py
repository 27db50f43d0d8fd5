"""``millhead report``: the page of a real run, parsed, and looked at in a real browser."""

from __future__ import annotations

import html.parser
import json
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import millhead
import pytest
from helpers import chromium, procs
from millhead.data import Dummy
from torch.utils.data import DataLoader

COMMAND = os.path.join(sysconfig.get_path("scripts"), "millhead")
WORKERS = 2
EVIL = "<script>document.title='taken'</script>"
EVIL_VALUE = f"</script>{EVIL}\u2028&amp;" + 300 * "long"

needs_chromium = pytest.mark.skipif(
    chromium.PROGRAM is None, reason="no chromium here: apt-get install chromium"
)


class Scripts(html.parser.HTMLParser):
    """The scripts of a page, and every address it names."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.addresses: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href")]
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append((dict(attributes), ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            attributes, text = self.scripts.pop()
            self.scripts.append((attributes, text + data))


def _parsed(page: str) -> tuple[dict[str, Any], Scripts]:
    """The data of a page, and what else is in it."""
    parser = Scripts()
    parser.feed(page)
    text = next(text for attributes, text in parser.scripts if attributes.get("id") == "data")
    data: dict[str, Any] = json.loads(text)
    return data, parser


def _millhead(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = procs.run([COMMAND, *arguments], seconds=60)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run: two workers, two epochs, samples that are waited for."""
    directory = tmp_path_factory.mktemp("report") / "run"
    dataset = Dummy(length=48, shape=(4,), latency=0.002, tensors=True)
    loader = DataLoader(dataset, batch_size=4, num_workers=WORKERS)
    watched = millhead.watch(loader, run=str(directory))
    for _ in range(2):
        for _ in watched:
            time.sleep(0.001)
    return directory


@pytest.fixture(scope="module")
def doctor(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_millhead("doctor", str(run), "--json").stdout)
    return found


@pytest.fixture(scope="module")
def page(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a copy of the run whose settings hold markup."""
    copy = tmp_path_factory.mktemp("evil") / EVIL.replace("/", "|")
    copy.mkdir()
    (copy / "events.jsonl").write_bytes((run / "events.jsonl").read_bytes())
    record = json.loads((run / "run.json").read_text())
    record["configuration"] = {EVIL: EVIL_VALUE}
    (copy / "run.json").write_text(json.dumps(record))
    path = copy.parent / "report.html"
    _millhead("report", str(copy), "-o", str(path))
    return path


def test_the_numbers_are_the_doctors(run: Path, doctor: dict[str, Any]) -> None:
    data, _ = _parsed(millhead.report.make(run))
    (told,) = data["runs"]
    assert told["diagnosis"] == doctor
    for key in ("mean", "p50", "p99", "max"):
        assert told["waits"][key] == doctor["wait_s"][key]
    assert told["waits"]["count"] == doctor["waits"]
    assert sum(count for _, _, count in told["waits"]["bins"]) == doctor["waits"]


def test_stages_are_sums_of_all_events(run: Path) -> None:
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    data, _ = _parsed(millhead.report.make(run))
    stages = {stage["name"]: stage for stage in data["runs"][0]["stages"]}
    for stage, event in (
        ("fetch", "fetch"),
        ("collate", "collate"),
        ("wait", "wait"),
        ("train", "step"),
    ):
        lengths = sorted(one["ns"] for one in events if one["event"] == event)
        assert stages[stage]["count"] == len(lengths) > 0
        assert stages[stage]["total_s"] == pytest.approx(sum(lengths) / 1e9, rel=1e-12)
        assert stages[stage]["max_s"] == lengths[-1] / 1e9
        assert stages[stage]["p50_s"] == lengths[(len(lengths) + 1) // 2 - 1] / 1e9


def test_the_timeline_holds_every_event_in_its_place(run: Path) -> None:
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    timeline = _parsed(millhead.report.make(run))[0]["runs"][0]["timeline"]
    assert timeline["rows"] == WORKERS
    assert timeline["work_until"] is None and timeline["loop_until"] is None
    first = min(one["t"] for one in events if "ns" in one and one["event"] != "end")
    for worker in range(WORKERS):
        (lane,) = (
            one for one in timeline["lanes"] if one["kind"] == "fetch" and one["worker"] == worker
        )
        numbers = [int(text) for text in lane["spans"].split()]
        begin, drawn = 0, []
        for at in range(0, len(numbers), 3):
            begin += numbers[at]
            drawn.append((begin * timeline["unit_s"], numbers[at + 1] * timeline["unit_s"]))
        wanted = sorted(
            ((one["t"] - first) / 1e9, one["ns"] / 1e9)
            for one in events
            if one["event"] == "fetch" and one["worker"] == worker
        )
        assert len(drawn) == len(wanted) > 0
        for (drawn_begin, drawn_length), (begin_s, length_s) in zip(drawn, wanted, strict=True):
            assert drawn_begin == pytest.approx(begin_s, abs=0.01)
            assert drawn_length == pytest.approx(length_s, abs=2e-7)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with more events than a page holds, and one fetch of 5 s in its middle."""
    directory = tmp_path_factory.mktemp("long") / "run"
    generator = Path(__file__).resolve().parents[3] / "bench/manyevents.py"
    command = [sys.executable, str(generator), str(directory), "--events", "800000"]
    assert procs.run(command, seconds=60).returncode == 0
    return directory


def test_a_long_run_is_drawn_in_part_and_counted_in_full(long_run: Path) -> None:
    page = millhead.report.make(long_run)
    assert len(page) < 20e6
    (told,) = _parsed(page)[0]["runs"]
    timeline = told["timeline"]
    unit, width = timeline["unit_s"], timeline["bin"] * timeline["unit_s"]
    stages = {stage["name"]: stage for stage in told["stages"]}
    fetches = [lane for lane in timeline["lanes"] if lane["kind"] == "fetch"]
    assert timeline["work_until"] is not None
    assert stages["fetch"]["count"] == sum(lane["count"] for lane in fetches) == 200_000
    total = sum(lane["total_s"] for lane in fetches)
    assert stages["fetch"]["total_s"] == pytest.approx(total, rel=1e-9)
    assert stages["fetch"]["max_s"] == 5.0
    counted, covered = 0, 0.0
    for lane in fetches:
        bins = [int(text) for text in lane["bins"].split()]
        counted += sum(bins[3::4])
        covered += sum(bins[1::4]) / 1000 * width
    assert counted == 200_000
    assert covered == pytest.approx(total, rel=0.01)  # in thousandths of a bin
    longest = [[int(text) * unit for text in lane["longest"].split()] for lane in fetches]
    assert max(length for one in longest for length in one[1::3]) == pytest.approx(5.0)


def test_names_with_markup_stay_text_and_nothing_is_asked_for(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    data, parser = _parsed(text)
    assert len(parser.scripts) == 2  # the data and the page's own
    assert parser.addresses == ["data:,", "#verdict"]
    assert text.count("://") == text.count("http://www.w3.org/2000/svg")  # a name, no address
    (told,) = data["runs"]
    assert told["name"] == EVIL.replace("/", "|")
    assert told["parameters"] == {EVIL: EVIL_VALUE}


def test_a_notebook_gets_a_frame_of_its_own(run: Path) -> None:
    shown = millhead.report.show(run, height=321)
    assert shown is not None  # there is no notebook here
    frame = html.parser.HTMLParser()
    found: dict[str, str | None] = {}
    frame.handle_starttag = lambda _, attributes: found.update(attributes)  # type: ignore[method-assign]
    frame.feed(shown._repr_html_())
    assert found["srcdoc"] == shown.text == millhead.report.make(run)
    assert (found["height"], found["sandbox"]) == ("321", "allow-scripts")


def test_a_run_that_is_not_there_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        millhead.report.show(tmp_path / "gone")


def test_a_run_that_cannot_be_read_is_told_in_the_commands_words(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RuntimeError, match=r"^millhead: .*empty.* \(report\): "):
        millhead.report.show(tmp_path / "empty")


# --- in a browser ---


@pytest.fixture(scope="module")
def browser() -> Iterator[chromium.Browser]:
    with chromium.browser() as one:
        yield one


def _drawn(browser: chromium.Browser) -> int:
    """Pixels of the timeline that are not empty."""
    count: int = browser.evaluate(
        "(() => { const c = document.querySelector('canvas');"
        " const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        " let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; })()"
    )
    return count


@needs_chromium
@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_in_a_browser(
    browser: chromium.Browser, page: Path, doctor: dict[str, Any], width: int, dark: bool
) -> None:
    browser.look(width, 900, dark)
    browser.open(page.as_uri())
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]
    assert browser.evaluate("document.querySelectorAll('[data-worker]').length") == WORKERS
    rows = browser.evaluate(
        "[...document.querySelectorAll('[data-row]')].map((n) => n.dataset.row)"
    )
    assert rows == ["set-up", "worker 0", "worker 1", "train", "wait", "epoch"]
    share = browser.evaluate("document.querySelector('[data-share]').dataset.share")
    assert float(share) == doctor["device_wait_share"]
    white = browser.evaluate("document.querySelector('[data-row=train] small').textContent")
    at_starts = f", and {round(100 * doctor['epoch_start_share'])} % of the run at epoch starts"
    assert white == f"idle {100 * doctor['device_wait_share']:.1f} %{at_starts}"
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    # However long a value is, its row is not.
    rows_high = (
        "Math.max(...[...document.querySelectorAll('dl.pairs dd')].map((d) => d.clientHeight))"
    )
    assert browser.evaluate(rows_high) < 200
    assert browser.evaluate("document.documentElement.dataset.theme") == (
        "dark" if dark else "light"
    )
    assert browser.evaluate("document.title") != "taken"
    assert _drawn(browser) > 1000


def _view(browser: chromium.Browser) -> tuple[float, float]:
    view = browser.evaluate(
        "(({from, to}) => [from, to])(document.querySelector('canvas').millhead.view())"
    )
    return view[0], view[1]


@needs_chromium
def test_wheel_drag_and_keys_move_the_timeline(browser: chromium.Browser, page: Path) -> None:
    browser.look(1400, 900)
    browser.open(page.as_uri())
    box = browser.evaluate(
        "(() => { const c = document.querySelector('canvas'); c.scrollIntoView({block: 'center'});"
        " const b = c.getBoundingClientRect(); return [b.left + b.width / 2, b.top + 60]; })()"
    )
    whole = _view(browser)
    at = {"x": box[0], "y": box[1]}
    browser.call("Input.dispatchMouseEvent", type="mouseWheel", deltaX=0, deltaY=-300, **at)
    nearer = _view(browser)
    assert nearer[1] - nearer[0] < (whole[1] - whole[0]) / 2
    assert nearer[0] > whole[0] and nearer[1] < whole[1]
    press = {"button": "left", "clickCount": 1}
    browser.call("Input.dispatchMouseEvent", type="mousePressed", **at, **press)
    moved_to = {"x": box[0] + 100, "y": box[1]}
    browser.call(
        "Input.dispatchMouseEvent", type="mouseMoved", button="left", buttons=1, **moved_to
    )
    browser.call("Input.dispatchMouseEvent", type="mouseReleased", **moved_to, **press)
    dragged = _view(browser)
    assert dragged[0] < nearer[0] and dragged[1] - dragged[0] == pytest.approx(
        nearer[1] - nearer[0]
    )
    browser.evaluate("document.querySelector('canvas').focus()")
    for key, follows in (
        ("ArrowRight", lambda old, new: new[0] > old[0]),
        ("+", lambda old, new: new[1] - new[0] < old[1] - old[0]),
        ("0", lambda old, new: new == whole),
    ):
        before = _view(browser)
        browser.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        browser.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        assert follows(before, _view(browser)), key
    assert browser.complaints() == []


@needs_chromium
def test_one_outlier_is_seen_at_every_zoom(
    browser: chromium.Browser, long_run: Path, tmp_path: Path
) -> None:
    path = tmp_path / "long.html"
    _millhead("report", str(long_run), "-o", str(path))
    browser.look(1400, 900)
    browser.open(path.as_uri())
    assert browser.complaints() == []
    # where it is, from the page's data, and how much the row of its wait differs there from beside
    differs = """(share) => new Promise((done) => {
        const canvas = document.querySelector("canvas"), { show, rows, view } = canvas.millhead;
        const row = rows.find((one) => one.name === "wait"), span = row.lanes[0].longest[0];
        const whole = 210, wide = whole * share, middle = span.begin + span.length / 2;
        show(middle - wide / 2, middle + wide / 2);
        requestAnimationFrame(() => requestAnimationFrame(() => {
            const v = view(), c = canvas.getContext("2d");
            const pixel = (t) => c.getImageData(Math.floor((t - v.from) / (v.to - v.from) * v.width), row.top + row.tall / 2, 1, 1).data;
            const here = pixel(middle), beside = pixel(span.begin + span.length + wide / 4);
            done([span.length, Math.hypot(...[0, 1, 2].map((at) => here[at] - beside[at]))]);
        }));
    })"""
    for share in (1, 0.3, 0.1):
        length, difference = browser.evaluate(f"({differs})({share})")
        assert length == pytest.approx(5.0, abs=0.1)
        assert difference > 60, share


@needs_chromium
def test_the_stage_table_sorts(browser: chromium.Browser, page: Path) -> None:
    browser.open(page.as_uri())
    names = "[...document.querySelectorAll('tbody tr td:first-child')].map((n) => n.textContent)"
    browser.evaluate("document.querySelector('th[data-key=name] button').click()")
    rising = browser.evaluate(names)
    browser.evaluate("document.querySelector('th[data-key=name] button').click()")
    assert browser.evaluate(names) == rising[::-1] != rising
    sort = browser.evaluate("document.querySelector('th[data-key=name]').getAttribute('aria-sort')")
    assert sort == "descending"


@needs_chromium
def test_minutes_have_sixty_seconds(browser: chromium.Browser, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    lines: list[dict[str, Any]] = [
        {"event": "header", "t": 0, "schema": "millhead-events", "version": 1, "unix": 1700000000},
        {"event": "loader", "t": 1, "loader": 0, "kind": "torch", "workers": 0, "batch_size": 1},
    ]
    for batch in range(2):
        at = batch * 89_900_000_000
        whose = {"loader": 0, "epoch": 0, "batch": batch}
        lines += [
            {"event": "wait", "t": at + 2, "ns": 900_000_000, "samples": 1, **whose},
            {"event": "step", "t": at + 900_000_002, "ns": 89_000_000_000 - 2, **whose},
        ]
    lines.append({"event": "end", "t": 179_800_000_000, "ns": 179_800_000_000})
    (run / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = tmp_path / "report.html"
    _millhead("report", str(run), "-o", str(page))
    browser.open(page.as_uri())
    assert "3 min 0 s" in browser.evaluate("document.querySelector('.facts').textContent")


@needs_chromium
def test_several_runs_are_compared_and_chosen_from(
    browser: chromium.Browser, run: Path, page: Path, tmp_path: Path
) -> None:
    both = tmp_path / "both.html"
    _millhead("report", str(run), str(page.parent / EVIL.replace("/", "|")), "-o", str(both))
    browser.open(both.as_uri())
    assert browser.evaluate("document.querySelectorAll('#picker option').length") == 2
    bars = "document.querySelectorAll('svg[aria-label=\"Configurations compared\"] .err').length"
    assert browser.evaluate(bars) == 2  # two epochs each: an error bar each
    browser.evaluate(
        "(() => { const s = document.querySelector('#picker select'); s.value = 1;"
        " s.dispatchEvent(new Event('change')); })()"
    )
    assert EVIL.replace("/", "|") in browser.evaluate(
        "document.querySelector('.eyebrow').textContent"
    )
    assert browser.complaints() == []
    assert browser.requests() == [both.as_uri()]
