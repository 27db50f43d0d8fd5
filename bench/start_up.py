"""start_up - W12: how long the first batch of a folder of 1.28 million files takes when it is opened again."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

CLASSES, FILES = 1000, 1280  # of each class
LINKS_MOST = 60_000  # to one file
PIPELINE = "image: decode | random_resized_crop 224 | flip"
WALK = """
import os, sys
from PIL import Image
names = sorted(os.path.join(top, name) for top, _, files in os.walk(sys.argv[1]) for name in files)
print(len(names))
for name in names[::20_000]:
    Image.open(name).convert("RGB").resize((224, 224))
"""


def make(millhead: Path, directory: Path) -> Path:
    """1.28 million names, which are links to a few small pictures."""
    data, some = directory / "start", directory / "some"
    if data.exists():
        return data
    count = CLASSES * FILES // LINKS_MOST + 1
    subprocess.run([millhead, "synth", "imagenet", some, "--count", str(count)], check=True)
    pictures = sorted(some.rglob("*.JPEG"))
    for number in range(CLASSES):
        folder = data / f"n{number:08d}"
        folder.mkdir(parents=True)
        for at in range(FILES):
            every = number * FILES + at
            os.link(pictures[every // LINKS_MOST], folder / f"n{number:08d}_{at}.JPEG")
    time.sleep(2.5)  # directories that changed a moment ago are listed again
    return data


def seconds_of(command: list[str], environment: dict[str, str]) -> float:
    """From the start of the process to its end."""
    began = time.monotonic()
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return time.monotonic() - began


def calls_of(command: list[str], environment: dict[str, str]) -> int:
    """System calls, as strace counts them."""
    with tempfile.NamedTemporaryFile("r") as counted:
        subprocess.run(
            ["strace", "-f", "-c", "-o", counted.name, *command],
            check=True, capture_output=True, env=environment,
        )  # fmt: skip
        return int(counted.read().splitlines()[-1].split()[3])


def measure(millhead: Path, directory: Path, rounds: int) -> dict[str, Any]:
    """Seconds of the first and of later openings; what listing everything takes each time."""
    data = make(millhead, directory)
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"XDG_CACHE_HOME": cache}
        read = [str(millhead), "read", str(data), "--batch-size", "64", "--shuffle"]
        read += ["--limit-batches", "1", "--pipeline", PIPELINE]
        first = seconds_of(read, environment)
        later = [seconds_of(read, environment) for _ in range(rounds)]
        calls = calls_of([str(millhead), "inspect", str(data)], environment)
    python = str(millhead.with_name("python"))
    walked = seconds_of([python, "-c", WALK, str(data)], dict(os.environ))
    return {
        "rounds": rounds,
        "directories": CLASSES + 1,
        "files": CLASSES * FILES,
        "first_open_s": first,
        "second_open_s": [statistics.median(later), min(later), max(later)],
        "calls": calls,
        "walk_s": walked,
    }
