"""Where Zarr stores lie: directories, zip archives, references; and stores that are damaged."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest

zarr = pytest.importorskip("zarr")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "helpers"))

import zarr_stores
from millhead._data_options import DataOptions
from millhead.dataset import Dataset

DATA = np.arange(12 * 20, dtype="i4").reshape(12, 20)


def store_of(path: Any, **kind: Any) -> Any:
    """A store with one array of 12 x 20 in chunks of 4 x 5."""
    version = kind.pop("zarr_format", 3)
    names = kind.pop("names", ["y", "x"])
    if version == 3:
        kind["dimension_names"] = names
    root = zarr.create_group(path, zarr_format=version)
    kind = {"chunks": (4, 5), "fill_value": -1} | kind
    array = root.create_array("a", shape=DATA.shape, dtype="i4", **kind)
    if version == 2:
        array.attrs["_ARRAY_DIMENSIONS"] = names
    array[...] = DATA
    return path


def opened(path: Any, fields: list[str] | None = None, **options: Any) -> Dataset:
    options = {"window": {"y": 4, "x": 10}, "decode": None} | options
    return Dataset(str(path), fields, output="numpy", options=DataOptions(**options))


def check(dataset: Dataset) -> None:
    assert len(dataset) == 6
    for number in range(6):
        y, x = divmod(number, 2)
        wanted = DATA[4 * y : 4 * y + 4, 10 * x : 10 * x + 10]
        np.testing.assert_array_equal(dataset[number]["a"], wanted)


# --- stores


@pytest.mark.parametrize("kind", [{}, {"zarr_format": 2}, {"shards": (8, 10)}], ids=str)
def test_zip_archives(tmp_path: Path, kind: dict[str, Any]) -> None:
    path = tmp_path / "a.zarr.zip"
    with zarr.storage.ZipStore(path, mode="w") as store:
        store_of(store, **kind)
    check(opened(path))


def test_a_compressed_zip_archive_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr.zip"
    with zarr.storage.ZipStore(path, mode="w", compression=zipfile.ZIP_DEFLATED) as store:
        store_of(store)
    with pytest.raises(millhead.Error, match=r"a.zarr.zip.*compressed"):
        opened(path)


def references(path: Path, version: int) -> dict[str, Any]:
    """A store as kerchunk would write it: some chunks inside, most in the files."""
    refs: dict[str, Any] = {}
    for file in sorted(path.rglob("*")):
        if not file.is_file():
            continue
        key = file.relative_to(path).as_posix()
        data = file.read_bytes()
        if file.name.startswith("."):
            refs[key] = data.decode()
        elif key.endswith("0.0"):
            refs[key] = "base64:" + base64.b64encode(data).decode()
        elif key.endswith("1"):
            refs[key] = [str(file)]
        else:
            (file.parent / "padded").write_bytes(b"x" * 7)
            padded = file.with_name("p" + file.name)
            padded.write_bytes(b"x" * 7 + data + b"y")
            refs[key] = [f"{{{{u}}}}/{padded.relative_to(path)}", 7, len(data)]
    if version == 0:
        return {
            key: [
                part.replace("{{u}}", str(path)) if isinstance(part, str) else part for part in at
            ]
            if isinstance(at, list)
            else at
            for key, at in refs.items()
        }
    return {"version": 1, "templates": {"u": str(path)}, "refs": refs}


@pytest.mark.parametrize("version", [0, 1])
def test_references(tmp_path: Path, version: int) -> None:
    path = Path(store_of(tmp_path / "a.zarr", zarr_format=2))
    (tmp_path / "refs.json").write_text(json.dumps(references(path, version)))
    check(opened(tmp_path / "refs.json"))


def test_references_without_a_key_give_the_fill_value(tmp_path: Path) -> None:
    path = Path(store_of(tmp_path / "a.zarr", zarr_format=2))
    found = references(path, 1)
    del found["refs"]["a/0.0"]
    (tmp_path / "refs.json").write_text(json.dumps(found))
    assert (opened(tmp_path / "refs.json")[0]["a"][:, :5] == -1).all()


def test_groups_inside_groups_without_consolidated_metadata(tmp_path: Path) -> None:
    root = zarr.create_group(tmp_path / "g.zarr")
    inner = root.create_group("one").create_group("two")
    inner.create_array("v", shape=(4,), chunks=(2,), dtype="f4", dimension_names=["t"])[...] = 3
    dataset = opened(tmp_path / "g.zarr", window={"t": 2})
    assert list(dataset.fields) == ["one/two/v"]
    assert (dataset[1]["one/two/v"] == 3).all()


def test_an_array_alone_is_called_as_its_store(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "temp.zarr", shape=(6,), chunks=(4,), dtype="u2")
    array[...] = np.arange(6)
    dataset = opened(tmp_path / "temp.zarr", window={"dim_0": 3})
    np.testing.assert_array_equal(dataset[1]["temp"], [3, 4, 5])


def test_a_thousand_arrays_open_with_one_read_of_metadata(tmp_path: Path) -> None:
    path = tmp_path / "many.zarr"
    root = zarr.create_group(path)
    root.create_array("v0", shape=(4,), chunks=(2,), dtype="f4", dimension_names=["t"])
    node = json.loads((path / "v0" / "zarr.json").read_text())
    group = json.loads((path / "zarr.json").read_text())
    nodes = {f"v{number}": node for number in range(1000)}
    group["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": nodes}
    (path / "zarr.json").write_text(json.dumps(group))
    code = (
        "import sys; from millhead._data_options import DataOptions\n"
        "from millhead.dataset import Dataset\n"
        "d = Dataset(sys.argv[1], output='numpy', options=DataOptions(window={'t': 2}))\n"
        "assert len(d.fields) == 1000\n"
    )
    done = subprocess.run(
        ["strace", "-f", "-e", "trace=openat,open", sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode == 127:
        pytest.skip("strace is missing")
    assert done.returncode == 0, done.stderr[-2000:]
    opens = [
        line
        for line in done.stderr.splitlines()
        if "many.zarr" in line and "= -1" not in line and "O_DIRECTORY" not in line
    ]
    assert len(opens) == 1, opens


# --- what is missing, and what is damaged


def test_a_missing_chunk_is_the_fill_value(tmp_path: Path) -> None:
    path = Path(store_of(tmp_path / "a.zarr"))
    (path / "a" / "c" / "0" / "0").unlink()
    found = opened(path)[0]["a"]
    assert (found[:, :5] == -1).all()
    np.testing.assert_array_equal(found[:, 5:], DATA[:4, 5:10])


def flip(path: Path, at: int, bit: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= bit
    path.write_bytes(data)


def crc32c() -> list[Any]:
    return [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]


@pytest.mark.parametrize("at", [0, 5, 20, -1])
def test_a_flipped_bit_under_crc32c_is_found_and_named(tmp_path: Path, at: int) -> None:
    path = Path(store_of(tmp_path / "a.zarr", compressors=crc32c()))
    flip(path / "a" / "c" / "1" / "2", at)
    dataset = opened(path)
    with pytest.raises(millhead.Error, match=r"a\.zarr: array 'a', chunk c/1/2: crc32c"):
        dataset[3]
    assert dataset[0]["a"].shape == (4, 10)  # the others are there


# Versions, sizes and the table of blocks. Of the compressed bytes themselves, and of how they were
# shuffled, Blosc keeps no checksum: nobody can tell those.
@pytest.mark.parametrize("at", [0, 4, 8, 12, 16, 20])
def test_a_flipped_bit_in_a_blosc_header_is_found_and_named(tmp_path: Path, at: int) -> None:
    blosc = zarr.codecs.BloscCodec(cname="zstd", typesize=4)
    path = Path(store_of(tmp_path / "a.zarr", compressors=blosc, chunks=(12, 20)))
    flip(path / "a" / "c" / "0" / "0", at, 64)
    with pytest.raises(millhead.Error, match=r"a\.zarr: array 'a', chunk c/0/0: blosc"):
        opened(path)[0]


@pytest.mark.parametrize("kind", [{}, {"compressors": None}, {"zarr_format": 2}], ids=str)
def test_a_chunk_that_is_cut_is_an_error(tmp_path: Path, kind: dict[str, Any]) -> None:
    path = Path(store_of(tmp_path / "a.zarr", **kind))
    chunk = path / "a" / ("0.0" if "zarr_format" in kind else "c/0/0")
    chunk.write_bytes(chunk.read_bytes()[:-3])
    with pytest.raises(millhead.Error, match=r"array 'a', chunk "):
        opened(path)[0]


@pytest.mark.parametrize("location", ["start", "end"])
def test_a_shard_that_is_cut_fails_its_samples_alone(tmp_path: Path, location: str) -> None:
    codec = zarr.codecs.ShardingCodec(
        chunk_shape=(4, 5), codecs=[zarr.codecs.BytesCodec()], index_location=location
    )
    path = Path(store_of(tmp_path / "a.zarr", serializer=codec, compressors=None, chunks=(4, 10)))
    check(opened(path))
    shard = path / "a" / "c" / "0" / "0"
    for left in (shard.stat().st_size - 30, 10, 1):
        shard.write_bytes(shard.read_bytes()[:left])
        dataset = opened(path)
        with pytest.raises(millhead.Error, match=r"array 'a', chunk 0 of shard c/0/0: "):
            dataset[0]
        np.testing.assert_array_equal(dataset[1]["a"], DATA[:4, 10:])


def test_one_chunk_of_a_shard_reads_its_bytes_alone(tmp_path: Path) -> None:
    path = tmp_path / "big.zarr"
    root = zarr.create_group(path)
    array = root.create_array(
        "a", shape=(64, 1 << 20), chunks=(1, 1 << 16), shards=(64, 1 << 20), dtype="u1",
        compressors=None, dimension_names=["t", "x"],
    )  # fmt: skip
    array[...] = np.repeat(np.arange(1, 65, dtype="u1")[:, None], 1 << 20, axis=1)
    command = Path(sys.executable).with_name("millhead")
    window = ["--window", "t=1,x=65536", "--limit-batches", "1"]
    done = subprocess.run(
        ["strace", "-f", "-e", "trace=openat,pread64,preadv,preadv2,read,close", str(command)]
        + ["read", str(path), *window],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    read, ours = 0, set[str]()
    for line in done.stderr.splitlines():
        if "big.zarr/a/c" in line and "openat" in line and "= -1" not in line:
            ours.add(line.rpartition("= ")[2].strip())
        found = [d for d in ours if f"read64({d}," in line or f"readv({d}," in line
                 or f"readv2({d}," in line or f" read({d}," in line]  # fmt: skip
        if found and "= -1" not in line:
            read += int(line.rpartition("= ")[2].split()[0])
    index = 64 * 16 * 16 + 4
    assert 65536 <= read <= index + 65536 + 65536


# --- what cannot be read


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    file = path / "a" / "zarr.json"
    metadata = json.loads(file.read_text())
    change(metadata)
    file.write_text(json.dumps(metadata))
    return path


REFUSED: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda m: m["codecs"].append({"name": "pcodec"}), "unknown codec 'pcodec'"),
    (lambda m: m["codecs"].insert(0, "packbits"), "unknown codec 'packbits'"),
    (lambda m: m.update(data_type="string"), "'string'"),
    (lambda m: m.update(data_type={"name": "r16"}), "'r16'"),
    (lambda m: m.update(fill_value="sunny"), 'the fill value "sunny"'),
    (lambda m: m.update(shape=[12]), "chunk shape of 1 dimensions"),
    (lambda m: m.update(shape=[12, -1]), "no sound shape"),
    (lambda m: m["chunk_grid"]["configuration"].update(chunk_shape=[0, 5]), "chunk shape"),
    (lambda m: m["chunk_grid"].update(name="rectilinear"), "chunk_grid"),
    (lambda m: m.update(dimension_names=["y"]), "1 names for 2 dimensions"),
    (lambda m: m.update(zarr_format=4), "zarr_format 4"),
    (lambda m: m.update(secret={"must_understand": True}), "the extension 'secret'"),
    (lambda m: m.update(codecs=[]), "the codecs lack bytes"),
    (lambda m: m["chunk_grid"]["configuration"].update(chunk_shape=[1 << 40, 1 << 40]), "1 TiB"),
]


@pytest.mark.parametrize(("change", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_cannot_be_read_is_refused_by_name(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], said: str
) -> None:
    path = edit(Path(store_of(tmp_path / "a.zarr")), change)
    with pytest.raises((millhead.Error, ValueError)) as caught:
        opened(path)
    assert said in str(caught.value)
    assert "a.zarr: array 'a'" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("compressor", "said"),
    [
        ({"id": "wavpack"}, "unknown codec 'wavpack'"),
        ({"id": "bz2", "level": 1}, "unknown codec 'bz2'"),
        ({}, "has no id"),
    ],
)
def test_compressors_of_version_2_are_refused_by_name(
    tmp_path: Path, compressor: dict[str, Any], said: str
) -> None:
    path = Path(store_of(tmp_path / "a.zarr", zarr_format=2))
    file = path / "a" / ".zarray"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"compressor": compressor}))
    with pytest.raises(millhead.Error, match=said):
        opened(path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"window": {"y": 13}}, "13"),
        ({"window": {"z": 1}}, "'z'"),
        ({"window": {"y": 0}}, "y"),
        ({"decode": "cff"}, "unknown decode 'cff'"),
        ({"select": {"y": (1, 2)}}, "coordinate"),
    ],
    ids=str,
)
def test_windows_that_do_not_fit_are_refused(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    path = store_of(tmp_path / "a.zarr")
    with pytest.raises((millhead.Error, ValueError, FileNotFoundError)) as caught:
        opened(path, **options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_fields_are_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown field 'b': .* has a"):
        opened(store_of(tmp_path / "a.zarr"), ["b"])


def test_a_store_without_arrays_and_a_half_written_one(tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "empty.zarr")
    with pytest.raises(FileNotFoundError, match="holds no Zarr array"):
        opened(tmp_path / "empty.zarr")
    path = Path(store_of(tmp_path / "a.zarr"))
    text = (path / "a" / "zarr.json").read_text()
    (path / "a" / "zarr.json").write_text(text[: len(text) // 2])
    with pytest.raises(millhead.Error, match=r"a\.zarr: a/zarr.json at byte"):
        opened(path)
    shutil.rmtree(path / "a" / "c")
    (path / "a" / "zarr.json").write_text(text)
    assert (opened(path)[0]["a"] == -1).all()  # no chunk is written yet


def test_arrays_of_no_dimension_and_of_no_length(tmp_path: Path) -> None:
    root = zarr.create_group(tmp_path / "o.zarr")
    root.create_array("scalar", shape=(), dtype="f8", fill_value=2.5)
    empty = {"shape": (0, 3), "chunks": (2, 3), "dimension_names": ["t", "x"]}
    root.create_array("none", dtype="f4", **empty)
    assert opened(tmp_path / "o.zarr", ["scalar"], window=None)[0]["scalar"] == 2.5
    with pytest.raises(ValueError, match="larger than"):
        opened(tmp_path / "o.zarr", window={"t": 1})


def test_ten_million_chunks_open_at_once(tmp_path: Path) -> None:
    root = zarr.create_group(tmp_path / "wide.zarr")
    root.create_array(
        "a", shape=(10_000_000, 4), chunks=(1, 4), dtype="f4", fill_value=np.nan,
        dimension_names=["t", "x"],
    )  # fmt: skip
    dataset = opened(tmp_path / "wide.zarr", window={"t": 1, "x": 4})
    assert len(dataset) == 10_000_000
    assert np.isnan(dataset[9_999_999]["a"]).all()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("fill", [np.nan, np.inf, -np.inf, 0.1, -0.0, 1e-40])
@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8", "<c8"])
def test_fill_values(tmp_path: Path, dtype: str, fill: float, version: int) -> None:
    path = tmp_path / "f.zarr"
    array = zarr.create_array(path, shape=(4,), dtype=dtype, fill_value=fill, zarr_format=version)
    found = opened(path, window={"dim_0": 2})[0]["f"]
    assert found.tobytes() == array[:2].astype(np.dtype(dtype).newbyteorder("=")).tobytes()


def test_dates_are_their_numbers(tmp_path: Path) -> None:
    for version in (2, 3):
        path = tmp_path / f"d{version}.zarr"
        array = zarr.create_array(path, shape=(3,), dtype="M8[s]", zarr_format=version)
        array[:2] = np.array(["2001-01-01", "NaT"], "M8[s]")
        found = opened(path, window={"dim_0": 3})[0][f"d{version}"]
        np.testing.assert_array_equal(found, array[:].view("i8"))


assert zarr_stores.TYPES  # its import starts zarr's event loop
