"""What the documents show runs as shown."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import millhead.data
import millhead.dataset
import millhead.loader
import millhead.timer.step_timer
import millhead.torch
import millhead.torch.device_copy
import millhead.torch.installation
import millhead.torch.loader
import millhead.torch.ranks.batch_size
import millhead.torch.resume.checkpoint
import millhead.torch.sampling.blocks
import millhead.torch.sampling.distributed
import millhead.torch.sampling.lengths
import millhead.torch.sampling.padding
import millhead.torch.sampling.shards
import millhead.torch.sampling.shuffle_buffer
import pytest
from helpers import procs

ROOT = Path(__file__).resolve().parents[3]


def _snippets(document: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)


SNIPPETS = _snippets(ROOT / "README.md")
BELOW = ("ranks", "migration", "images", "zarr", "remote")  # these have tests of their own
OTHERS = [
    pytest.param(snippet, id=f"{document.stem}-{number}")
    for document in sorted((ROOT / "docs").glob("*.md"))
    if document.stem not in BELOW
    for number, snippet in enumerate(_snippets(document))
]


@pytest.mark.parametrize(
    ("snippet", "printed"), zip(SNIPPETS, ["slot", "latency-bound"], strict=True)
)
def test_a_snippet_of_the_readme_runs(snippet: str, printed: str, tmp_path: Path) -> None:
    script = tmp_path / "snippet.py"
    script.write_text(snippet)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == printed


@pytest.mark.parametrize("snippet", OTHERS)
def test_a_snippet_of_the_documents_runs(snippet: str, tmp_path: Path) -> None:
    script = tmp_path / "snippet.py"
    script.write_text(snippet)
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")


# What the snippets about data take for granted: data, and the reader's own functions
PREPARED = """
import csv, subprocess, sys
import millhead, numpy
from pathlib import Path
from PIL import Image
from millhead.torch import DataLoader

def synth(*arguments):
    command = Path(sys.executable).with_name("millhead")
    subprocess.run([command, "synth", *arguments], check=True, stdout=subprocess.DEVNULL)

def train(*batch): pass
def augment(sample): return sample["image"], sample["label"]

Path("imagenet").mkdir()
synth("imagenet", "imagenet/train", "--count", "70")
Path("train").symlink_to("imagenet/train")
for store in ("era5.zarr", "2001.zarr", "2002.zarr"):
    synth("weather", store, "--count", "8", "--lat", "65", "--lon", "130")
with open("segmentation.csv", "w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["image", "mask"])
    for number in range(3):
        Image.new("RGB", (300, 280)).save(f"{number}.png")
        Image.new("L", (300, 280)).save(f"{number}-mask.png")
        rows.writerow([f"{number}.png", f"{number}-mask.png"])
"""


@pytest.mark.parametrize("page", ["images", "zarr"])
def test_the_snippets_about_data_run(page: str, tmp_path: Path) -> None:
    snippets = _snippets(ROOT / f"docs/{page}.md")
    assert snippets
    script = tmp_path / "snippets.py"
    script.write_text(
        PREPARED + "".join(f"{snippet}\nnext(iter(loader))\n" for snippet in snippets)
    )
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr


def test_the_snippets_about_remote_data_can_be_read() -> None:
    """Their servers are not here; tests/python/remote has some."""
    snippets = _snippets(ROOT / "docs/remote.md")
    assert snippets
    for snippet in snippets:
        compile(snippet, "remote.md", "exec")


def test_the_snippets_about_ranks_run_one_after_the_other(tmp_path: Path) -> None:
    snippets = _snippets(ROOT / "docs/ranks.md")
    assert len(snippets) >= 3
    script = tmp_path / "ranks.py"
    script.write_text("".join(snippets) + "print(batch[-1].item())\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        env={**os.environ, "RANK": "1", "WORLD_SIZE": "2"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "10005\n"  # rank 1's last of 10007


@pytest.mark.parametrize(
    "module",
    [
        millhead.data,
        millhead.dataset,
        millhead.loader,
        millhead.timer.step_timer,
        millhead.torch,
        millhead.torch.ranks.batch_size,
        millhead.torch.device_copy,
        millhead.torch.installation,
        millhead.torch.resume.checkpoint,
        millhead.torch.sampling.blocks,
        millhead.torch.sampling.shuffle_buffer,
        millhead.torch.sampling.distributed,
        millhead.torch.sampling.lengths,
        millhead.torch.loader,
        millhead.torch.sampling.padding,
        millhead.torch.sampling.shards,
    ],
)
def test_examples_in_docstrings_give_what_they_show(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted > 0
    assert result.failed == 0


# What the snippets of docs/migration.md take for granted, and each of them in turn
MIGRATION = """
import sys
import frameworks, lightning, millhead.torch, torch, transformers
from helpers.framework_scenes import Tokens

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
    def training_step(self, batch, number):
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

given = {
    "dataset": torch.utils.data.TensorDataset(torch.rand(20, 3), torch.rand(20, 1)),
    "module": Module(),
    "texts": Tokens(20),
    "model": transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=32, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )),
}
for snippet in sys.argv[1:]:
    with frameworks.iterators_made() as made:
        exec(snippet, dict(given))
    millhead.torch.uninstall()
    print("made by", *made)
"""


@pytest.mark.limit(240)
def test_the_snippets_of_the_migration_page_run_on_our_iterators(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "migration.md").read_text()
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(snippets) == 5
    command = [sys.executable, "-c", MIGRATION, *snippets]
    done = procs.run(command, seconds=220, cwd=tmp_path, env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert done.left == set()  # type: ignore[attr-defined]
    told = [line for line in done.stdout.splitlines() if line.startswith("made by")]
    assert told == ["made by millhead"] * 5


def test_the_page_on_architecture_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    folders = ("src", "python", "cli", "tests", "tools", "bench", "web", "include")
    tree = {path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.*")}
    named = set(re.findall(r"`([\w/]+\.(?:c|h|py))`", text)) - {"mh_config.h"}  # made by the build
    assert len(named) > 40
    missing = [name for name in named if not any(str(path).endswith(name) for path in tree)]
    assert not missing
