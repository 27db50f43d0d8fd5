"""The steps of arrays ("t2m: normalize mean=280 std=20 | nan 0 | cast f16"), by NumPy."""

from __future__ import annotations

import warnings

import numpy as np

#: Names and words: ("normalize", ["mean=280", "std=20"]).
Step = tuple[str, list[str]]


def of(text: str | None, names: list[str]) -> dict[str, list[Step]]:
    """What is done with each field."""
    found: dict[str, list[Step]] = {name: [] for name in names}
    for part in (text or "").split(";") if text else ():
        head, colon, rest = part.rpartition(":")
        own = [name.strip() for name in head.split(",")] if colon else names
        chain = [step.split() for step in rest.split("|")]
        for name in own:
            found[name] = [(words[0], words[1:]) for words in chain]
    return found


def normalized(array: np.ndarray, words: list[str]) -> np.ndarray:
    """Integers become float32, or float64 from 32 bits on; other types stay."""
    given = {name: float(value) for name, _, value in (word.partition("=") for word in words)}
    if array.dtype.kind in "iub":
        array = array.astype(np.float64 if array.dtype.itemsize >= 4 else np.float32)
    # half floats are computed in single ones and rounded once
    work = np.float64 if array.dtype == np.float64 else np.float32
    wide = (array.astype(work) - work(given["mean"])) / work(given["std"])
    return np.asarray(wide)


def applied(array: np.ndarray, chain: list[Step]) -> np.ndarray:
    """The values after all steps."""
    delivered = array.dtype
    for name, words in chain:
        if name == "normalize":
            if array.dtype.kind != "f":
                delivered = np.dtype("f8" if array.dtype.itemsize >= 4 else "f4")
            array = normalized(array, words)
        elif name == "nan" and array.dtype.kind == "f":
            array = np.where(np.isnan(array), array.dtype.type(float(words[0])), array)
        elif name == "cast":
            delivered = np.dtype(f"{words[0][0]}{int(words[0][1:]) // 8}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NaN as an integer, numbers beyond float16
        return np.ascontiguousarray(array.astype(delivered))
