"""arrays - patches of a weather cube per second: decoding and copying alone, millhead, and its peers.

    bench/peers.sh arrays
    .venv/bin/python bench/arrays.py [--rounds N] [--stores A:blosc-lz4 B:zstd ...] [--json FILE]

Patches of 4 x 64 x 64 float32 from 32 x 721 x 1440, stored whole fields (A: 1 x 721 x 1440) or in
blocks (B: 8 x 181 x 360; S: those in shards), in batches of 32. By blocks there is memory for all
chunks: the cube stands for the blocks that are in use at a time. In a full shuffle there is memory
for less than half of it. All arms have the same memory and the same order; xbatcher and zarr keep
nothing. The limit (bench/limits/arrays.c) decodes as often as Belady's rule must with that memory,
copies the same patches, and waits for nothing. millhead may decode less often: it places what is
ready of all batches under way, not sample by sample. Its memory for chunks is touched for the first
time while the clock runs, as the peers' is; the limit's was touched before. Arms take turns; the
median of the rounds' ratios is printed with the range, millhead twice as the noise.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import machine
import numpy as np

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / "out" / "peers" / "arrays" / "bin" / "python"
DIMS, SHAPE, WINDOW, BATCH = ["t", "y", "x"], [32, 721, 1440], [4, 64, 64], 32
CHUNKS = {"A": [1, 721, 1440], "B": [8, 181, 360], "S": [8, 181, 360]}
MEMORY = {"blocks": 200 << 20, "full": 66 << 20}
#: Batches of an epoch that are read: a full shuffle decodes chunks again and again.
BATCHES = {"blocks": 60, "full": 12}
OURS = ["limit", "millhead", "millhead-again"]
STORES = ["A:blosc-lz4", "B:blosc-lz4", "B:blosc-zstd", "B:zstd", "S:blosc-zstd"]


def cube() -> np.ndarray:
    """Smooth fields, small scales, and the quantum that packed archives leave."""
    random = np.random.default_rng(4)
    y, x = np.mgrid[0 : SHAPE[1], 0 : SHAPE[2]].astype(np.float32)
    out = np.empty(SHAPE, np.float32)
    for t in range(SHAPE[0]):
        phase = random.uniform(0, 6.28, 4)
        smooth = 250 + 40 * np.sin(y / 230) + 8 * np.sin(x / 90 + phase[0] + t / 9)
        middle = 2 * np.sin(x / 17 + phase[1]) * np.sin(y / 13 + phase[2])
        field = smooth + middle + 0.01 * random.standard_normal(y.shape, np.float32)
        out[t] = np.round(field / 0.00148) * np.float32(0.00148)
    return out


def make_store(folder: Path, store_name: str, values: np.ndarray) -> Path:
    import zarr
    from zarr.codecs import BloscCodec, ZstdCodec

    kind, codec = store_name.split(":")
    level = {"blosc-lz4": 5}.get(codec, 1)
    packed: Any = ZstdCodec(level=1)
    if codec != "zstd":
        name: Any = codec.removeprefix("blosc-")
        packed = BloscCodec(cname=name, clevel=level, shuffle="shuffle", typesize=4)
    store = folder / f"{kind}-{codec}"
    group = zarr.open_group(store, mode="w", zarr_format=3)
    array = group.create_array(
        "f", shape=SHAPE, dtype="f4", chunks=tuple(CHUNKS[kind]), compressors=packed,
        dimension_names=DIMS, shards=(32, 724, 1440) if kind == "S" else None,
    )  # fmt: skip
    array[:] = values
    return store


def places(store: Path, kind: str) -> list[tuple[Path, int, int]]:
    """File, offset and bytes of each chunk, in C order."""
    counts = [-(-n // c) for n, c in zip(SHAPE, CHUNKS[kind], strict=True)]
    numbers = itertools.product(*map(range, counts))
    if kind != "S":
        files = [store / "f" / "c" / "/".join(map(str, at)) for at in numbers]
        return [(file, 0, file.stat().st_size) for file in files]
    shard = store / "f" / "c" / "0" / "0" / "0"
    entries = int(np.prod(counts))
    tail = shard.read_bytes()[-16 * entries - 4 : -4]  # offsets and sizes, then a checksum
    pairs = [struct.unpack_from("<QQ", tail, 16 * at) for at in range(entries)]
    return [(shard, offset, size) for offset, size in pairs]


def order(store: Path, shuffle: str, batches: int) -> list[list[int]]:
    """Where the patches begin, in millhead's order."""
    import millhead

    along = [(n - w) // w + 1 for n, w in zip(SHAPE, WINDOW, strict=True)]
    loader = millhead.Loader(
        str(store), BATCH, fields=["f", "_index"], window=dict(zip(DIMS, WINDOW, strict=True)),
        shuffle=shuffle if shuffle == "blocks" else True, seed=1, memory=MEMORY[shuffle], output="numpy",
        decode=None, limit_batches=batches,
    )  # fmt: skip
    with loader:
        numbers = np.concatenate([batch["_index"] for batch in loader])
    origins = np.stack(np.unravel_index(numbers, along), axis=1) * WINDOW
    return [[int(n) for n in origin] for origin in origins]


def touched(origin: list[int], kind: str) -> list[int]:
    """Numbers of the chunks that a patch reaches into."""
    counts = [-(-n // c) for n, c in zip(SHAPE, CHUNKS[kind], strict=True)]
    spans = [range(o // c, (o + w - 1) // c + 1)
             for o, w, c in zip(origin, WINDOW, CHUNKS[kind], strict=True)]  # fmt: skip
    return [int(np.ravel_multi_index(at, counts)) for at in itertools.product(*spans)]


def work_of(origins: list[list[int]], kind: str, room: int) -> tuple[list[tuple[int, ...]], int]:
    """Decodes and copies in order; a chunk makes room whose next use is farthest (Belady)."""
    needs = [touched(origin, kind) for origin in origins]
    uses: dict[int, list[int]] = {}
    for position in reversed(range(len(needs))):
        for chunk in needs[position]:
            uses.setdefault(chunk, []).append(position)
    steps: list[tuple[int, ...]] = []
    resident: dict[int, int] = {}
    heap: list[tuple[int, int]] = []  # minus the next use, chunk
    decodes = 0
    for position, origin in enumerate(origins):
        for chunk in needs[position]:
            while chunk not in resident and len(resident) >= room:
                key, victim = heapq.heappop(heap)
                if resident.get(victim) == -key and victim not in needs[position]:
                    del resident[victim]  # those of this patch are pushed again below
            if chunk not in resident:
                steps.append((0, chunk, 0, 0))
                decodes += 1
                resident[chunk] = -1
        for chunk in needs[position]:
            uses[chunk].pop()
            resident[chunk] = uses[chunk][-1] if uses[chunk] else (1 << 40) + chunk
            heapq.heappush(heap, (-resident[chunk], chunk))
        steps.append((1, *origin))
    return steps, decodes


class Case:
    """One store, order and number of threads, with what its arms need."""

    def __init__(self, folder: Path, store: Path, name: str, shuffle: str, threads: int) -> None:
        self.name, self.shuffle, self.threads = name, shuffle, threads
        kind = name[0]
        origins = order(store, shuffle, BATCHES[shuffle])
        chunk_bytes = int(np.prod(CHUNKS[kind])) * 4
        steps, self.belady = work_of(
            origins, kind, (MEMORY[shuffle] - 5 * BATCH * 65536) // chunk_bytes
        )
        self.patches = len(origins)
        self.work, self.chunks, self.job = (folder / n for n in ("work", "chunks", "job.json"))
        np.array(steps, np.uint64).tofile(self.work)
        self.chunks.write_text("".join(f"{p} {o} {s}\n" for p, o, s in places(store, kind)))
        self.job.write_text(json.dumps({
            "store": str(store), "dims": DIMS, "shape": SHAPE, "window": WINDOW, "batch": BATCH,
            "shuffle": shuffle if shuffle == "blocks" else True, "threads": threads,
            "memory": MEMORY[shuffle], "origins": origins, "seconds": 1.0,
        }))  # fmt: skip
        self.kernel = [
            str(folder / "limit"), str(self.chunks), str(self.work),
            "blosc" if "blosc" in name else "zstd",
            *map(str, [threads, BATCH, *CHUNKS[kind], *WINDOW, *SHAPE[1:]]),
        ]  # fmt: skip

    def run(self, arm: str) -> dict[str, Any]:
        """Patches per second, CPU seconds of one, decodes where they are known."""
        if arm == "limit":
            seconds, cpu = map(float, output(self.kernel).split())
            return {
                "rate": self.patches / seconds,
                "cpu": cpu / self.patches,
                "decodes": self.belady,
            }
        python = sys.executable if arm in OURS else str(PEERS)
        got = json.loads(output([python, str(HERE / "array_arms.py"), arm, str(self.job)]))
        return {"rate": got["patches"] / got["seconds"], "cpu": got["cpu_s"] / got["patches"],
                "decodes": got["decodes"]}  # fmt: skip

    def rows(self, arms: list[str], rounds: int) -> list[dict[str, Any]]:
        found: dict[str, list[dict[str, Any]]] = {arm: [] for arm in arms}
        for _ in range(rounds):
            for arm in arms:
                found[arm].append(self.run(arm))
        rows = []
        for arm in arms:
            ratios = [
                a["rate"] / b["rate"] for a, b in zip(found[arm], found["limit"], strict=True)
            ]
            ours = [
                b["rate"] / a["rate"] for a, b in zip(found[arm], found["millhead"], strict=True)
            ]
            rows.append({
                "store": self.name, "order": self.shuffle, "threads": self.threads, "arm": arm,
                "rate": statistics.median(f["rate"] for f in found[arm]),
                "to_limit": statistics.median(ratios), "least": min(ratios), "most": max(ratios),
                "millhead_to_it": statistics.median(ours),
                "cpu_ms": statistics.median(f["cpu"] for f in found[arm]) * 1e3,
                "decodes": found[arm][0]["decodes"],
            })  # fmt: skip
        return rows


def output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stores", nargs="+", default=STORES, metavar="KIND:CODEC")
    parser.add_argument("--orders", nargs="+", default=["blocks", "full"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument(
        "--peers", nargs="*", default=["tensorstore", "zarrs", "dataloader", "xbatcher"]
    )
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    rows = []
    print("| store | order | threads | arm | patches/s | of the limit | range | millhead : it "
          "| CPU ms a patch | decodes |\n" + "|---" * 10 + "|")  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="millhead-arrays-") as name:
        folder = Path(name)
        build = ["cc", "-O3", "-march=native", "-pthread", str(HERE / "limits" / "arrays.c")]
        output([*build, "-o", str(folder / "limit"), "-lblosc", "-lzstd"])
        values = cube()
        for store in options.stores:
            made = make_store(folder, store, values)
            for shuffle, threads in itertools.product(options.orders, options.threads):
                case = Case(folder, made, store, shuffle, threads)
                for row in case.rows(OURS + options.peers, options.rounds):
                    rows.append(row)
                    print(f"| {store} | {shuffle} | {threads} | {row['arm']} | {row['rate']:.0f} "
                          f"| {row['to_limit']:.2f} | {row['least']:.2f}-{row['most']:.2f} "
                          f"| {row['millhead_to_it']:.2f} | {row['cpu_ms']:.2f} "
                          f"| {row['decodes'] or ''} |", flush=True)  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps({"machine": machine.description(), "rows": rows}))


if __name__ == "__main__":
    main()
