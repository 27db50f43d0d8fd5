"""Optimizing the pipeline: Data: compare loader configurations (benchmark_configurations.py).

The document's lines: in prose, the configurations to try: a baseline without workers, a sensible
default, more workers and so on; and the script's train_step_time.
The script is `millhead bench`: it runs each configuration in processes of its own, keeps a log of each,
and recommends one with its reason. On the command line, without any of this:

    millhead bench dummydataset.py:DummyDataset --train-step 0.1

Added: dummydataset.py in place of your data set; the file of configurations is written here.
Changed: three configurations, steps of 2 ms instead of 100 ms, worker counts for two cores.
"""

import json
import tempfile
from pathlib import Path

import torch.utils.data
import yaml
from millhead import bench
from millhead.torch import DataLoader

TRAIN_STEP_TIME, EPOCHS, BATCHES = 0.002, 2, 8
DEFAULT = {"batch_size": 8, "num_workers": 2, "persistent_workers": True}
CONFIGURATIONS = [
    {"name": "baseline", "batch_size": 8, "num_workers": 0},
    {"name": "default", **DEFAULT},
    {"name": "more-workers", **DEFAULT, "num_workers": 3},
]


def main(folder: Path) -> None:
    configs, logs = folder / "configs.yaml", folder / "benchmark_logs"
    configs.write_text(yaml.safe_dump({"configs": CONFIGURATIONS}))
    dataset = Path(__file__).with_name("dummydataset.py")
    loader = "torch" if DataLoader is torch.utils.data.DataLoader else "millhead"
    bench.main(
        [
            *(f"{dataset}:DummyDataset", "--configs", str(configs), "--loader", loader),
            *("--train-step", str(TRAIN_STEP_TIME), "--epochs", str(EPOCHS), "--repeats", "1"),
            *("--limit-batches", str(BATCHES), "-o", str(logs)),
        ]
    )
    report = json.loads((logs / "bench.json").read_text())
    for row in report["configs"]:
        last = Path(row["log"], "summary.csv").read_text().splitlines()[-1]
        batches = last.split(",")[2]
        print(f"result: {row['name']}: {batches} batches")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        main(Path(folder))
