"""The core's JSON against Python's: the same texts are JSON, and they mean the same."""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ["src/base/json.c", "src/base/jsonout.c", "src/base/alloc.c", "src/base/error.c"]
ALPHABET = ["a", "Z", " ", '"', "\\", "/", "\n", "\t", "\x01", "\x7f", "é", "€", "😀", "\u2028"]
PIECES = ["{", "}", "[", "]", ",", ":", '"', '"a"', "1", "-", "0", ".5", "e9", "true", "null", " "]


@pytest.fixture(scope="module")
def copy_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("json") / "json_copy"
    sources = [ROOT / name for name in [*SOURCES, "tests/python/helpers/json_copy.c"]]
    includes = [f"-I{ROOT / name}" for name in ("src", "include", "build/src")]  # mh_config.h
    command = [
        "cc",
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-O1",
        *includes,
        *sources,
        "-o",
        program,
        "-lm",
    ]
    subprocess.run(command, check=True, timeout=120)
    return program


def copies(program: Path, lines: list[str]) -> list[str]:
    text = "".join(line + "\n" for line in lines)
    done = subprocess.run(
        [program], input=text.encode(), capture_output=True, timeout=120, check=True
    )
    answers = done.stdout.decode().split("\n")[:-1]
    assert len(answers) == len(lines)
    return answers


def a_value(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randrange(6 if depth > 4 else 8)
    if kind == 0:
        return draw.choice([None, True, False])
    if kind == 1:
        return draw.randint(-(2**63), 2**64 - 1) >> draw.randrange(64)
    if kind == 2:
        return draw.uniform(-1, 1) * 10.0 ** draw.randint(-320, 308)
    if kind == 3:
        return round(draw.uniform(0, 2e9), draw.randrange(9))
    if kind in (4, 5):
        return "".join(draw.choices(ALPHABET, k=draw.randrange(20)))
    if kind == 6:
        return [a_value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {f"k{n}é": a_value(draw, depth + 1) for n in range(draw.randrange(4))}


def refuse(word: str) -> None:
    raise ValueError(word)


def meaning(line: str) -> Any:
    """What Python reads; ValueError also for NaN and Infinity, which JSON does not have."""
    return json.loads(line, parse_constant=refuse)


def test_what_python_writes_is_read_and_written_as_the_same(copy_program: Path) -> None:
    seed = random.randrange(10**9)
    draw = random.Random(seed)
    values = [a_value(draw) for _ in range(3000)]
    lines = [json.dumps(value, ensure_ascii=draw.random() < 0.5) for value in values]
    for line, answer in zip(lines, copies(copy_program, lines), strict=True):
        assert repr(meaning(answer)) == repr(meaning(line)), f"seed {seed}"


def test_what_python_refuses_is_refused(copy_program: Path) -> None:
    seed = random.randrange(10**9)
    draw = random.Random(seed)
    lines = ["".join(draw.choices(PIECES, k=draw.randrange(1, 9))) for _ in range(20000)]
    lines += ["NaN", "[Infinity]", "{'a': 1}", "[1,]", '"\t"', "\ufeff{}", "{}{}", "{} x", "01"]
    good = 0
    for line, answer in zip(lines, copies(copy_program, lines), strict=True):
        try:
            # numbers too large for a double are written as null
            expected = repr(meaning(line)).replace("-inf", "None").replace("inf", "None")
        except ValueError:
            assert answer == "bad", f"seed {seed}: {line!r}"
        else:
            good += 1
            assert answer != "bad", f"seed {seed}: {line!r}"
            assert repr(meaning(answer)) == expected, f"seed {seed}: {line!r}"
    assert good > 100
