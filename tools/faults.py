"""faults - what tools/sabotage plants: a text file for each fault in tests/sabotage.

Test: histogram                         the name of a Meson test, or
Test: tests/python/test_x.py::test_y    a pytest node, or
Test: -k words                          a pytest expression
Why: what goes wrong for users when these lines are wrong
File: src/metrics/histogram.c
Find:
whole lines, which the file has exactly once
Put:
the lines to put there; none: the lines are removed
"""

from dataclasses import dataclass
from pathlib import Path

FAULTS = Path("tests", "sabotage")  # under the root of a tree


@dataclass
class Fault:
    name: str
    tests: list[str]
    file: Path
    find: list[str]
    put: list[str]

    def planted(self, text: str) -> str:
        """The file's text with the fault; ValueError where it does not fit."""
        lines = text.splitlines(keepends=True)
        count = len(self.find)
        places = [at for at in range(len(lines)) if lines[at : at + count] == self.find]
        if len(places) != 1:
            raise ValueError(f"{self.file} has the text to find {len(places)} times, not once")
        lines[places[0] : places[0] + count] = self.put
        return "".join(lines)


def read(path: Path) -> Fault:
    """A fault from its file; ValueError where it is not as above."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if lines.count("Find:\n") != 1 or lines.count("Put:\n") != 1:
        raise ValueError("needs one line Find: and one line Put:")
    find, put = lines.index("Find:\n"), lines.index("Put:\n")
    head: dict[str, list[str]] = {"Test": [], "Why": [], "File": []}
    for line in lines[:find]:
        key, _, value = line.partition(": ")
        if key not in head or not value.strip():
            raise ValueError(f"does not know the line {line.strip()!r}")
        head[key].append(value.strip())
    if not head["Test"] or len(head["Why"]) != 1 or len(head["File"]) != 1:
        raise ValueError("needs at least one line Test:, one line Why: and one line File:")
    fault = Fault(
        path.stem, head["Test"], Path(head["File"][0]), lines[find + 1 : put], lines[put + 1 :]
    )
    if not fault.find or fault.find == fault.put:
        raise ValueError("changes nothing")
    return fault
