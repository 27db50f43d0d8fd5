"""A slow training program, the doctor's verdict, its fix applied, the verdict after, and a report.

    python examples/story.py [-o DIRECTORY]

Everything it does is a command that it prints first, so that you can do the same with a program of
your own. DIRECTORY (default: out) has the pictures, the two runs and report.html afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from demo import PICTURES, write_pictures

MILLHEAD = os.path.join(sysconfig.get_path("scripts"), "millhead")
TRAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train.py")
SECONDS = 120  # no command here takes a quarter of it


def shown(command: Sequence[str]) -> str:
    """A command as one would type it: names without the way there."""
    names = {MILLHEAD: "millhead", sys.executable: "python", TRAIN: os.path.relpath(TRAIN)}
    return shlex.join(names.get(word, word) for word in command)


def run(command: Sequence[str], capture: bool = False) -> str:
    """Run it to its end; whatever happens, nothing of it is left. What it printed, if captured."""
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE if capture else None,
        # the doctor's verdict is part of the story, wherever that goes
        stderr=None if capture else subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = child.communicate(timeout=SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # it leads its own group
        child.wait()
    if child.returncode != 0:
        raise SystemExit(f"story: '{shown(command)}' failed with code {child.returncode}")
    return output or ""


def examine(title: str, kept: Path, training: Sequence[str]) -> dict[str, Any]:
    """Run the training program under the doctor, which prints its verdict; the verdict as data."""
    command = [MILLHEAD, "doctor", "-o", str(kept), "--", sys.executable, TRAIN, *training]
    print(f"\n{title}\n\n$ {shown(command)}", flush=True)
    run(command)
    verdict: dict[str, Any] = json.loads(run([MILLHEAD, "doctor", str(kept), "--json"], True))
    with open(kept / "summary.csv", newline="") as summary:
        *_, whole = csv.DictReader(summary)
    verdict["loop_s"] = float(whole["seconds"])
    return verdict


def conclusion(before: dict[str, Any], after: dict[str, Any]) -> str:
    """What the fix did, beside what was promised."""
    return (
        f"{before['cause']} before, {after['cause']} after. The device waited "
        f"{before['device_wait_share']:.0%} of the time, now {after['device_wait_share']:.0%}.\n"
        f"Training took {before['loop_s']:.1f} s, now {after['loop_s']:.1f} s: "
        f"{before['loop_s'] / after['loop_s']:.1f} times as fast, "
        f"{before['predicted_gain']:.1f} predicted."
    )


def make_room(*directories: Path) -> None:
    """Remove what an earlier story left."""
    for old in directories:
        try:
            shutil.rmtree(old)
        except FileNotFoundError:
            pass
        except OSError as error:  # made by root, say
            raise SystemExit(f"story: cannot remove '{old}': {error.strerror}; say -o") from None


def write_heights(store: Path) -> None:
    """A map of heights for each picture, one compressed chunk each."""
    generator = np.random.default_rng(1)
    array = zarr.create_array(
        store, shape=(PICTURES, 128, 128), chunks=(1, 128, 128), dtype="float32"
    )
    hills = np.cumsum(generator.standard_normal((PICTURES, 128, 128)), axis=1)
    array[:] = np.round(hills, 1)


def tell(place: Path, bold: Any) -> Path:
    """The whole story; the path of its report."""
    pictures, runs = place / "pictures", [place / "before"]
    make_room(pictures, place / "before", place / "after")
    pictures.mkdir(parents=True)
    write_pictures(pictures)
    write_heights(pictures / "heights.zarr")
    before = examine(bold("A training program is slow. Why?"), runs[0], [str(pictures)])
    fix = [f"{name}={json.dumps(value)}" for name, value in before["fix_settings"].items()]
    if fix:
        runs.append(place / "after")
        title = f"The fix it names, applied: {' '.join(fix)}"
        after = examine(bold(title), runs[1], [str(pictures), *fix])
        print(f"\n{conclusion(before, after)}")
    else:  # not what these pictures ask for, but a machine can be in any state
        print("\nHere the fix is not a setting of the loader: see what to do above.")
    report = [MILLHEAD, "report", *map(str, runs), "-o", str(place / "report.html")]
    print(f"\n{bold('Both runs, to look at')}\n\n$ {shown(report)}", flush=True)
    run(report)
    return place / "report.html"


def main(argv: Sequence[str] | None = None) -> int:
    """Tell the story; the report's path is the last line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", default="out", help="default: %(default)s")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    plain = "NO_COLOR" in os.environ or not sys.stdout.isatty()
    report = tell(Path(args.output), str if plain else "\033[1m{}\033[0m".format)
    print(f"\nOpen it in a browser:\n{report.resolve()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
