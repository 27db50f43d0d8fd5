"""Writes the events file of a long run that never was, to try readers with: 10**7 events by default.

    python bench/manyevents.py RUN_DIR [--events N] [--workers W]

Workers fetch and collate in turn, the loop waits and trains; one sample in the middle takes 5 s.
Times are drawn from a fixed seed, so the file is the same everywhere.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

OUTLIER_NS = 5_000_000_000


def lines(events: int, workers: int) -> Iterator[str]:
    """The lines of the file; four events to a batch, and a look at the processes now and then."""
    draw = random.Random(7).random
    batches = events // 4
    free = [1_000_000] * workers  # when each worker is done with its last batch
    now, looked = 1_000_000, 0
    yield '{"event":"header","t":0,"schema":"millhead-events","version":1,"unix":1700000000}\n'
    yield (
        f'{{"event":"loader","t":1,"loader":0,"kind":"torch","workers":{workers},"prefetch":2,'
        '"batch_size":32,"in_order":true,"start":"fork","cpus":16}\n'
    )
    yield '{"event":"setup","t":2,"ns":900000,"loader":0,"epoch":0}\n'
    for batch in range(batches):
        worker, nth = batch % workers, batch // workers
        fetch = int(2_000_000 + 3_000_000 * draw())
        if batch == batches // 2:
            fetch = OUTLIER_NS
        collate = int(100_000 + 50_000 * draw())
        begin = max(free[worker], now - workers * 2_000_000)
        ready = begin + fetch + collate
        free[worker] = ready
        whose = f'"loader":0,"epoch":0,"worker":{worker},"nth":{nth}'
        yield (
            f'{{"event":"fetch","t":{begin},"ns":{fetch},"cpu":{fetch // 2},"delay":0,{whose},'
            f'"samples":32,"read":1000}}\n'
        )
        yield f'{{"event":"collate","t":{begin + fetch},"ns":{collate},"cpu":{collate},{whose}}}\n'
        wait = max(ready - now, 0) + 20_000
        yield (
            f'{{"event":"wait","t":{now},"ns":{wait},"cpu":1000,{whose},"batch":{batch},"samples":32}}\n'
        )
        now += wait
        step = int(900_000 + 200_000 * draw())
        yield f'{{"event":"step","t":{now},"ns":{step},"loader":0,"epoch":0,"batch":{batch}}}\n'
        now += step
        if now - looked > 1_000_000_000:
            looked = now
            yield (
                f'{{"event":"usage","t":{now},"pid":7,"role":"main","cpu":{now // 2},'
                f'"pss":{500_000_000 + batch}}}\n'
            )
    yield f'{{"event":"end","t":{now},"ns":{now}}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--events", type=int, default=10**7)
    parser.add_argument("--workers", type=int, default=8)
    options = parser.parse_args()
    options.run.mkdir(parents=True, exist_ok=True)
    with open(options.run / "events.jsonl", "w") as file:
        file.writelines(lines(options.events, options.workers))


if __name__ == "__main__":
    main()
