"""Optimizing the pipeline: Data: how long does a batch take to load and to train on? (timing_benchmark.py)

The document's lines: none, it names the script: load, forward, backward and the rest of every batch,
to know which train_step_time to compare loader configurations with. Its options and the files that it
writes are the same: timing_results.csv, timing_summary.yaml, benchmark_config.yaml.
Added: a small model, and DummyDataset in place of the data set that the configuration names.
Left out: --precision, and the three pictures, which are columns of timing_results.csv.
"""

import argparse
import csv
import statistics
import tempfile
from pathlib import Path

import torch
import yaml
from dummydataset import DummyDataset as YourDataset  # replace with your dataset
from millhead import StepTimer
from millhead.torch import DataLoader

COLUMNS = ["data", "forward", "backward", "other"]


def main(save_dir: Path, epochs: int, device: str, config: dict) -> None:
    loader = DataLoader(YourDataset(), **config)
    model = torch.nn.Linear(32, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    timer, rows = StepTimer(quiet=True), []
    for _ in range(epochs):
        for batch in timer.loop(loader):
            with timer.forward:
                loss = model(batch.to(device)).mean()
            with timer.backward:
                optimizer.zero_grad()
                loss.backward()
            optimizer.step()  # part of "other"
            timer.step()
            rows.append([timer.last[column] for column in COLUMNS])

    save_dir.mkdir(parents=True, exist_ok=True)
    with (save_dir / "timing_results.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    means = dict(zip(COLUMNS, map(statistics.mean, zip(*rows, strict=True)), strict=True))
    step = sum(means.values()) - means["data"]
    summary = {"batches": len(rows), "mean_s": means, "train_step_time": step}
    (save_dir / "timing_summary.yaml").write_text(yaml.safe_dump(summary, sort_keys=False))
    (save_dir / "benchmark_config.yaml").write_text(yaml.safe_dump(config))

    print(", ".join(f"{name} {1000 * mean:.2f} ms" for name, mean in means.items()))
    print(f"a batch is waited for {means['data'] / (means['data'] + step):.0%} of the time")
    print(f"result: {len(rows)} batches, {sorted(path.name for path in save_dir.iterdir())}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-c", "--config", type=Path, help="YAML with DataLoader's arguments")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--save-dir", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    config = yaml.safe_load(args.config.read_text()) if args.config else {"batch_size": 8}
    with tempfile.TemporaryDirectory(prefix="timing-") as folder:
        main(args.save_dir or Path(folder), args.epochs, args.device, config)
