"""Everything NumPy writes to .npy and .npz: byte orders, Fortran order, members, archives."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import millhead
import numpy as np
import pytest

TYPES = [
    "b1",
    "i1",
    "i2",
    "i4",
    "i8",
    "u1",
    "u2",
    "u4",
    "u8",
    "f2",
    "f4",
    "f8",
    "c8",
    "c16",
    "M8[s]",
    "m8[ns]",
    "S1",
    "S7",
    "U1",
    "U3",
    "V5",
]
SHAPES = [(0,), (0, 3), (7,), (1, 1), (7, 1), (7, 5), (7, 0), (7, 0, 2), (5, 2, 3), (3, 4, 1, 2)]
BATCH = 3


def make(dtype: Any, shape: tuple[int, ...], order: str = "C") -> np.ndarray:
    """Values that differ from each other where the type has as many."""
    dtype = np.dtype(dtype)
    if dtype.names is not None:
        array = np.zeros(shape, dtype, order)
        for name in dtype.names:
            part = dtype[name]
            array[name] = make(part.base, shape + part.shape)
        return array
    numbers = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    if dtype.kind == "V":
        raw = (numbers[..., None] * 5 + np.arange(dtype.itemsize)).astype(np.uint8)
        return np.asarray(np.ascontiguousarray(raw).view(dtype)[..., 0], order=order)
    if dtype.kind == "b":
        numbers = numbers % 3 == 1
    elif dtype.kind == "c":
        numbers = numbers - 1j * numbers
    elif dtype.kind in "iu" and dtype.itemsize > 1:
        numbers = numbers * 259  # both low bytes count
    return np.asarray(numbers.astype(dtype), order=order)


def delivered(array: np.ndarray) -> np.ndarray:
    """What a batch has for it: little endian, dates as int64, other bytes as uint8."""
    kind = array.dtype.kind
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
    if kind in "mM":
        return array.view(np.int64)
    if kind not in "SUV":
        return array
    shape = array.shape if array.dtype.itemsize == 1 else (*array.shape, array.dtype.itemsize)
    return np.frombuffer(array.tobytes(), np.uint8).reshape(shape)


def fields_of(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    if array.dtype.names is None:
        return {name: delivered(array)}
    fields = {}
    for member in array.dtype.names:
        fields |= fields_of(f"{name}.{member}", array[member])
    return fields


def same(found: Any, expected: np.ndarray) -> None:
    assert isinstance(found, np.ndarray)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()  # NaN and -0.0 too


def check(paths: Any, expected: dict[str, np.ndarray], wanted: list[str] | None = None) -> None:
    """Samples, batches and a shuffled epoch are the expected rows."""
    names = sorted(expected) if wanted is None else wanted
    count = len(expected[names[0]])
    data = millhead.open(paths, fields=wanted, output="numpy")
    assert len(data) == count and list(data.fields) == names
    for index in range(count):
        sample = data[index]
        for name in names:
            same(np.asarray(sample[name]), np.asarray(expected[name][index]))
    rows = list(range(count))[::-2]
    batch = data[rows]
    for name in names:
        same(batch[name], expected[name][rows])
    if count == 0:
        return
    seen: list[int] = []
    with millhead.Loader(
        paths, BATCH, fields=[*names, "_index"], shuffle=True, seed=2, output="numpy"
    ) as loader:
        for batch in loader:
            numbers = batch["_index"]
            for name in names:
                same(batch[name], expected[name][numbers])
            seen += numbers.tolist()
    assert sorted(seen) == list(range(count))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("endian", ["<", ">"])
@pytest.mark.parametrize("dtype", TYPES)
def test_types_in_both_byte_orders_and_both_orders(
    tmp_path: Path, dtype: str, endian: str, order: str
) -> None:
    for shape in SHAPES:
        path = tmp_path / "a.npy"
        array = make(np.dtype(dtype).newbyteorder(endian), shape, order)
        np.save(path, array)
        assert np.load(path).flags.f_contiguous == array.flags.f_contiguous
        check(path, fields_of("a", array))


STRUCTS: dict[str, Any] = {
    "plain": [("x", "<f4"), ("y", "<i2")],
    "big": [("x", ">f8"), ("y", ">u2"), ("t", ">M8[us]"), ("c", ">c8")],
    "shapes": [("x", "<f4", (3,)), ("y", ">i2", (2, 3)), ("s", "S5", (2,)), ("u", ">U2")],
    "padded": np.dtype([("a", "u1"), ("b", "f8"), ("c", "u1")], align=True),
    "offsets": {"names": ["a", "b"], "formats": ["i4", "f8"], "offsets": [4, 16], "itemsize": 32},
    "titles": [(("the title", "x"), "<f4"), ("y", "u1")],
    "names": [("é", "<f4"), ("it's", "u1"), ("a.b", "u1"), ("日本", "<i2")],
    "one": [("x", "<f4")],
    "many": [(f"column_{i}", "<i2") for i in range(200)],
    "nested": [("p", [("x", "<f4"), ("q", [("z", ">i2")])]), ("y", "u1")],
}


@pytest.mark.filterwarnings("ignore:Stored array in format:UserWarning")
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("struct", STRUCTS)
def test_members_are_fields(tmp_path: Path, struct: str, order: str) -> None:
    for shape in [(0,), (5,), (5, 2), (3, 2, 2)]:
        path = tmp_path / "points.npy"
        array = make(STRUCTS[struct], shape, order)
        np.save(path, array)
        expected = fields_of("points", array)
        check(path, expected)
        for name in list(expected)[:3]:
            check(path, expected, [name])


def test_a_member_may_be_a_list_of_structs(tmp_path: Path) -> None:
    array = np.zeros((4, 2), [("n", [("p", "<i4"), ("q", ">u2", (2,))], (3,)), ("r", "u1")])
    array["n"]["p"] = np.arange(24).reshape(4, 2, 3)
    array["n"]["q"] = np.arange(48).reshape(4, 2, 3, 2) * 259
    np.save(tmp_path / "a.npy", array)
    check(tmp_path / "a.npy", fields_of("a", array))


def test_kinds_may_be_mixed(tmp_path: Path) -> None:
    arrays = {
        "little": make("<f4", (7, 3)),
        "big": make(">i8", (7,)),
        "fortran": make("<u2", (7, 2, 3), "F"),
        "points": make([("x", "<f4"), ("y", ">i2")], (7,)),
        "nothing": make(">f8", (7, 0)),
    }
    expected: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
        expected |= fields_of(name, array)
    paths = [tmp_path / f"{name}.npy" for name in arrays]
    check(paths, expected)
    for name in expected:
        check(paths, expected, [name])
    check(paths, expected, ["fortran", "little"])


def test_archives_hold_a_field_for_each_array(tmp_path: Path) -> None:
    arrays = {
        "x": make("<f4", (7, 3)),
        "label": make("<i8", (7,)),
        "in/folder": make("u1", (7, 2)),
        "ü": make("u1", (7,)),
        "big": make(">u4", (7, 2)),
        "fortran": make("<f8", (7, 2, 2), "F"),
        "p": make([("x", ">f4"), ("y", "u1")], (7,)),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    expected: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        expected |= fields_of(name, array)
    check(tmp_path / "a.npz", expected)
    check(tmp_path / "a.npz", expected, ["x", "label"])
    np.save(tmp_path / "more.npy", make("<i2", (7,)))
    expected["more"] = make("<i2", (7,))
    check([tmp_path / "more.npy", tmp_path / "a.npz"], expected)
    check([tmp_path / "a.npz", tmp_path / "more.npy"], expected, ["more", "x"])


def test_archives_without_names_for_their_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", make("<f4", (4, 2)), make("<i2", (4,)))
    check(tmp_path / "a.npz", {"arr_0": make("<f4", (4, 2)), "arr_1": make("<i2", (4,))})


def test_the_wanted_arrays_of_an_archive_must_be_of_one_length(tmp_path: Path) -> None:
    train, test = make("<f4", (7, 2)), make("<f4", (3, 2))
    np.savez(tmp_path / "a.npz", x_train=train, y_train=make("i8", (7,)), x_test=test, version=3)
    expected = {"x_train": train, "y_train": make("i8", (7,)), "x_test": test}
    check(tmp_path / "a.npz", expected, ["x_train", "y_train"])
    check(tmp_path / "a.npz", expected, ["x_test"])
    with pytest.raises(ValueError, match="samples"):
        millhead.open(tmp_path / "a.npz", fields=["x_train", "x_test"])
    with pytest.raises(ValueError, match="version in .*a.npz holds a single value"):
        millhead.open(tmp_path / "a.npz", fields=["version"])


def test_zip64_as_for_large_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)
    arrays = {"x": make("<f4", (7, 3)), "y": make("<i8", (7,))}
    np.savez(tmp_path / "a.npz", **arrays)
    assert b"PK\x06\x06" in (tmp_path / "a.npz").read_bytes()
    check(tmp_path / "a.npz", arrays)


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.array([{}, []], object), r"a\.npy: npy array of Python objects"),
        (np.zeros(3, [("x", "f4"), ("o", "O")]), r"a\.npy: member o: npy array of Python objects"),
        (np.zeros(3, np.longdouble), r"a\.npy: npy array of type [<>]f16"),
        (np.zeros(3, [("x", np.clongdouble)]), r"a\.npy: member x: npy array of type [<>]c32"),
    ],
)
def test_what_is_not_read_is_refused_by_name(tmp_path: Path, array: Any, said: str) -> None:
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(millhead.Error, match=said):
        millhead.open(tmp_path / "a.npy")


def test_compressed_archives_are_refused_with_the_way_out(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=make("<f4", (7, 3)))
    with pytest.raises(millhead.Error, match=r"a\.npz: x\.npy in it is compressed.*np\.savez,"):
        millhead.open(tmp_path / "a.npz")


def test_a_cut_archive_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=make("<f4", (7, 3)))
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[:-30])
    with pytest.raises(millhead.Error, match=r"a\.npz: zip archive without its end"):
        millhead.open(tmp_path / "a.npz")


def test_a_folder_of_arrays_stands_for_its_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(12).reshape(6, 2))
    np.savez(tmp_path / "more.npz", y=np.arange(6), z=np.ones(6))
    (tmp_path / ".hidden").write_text("not looked at")
    data = millhead.open(str(tmp_path))
    assert (len(data), sorted(data.fields)) == (6, ["x", "y", "z"])
    assert repr(data).endswith(": 6 samples of x int64 (2,), y int64, z float64")
    with millhead.Loader(str(tmp_path), 4, output="numpy") as loader:
        assert repr(loader).endswith(", 4): 2 batches of x int64 (2,), y int64, z float64")
        assert [batch["x"].tolist() for batch in loader][1] == [[8, 9], [10, 11]]


def test_a_folder_with_anything_else_is_one_of_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6))
    (tmp_path / "readme.txt").write_text("another file")
    assert list(millhead.open(str(tmp_path)).fields) == ["bytes"]


def test_many_arrays_are_samples(tmp_path: Path) -> None:
    for number in range(65):
        np.save(tmp_path / f"{number}.npy", np.arange(3))
    assert len(millhead.open(str(tmp_path))) == 65
