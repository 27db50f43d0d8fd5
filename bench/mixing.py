"""How well shuffle="blocks" mixes, and what it saves, beside the full shuffle and no shuffle.

    mixing.py [--count N] [--chunk C] [--batch-size B] [--epochs E] [--memory SIZE] [--json]

The value of a sample is the number of its chunk, so that everything in a chunk is alike: the worst
case. Printed for each order: how well a sample foretells the next one (1: as data lie, 0: not at
all), how far means of batches spread beside those of the full shuffle (1: as far), distinct chunks in
a batch, and how often each chunk was decoded with `memory` for batches and chunks.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import millhead
import numpy as np


def measure(options: argparse.Namespace, shuffle: bool | str) -> dict[str, Any]:
    """One order over some epochs."""
    data = f"synthetic:count={options.count},shape=256,chunk={options.chunk}"
    following, means, distinct = [], [], []
    with millhead.Loader(
        data, options.batch_size, fields=["_index", "x"], shuffle=shuffle, output="numpy",
        memory=options.memory, threads=1,
    ) as loader:  # fmt: skip
        for _ in range(options.epochs):
            batches = [batch["_index"] // options.chunk for batch in loader]
            chunks = np.concatenate(batches)
            following.append(np.corrcoef(chunks[:-1], chunks[1:])[0, 1])
            full = [batch for batch in batches if len(batch) == options.batch_size]
            means.append(np.std([batch.mean() for batch in full]))
            distinct.append(np.mean([len(np.unique(batch)) for batch in full]))
        decoded = loader.stats()["units"]["decoded"]
    return {
        "order": ("full shuffle" if shuffle else "sequential") if shuffle != "blocks" else "blocks",
        "correlation": float(np.mean(following)),
        "spread": float(np.mean(means)),
        "chunks_in_batch": float(np.mean(distinct)),
        "decoded_per_chunk": decoded / options.epochs / -(-options.count // options.chunk),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--chunk", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--memory", default="2MB")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [measure(options, shuffle) for shuffle in (False, "blocks", True)]
    for row in rows:
        row["spread"] /= rows[-1]["spread"] if row is not rows[-1] else 1
    rows[-1]["spread"] = 1.0
    if options.json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(
            f"{row['order']:12}  correlation {row['correlation']:5.2f}  spread {row['spread']:4.2f}  "
            f"chunks in a batch {row['chunks_in_batch']:5.1f}  decoded {row['decoded_per_chunk']:.2f}"
        )


if __name__ == "__main__":
    main()
