"""Folders and manifests of pictures: Pillow's pixels in one stream, whatever threads, memory and ranks."""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest
import torch
from helpers.command import COMMAND
from PIL import Image

TESTS = Path(__file__).parents[2]
sys.path.insert(0, str(TESTS))
import reference_files

CROP = "image: decode | random_resized_crop 32 | flip"
CROPS = "image,mask: random_crop 24 | flip"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Indexes of a test go to a place of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def picture(path: Path, seed: int, size: tuple[int, int] | None = None, mode: str = "RGB") -> Path:
    """Blurred noise: of a size drawn from the seed."""
    draw = np.random.default_rng(seed)
    width, height = size or draw.integers(40, 120, 2).tolist()
    small = draw.integers(0, 256, (height // 6 + 2, width // 6 + 2, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
    image.convert(mode).save(path, quality=93)
    return path


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """37 pictures of three classes, one of which has folders of its own."""
    names = ["cat/{}.jpg", "dog/{}.png", "dog/puppies/{}.jpeg", "dog-like/{}.JPG"]
    for number in range(37):
        picture(tmp_path / "train" / names[number % 4].format(number), number)
    (tmp_path / "train" / "cat" / "notes.txt").write_text("not a picture")
    (tmp_path / "train" / "README").write_text("not a class")
    return tmp_path / "train"


def break_picture(path: Path) -> None:
    """The second half is missing."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *map(str, arguments)], check=False, capture_output=True, text=True, timeout=120
    )


def read(data: Path, *options: object) -> dict[str, Any]:
    """What the command reads, with its hashes."""
    done = run("read", data, "--hash", "--json", *options)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def reference(data: Path, *options: object) -> dict[str, str]:
    """Both hashes, from Pillow and NumPy."""
    done = subprocess.run(
        [sys.executable, TESTS / "reference_stream.py", data, *map(str, options)],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def hashes(found: dict[str, Any]) -> dict[str, str]:
    return {name: found[name] for name in ("stream_xxh3", "samples_xxh3")}


# --- one stream


@pytest.mark.parametrize(
    "pipeline", [None, CROP, "image: decode | resize 40 | center_crop 32 | normalize imagenet f16"]
)
def test_threads_prefetch_and_memory_change_nothing(train: Path, pipeline: str | None) -> None:
    options: list[object] = ["--batch-size", 5, "--shuffle", "--seed", 3]
    if pipeline:
        options += ["--pipeline", pipeline]
    wanted = reference(train, *options)
    for threads in (0, 1, 2, 8):
        for more in (["--prefetch", 1], ["--prefetch", 4], ["--memory", "2MB"]):
            assert hashes(read(train, *options, "--threads", threads, *more)) == wanted


def test_ranks_and_resumed_parts_add_up(train: Path) -> None:
    options: list[object] = ["--shuffle", "--seed", 4, "--pipeline", CROP, "--threads", 2]
    whole = read(train, "--batch-size", 4, *options)["samples_xxh3"]
    for world in (2, 3, 5, 8):
        ranks = [
            read(train, "--batch-size", 3, "--uneven", "--world", world, "--rank", rank, *options)
            for rank in range(world)
        ]
        assert sum(int(found["samples_xxh3"], 16) for found in ranks) % 2**64 == int(whole, 16)
    first = read(train, "--batch-size", 4, "--limit-batches", 3, *options)
    rest = read(train, "--batch-size", 7, "--start", 12, *options)
    parts = [int(found["samples_xxh3"], 16) for found in (first, rest)]
    assert sum(parts) % 2**64 == int(whole, 16)


def test_fields_that_are_named(train: Path) -> None:
    options = ["--batch-size", 4, "--fields", "_index,_key,bytes,label"]
    assert hashes(read(train, *options)) == reference(train, *options)


def test_files_that_are_not_pictures_come_as_bytes(tmp_path: Path) -> None:
    for number in range(9):
        path = tmp_path / "texts" / "ab"[number % 2] / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(number * 100))
    assert hashes(read(tmp_path / "texts", "--batch-size", 4)) == reference(
        tmp_path / "texts", "--batch-size", 4
    )
    flat = millhead.open(tmp_path / "texts" / "a", output="numpy")
    assert list(flat.fields) == ["bytes"] and flat.classes == []
    assert [len(sample["bytes"]) for sample in flat] == [0, 200, 400, 600, 800]


# --- labels and classes


def test_labels_and_classes_are_ImageFolders(train: Path) -> None:
    data = millhead.open(train, ["label", "_key"], output="numpy")
    wanted = reference_files.Folder(str(train), _options())
    assert data.classes == wanted.classes == ["cat", "dog", "dog-like"]
    found = [(bytes(sample["_key"]).decode(), int(sample["label"])) for sample in data]
    assert found == [
        (value["_key"].tobytes().decode(), int(value["label"])) for value in wanted.values
    ]
    assert found[-1][0].startswith("dog-like/")
    with millhead.Loader(train, 4, pipeline=CROP) as loader:
        assert loader.classes == data.classes


def _options() -> Any:
    return argparse.Namespace(pipeline=None, seed=0, epoch=0)


# --- the index


def index_state(data: Path, *options: object) -> tuple[int, str]:
    found = json.loads(run("inspect", data, "--json", *options).stdout)
    return found["samples"], found["index"]["state"]


def make_old(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            os.utime(path, (1e9, 1e9))


def test_a_folder_is_listed_once_and_a_new_file_is_noticed(train: Path, own_cache: Path) -> None:
    make_old(train)
    assert index_state(train) == (37, "written")
    assert index_state(train) == (37, "used")
    assert [path.suffix for path in (own_cache / "millhead").iterdir()] == [".idx"]
    picture(train / "cat" / "new.jpg", 99)
    assert index_state(train) == (38, "written")
    kept = next((own_cache / "millhead").iterdir())
    kept.write_bytes(kept.read_bytes()[:-9] + b"\0" * 9)
    assert index_state(train) == (38, "written")


def test_no_directory_is_listed_after_the_third_open(train: Path, tmp_path: Path) -> None:
    make_old(train)
    for _ in range(3):
        run("inspect", train)
    trace = tmp_path / "trace"
    subprocess.run(
        ["strace", "-f", "-o", trace, "-e", "trace=getdents64", COMMAND, "inspect", train],
        check=True, timeout=60,
    )  # fmt: skip
    assert "getdents64" not in trace.read_text()


def test_a_known_folder_that_becomes_an_array_store_is_opened_as_one(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "notes.txt").write_text("a sample of bytes")
    make_old(folder)
    for _ in range(2):
        assert millhead.open(folder).fields.keys() == {"bytes"}
    np.save(folder / "x.npy", np.zeros((5, 2), np.float32))
    assert len(millhead.open(folder)) == 2, "two files, and one is no array"
    (folder / "notes.txt").unlink()
    assert millhead.open(folder).fields.keys() == {"x"}


def test_a_known_folder_is_opened_by_looking_at_each_directory_once(
    train: Path, tmp_path: Path
) -> None:
    make_old(train)
    for _ in range(3):
        run("inspect", train)
    trace = tmp_path / "trace"
    subprocess.run(["strace", "-f", "-o", trace, COMMAND, "inspect", train], check=True, timeout=60)
    lines = trace.read_text().splitlines()
    began = next(at for at, line in enumerate(lines) if f'openat(AT_FDCWD, "{train}"' in line)
    directories = 5
    assert len(lines) - began <= directories + 20, lines[began:]


def test_an_index_that_was_named_must_be_written(train: Path, tmp_path: Path) -> None:
    assert index_state(train, "--index", tmp_path / "own.idx")[1] == "written"
    assert (tmp_path / "own.idx").is_file()
    refused = run("inspect", train, "--index", tmp_path / "no" / "where.idx")
    assert refused.returncode == 1
    assert "cannot write the index" in refused.stderr and refused.stderr.count("\n") == 1


def test_a_file_that_changed_in_place_is_told_of_and_read_when_opened_again(train: Path) -> None:
    make_old(train)
    read(train, "--batch-size", 4, "--pipeline", CROP)
    path = train / "cat" / "0.jpg"
    os.utime(train / "cat" / "notes.txt")
    path.write_bytes(picture(train.parent / "other.jpg", 1000).read_bytes())
    changed = run("read", train, "--batch-size", 4, "--pipeline", CROP)
    assert changed.returncode == 1 and "cat/0.jpg changed since" in changed.stderr
    options = ["--batch-size", 4, "--pipeline", CROP]
    assert hashes(read(train, *options)) == reference(train, *options)


# --- broken pictures


def test_a_truncated_picture_is_named_and_the_batches_before_it_arrive(train: Path) -> None:
    files = reference_files.Folder(str(train), _options()).files
    break_picture(files[9]["image"])
    done = run("read", train, "--batch-size", 4, "--pipeline", CROP)
    assert done.returncode == 1
    assert f"sample 9: {files[9]['image']}: " in done.stderr and done.stderr.count("\n") == 1
    arrived = []
    with millhead.Loader(train, 4, pipeline=CROP, fields=["image", "_index"]) as loader:
        iterator = iter(loader)
        with pytest.raises(millhead.Error, match="sample 9: "):
            while True:
                arrived += next(iterator)["_index"].tolist()
        arrived += next(iterator)["_index"].tolist()
    assert arrived == [*range(8), *range(12, 16)]


@pytest.mark.parametrize("pipeline", [None, CROP])
def test_a_broken_picture_is_replaced_alike_everywhere(train: Path, pipeline: str | None) -> None:
    break_picture(reference_files.Folder(str(train), _options()).files[9]["image"])
    options: list[object] = ["--batch-size", 4, "--on-error", "replace"]
    if pipeline:
        options += ["--pipeline", pipeline]
    wanted = reference(train, *options)
    for threads in (0, 2):
        found = read(train, *options, "--threads", threads)
        assert hashes(found) == wanted
        assert found["replaced"] == 1
    steps = {read(train, *options, "--world", 4, "--rank", rank)["batches"] for rank in range(4)}
    assert len(steps) == 1


# --- manifests


def write_csv(path: Path, rows: Sequence[str]) -> Path:
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """A picture, its mask, a caption, boxes, a score and a label each."""
    rows = ["path,mask,label,caption,boxes,score"]
    for number in range(17):
        name = picture(tmp_path / "photos" / f"{number}.jpg", number).name
        size = Image.open(tmp_path / "photos" / name).size
        picture(tmp_path / "masks" / f"{number}.png", 1000 + number, size, "L")
        boxes = json.dumps([[n, 2, 3, 4] for n in range(number % 3)])
        caption = f'"picture ""{number}"", seen{" twice" * (number % 4)}"'
        label = ["cat", "dog", "bird"][number % 3]
        score = "" if number == 5 else number / 4
        rows.append(f'photos/{name},masks/{number}.png,{label},{caption},"{boxes}",{score}')
    return write_csv(tmp_path / "train.csv", rows)


MASKED = f"image: decode; mask: decode mask; {CROPS}"


@pytest.mark.parametrize("pipeline", [None, CROP, MASKED])
def test_a_manifests_columns_are_fields(manifest: Path, pipeline: str | None) -> None:
    options: list[object] = ["--batch-size", 4, "--shuffle", "--seed", 2]
    if pipeline:
        options += ["--pipeline", pipeline]
    for threads in (0, 2):
        assert hashes(read(manifest, *options, "--threads", threads)) == reference(
            manifest, *options
        )
    data = millhead.open(manifest, output="numpy", pipeline=pipeline or "")
    assert data.classes == ["bird", "cat", "dog"]
    assert bytes(data[2]["caption"]).decode() == 'picture "2", seen twice twice'
    assert data[2]["boxes"].tolist() == [[0, 2, 3, 4], [1, 2, 3, 4]]
    assert np.isnan(data[5]["score"]) and data[6]["score"] == 1.5


def test_json_lines_say_the_same(manifest: Path) -> None:
    lines = []
    for row in csv.DictReader(manifest.open()):
        value: dict[str, Any] = dict(row)
        value["boxes"] = json.loads(value["boxes"])
        value["score"] = float(value["score"]) if value["score"] else None
        lines.append(json.dumps(value))
    other = manifest.with_suffix(".jsonl")
    other.write_text("\n\n".join(lines))
    options = ["--batch-size", 4, "--pipeline", MASKED]
    assert hashes(read(other, *options)) == hashes(read(manifest, *options))
    assert hashes(read(other, *options)) == reference(other, *options)


def test_image_and_mask_share_their_draws(tmp_path: Path) -> None:
    for number in range(8):
        path = picture(tmp_path / f"{number}.png", number, (90, 70))
        Image.open(path).convert("L").save(tmp_path / f"{number}m.png")
    rows = ["image,mask", *(f"{number}.png,{number}m.png" for number in range(8))]
    manifest = write_csv(tmp_path / "pairs.csv", rows)
    data = millhead.open(manifest, output="numpy", pipeline=MASKED)
    for sample in data:
        grey = np.asarray(Image.fromarray(sample["image"]).convert("L"))
        assert np.array_equal(grey, sample["mask"].reshape(grey.shape))


# --- the user's own Python


class Scale:
    """What a transform of one's own may be."""

    def __call__(self, sample: dict[str, Any]) -> tuple[Any, int]:
        return sample["image"].float() / 255, int(sample["label"])


def test_own_python_on_native_decode_in_workers(train: Path) -> None:
    data = millhead.open(train, pipeline="image: decode | resize 32x32")
    mapped: Any = data.map(Scale())
    with_workers: Any = torch.utils.data.DataLoader(mapped, 8, num_workers=2)
    wanted = [Scale()(data[number]) for number in range(len(data))]
    images, labels = (torch.cat(part) for part in zip(*with_workers, strict=True))
    assert torch.equal(images, torch.stack([image for image, _ in wanted]))
    assert labels.tolist() == [label for _, label in wanted]


# --- bad input: one line that names the place


def _bad_inputs(root: Path) -> dict[str, tuple[list[object], str]]:
    picture(root / "good" / "a" / "1.jpg", 1)
    (root / "empty").mkdir()
    for name, content in {"text": b"not a picture at all", "zero": b""}.items():
        (root / name / "a").mkdir(parents=True)
        (root / name / "a" / "1.jpg").write_bytes(content)
    (root / "gone" / "a").mkdir(parents=True)
    (root / "gone" / "a" / "1.jpg").symlink_to("nowhere")
    picture(root / "small.png", 1, (20, 20))
    picture(root / "large.png", 2, (60, 60))
    tables = {
        "columns.csv": ["name,label", "good/a/1.jpg,1"],
        "missing.csv": ["path,label", "good/a/1.jpg,1", "good/a/2.jpg,1"],
        "mask.csv": ["image,mask", "large.png,small.png"],
        "cells.csv": ["path,label", "good/a/1.jpg,1,2"],
        "quote.csv": ["path,label", '"good/a/1.jpg,1'],
        "none.csv": ["path,label"],
        "kinds.jsonl": ['{"path": "good/a/1.jpg", "n": 1}', '{"path": "b.jpg", "n": "x"}'],
        "cut.jsonl": ['{"path": "good/a/1.jpg"', ""],
    }
    for name, rows in tables.items():
        write_csv(root / name, rows)
    good = root / "good"
    return {
        "an empty folder": ([root / "empty"], "empty holds no files"),
        "no such folder": ([root / "nothing"], "nothing"),
        "not a picture": ([root / "text"], "sample 0: .*text/a/1.jpg: "),
        "a file of 0 bytes": ([root / "zero"], "sample 0: .*zero/a/1.jpg: "),
        "a link to nothing": ([root / "gone"], "sample 0: cannot open .*gone/a/1.jpg"),
        "no column of paths": ([root / "columns.csv"], "columns.csv has no column of paths: it has name, label"),
        "a path that is missing": ([root / "missing.csv"], "sample 1: .*missing.csv line 3: good/a/2.jpg: "),
        "a mask of another size": ([root / "mask.csv", "--pipeline", CROPS], "sample 0: .*mask.csv line 2: small.png: "),
        "a row that is too long": ([root / "cells.csv"], "cells.csv line 2: 3 cells, and the header has 2"),
        "a quote that is open": ([root / "quote.csv"], "quote.csv line 2: a quote that is not closed"),
        "no rows": ([root / "none.csv"], "none.csv has no rows"),
        "two kinds in a column": ([root / "kinds.jsonl"], "kinds.jsonl line 2: 'n' is a text, and a number in line 1"),
        "half an object": ([root / "cut.jsonl"], "cut.jsonl line 1: "),
        "an unknown op": ([good, "--pipeline", "decode | resise 32"], "resise"),
        "a wrong argument": ([good, "--pipeline", "decode | resize big"], "big"),
        "a field that is not there": ([good, "--pipeline", "mask: decode"], "mask"),
        "an unknown profile": ([good, "--profile", "best"], "best"),
        "a field that nobody has": ([good, "--fields", "labels"], "unknown field 'labels'"),
        "two folders": ([good, root / "text"], "a folder cannot be combined"),
    }  # fmt: skip


def test_bad_input_is_one_line_that_names_the_place(tmp_path: Path) -> None:
    for name, (arguments, wanted) in _bad_inputs(tmp_path).items():
        done = run("read", *arguments)
        assert done.returncode in (1, 2), name
        assert done.stderr.count("\n") == 1, (name, done.stderr)
        assert re.search(wanted, done.stderr), (name, done.stderr)


def test_a_file_that_may_not_be_read_is_named() -> None:
    """As another user where the tests are root's, who reads everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        picture(folder / "cat" / "0.jpg", 1).chmod(0)
        done = subprocess.run(
            [COMMAND, "read", folder, "--pipeline", CROP], check=False, capture_output=True,
            text=True, timeout=60, user=65534 if os.geteuid() == 0 else None,
        )  # fmt: skip
        assert done.returncode == 1 and done.stderr.count("\n") == 1
        assert "sample 0: cannot open" in done.stderr and "cat/0.jpg" in done.stderr
