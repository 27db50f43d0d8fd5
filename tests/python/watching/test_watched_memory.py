"""Watching takes hardly any memory from the program, and breaks none of its heap into pieces.

The program transforms each batch after the loader: large blocks come and go on its heap while whatever
watching keeps is allocated among them.
"""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest
from helpers import procs

PROGRAM = """
    import os, resource, sys

    run, hooks, kind = sys.argv[1:]
    if run:
        os.environ["MILLHEAD_WATCH_HOOKS"] = hooks
    import millhead, millhead.torch, torch
    from torch.utils.data import Dataset

    class Pictures(Dataset):
        def __len__(self):
            return 120 * 8

        def __getitem__(self, index):
            return torch.full((3, 128, 128), index % 255, dtype=torch.uint8)

    torch.set_num_threads(1)
    if run:
        millhead.torch.watch_all(run)
    loaders = {"torch": torch.utils.data.DataLoader, "millhead": millhead.torch.DataLoader}
    net = torch.nn.Conv2d(3, 8, 3, stride=2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for batch in loaders[kind](Pictures(), batch_size=8, num_workers=1):
        pixels = batch.float() / 255
        pixels = torch.nn.functional.interpolate(pixels, size=(160, 160), mode="bilinear")
        spread = pixels.std((2, 3), keepdim=True) + 1e-5
        pixels = ((pixels - pixels.mean((2, 3), keepdim=True)) / spread).flip(-1)
        optimizer.zero_grad()
        net(pixels).square().mean().backward()
        optimizer.step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


def _peak(directory: Path, run: str, hooks: str, kind: str) -> int:
    """The most that the program had in memory, in MB."""
    program = directory / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    # as few arenas as there are in a program of one thread: which one a thread gets is chance
    env = {"MALLOC_ARENA_MAX": "1"}
    done = procs.run([sys.executable, str(program), run, hooks, kind], seconds=120, env=env)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("kind", ["torch", "millhead"])
def test_watched_and_unwatched_need_the_same_memory(tmp_path: Path, kind: str) -> None:
    unwatched = _peak(tmp_path, "", "0", kind)
    for hooks in "01":
        run = tmp_path / f"run-{hooks}"
        watched = _peak(tmp_path, str(run), hooks, kind)
        assert os.path.getsize(run / "events.jsonl") > 10_000
        assert watched <= 1.05 * unwatched, f"hooks {hooks}: {watched} MB, {unwatched} unwatched"
