"""file_arms - one way to read many small files, for a few seconds: files, seconds, CPU seconds as JSON.

    python bench/file_arms.py ARM DIRECTORY THREADS SECONDS

Every arm hands out the bytes of the files below DIRECTORY in random order, in batches of 256. bench/images.py runs
it, each arm with the Python that has its packages.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from picture_arms import measure

BATCH = 256


def files(directory: str) -> list[str]:
    return sorted(str(path) for path in Path(directory).rglob("*.bin"))


def millhead_files(directory: str, threads: int) -> Iterator[int]:
    import millhead

    loader = millhead.Loader(
        directory,
        BATCH,
        fields=["bytes"],
        shuffle=True,
        threads=threads,
        drop_last=True,
        memory="64MB",  # so that files are read in every epoch
    )
    while True:
        yield from (len(batch["bytes"]) for batch in loader)


def torch_files(directory: str, workers: int) -> Iterator[int]:
    import torch

    class Files(torch.utils.data.Dataset[bytes]):
        def __init__(self) -> None:
            self.names = files(directory)

        def __len__(self) -> int:
            return len(self.names)

        def __getitem__(self, number: int) -> bytes:
            with open(self.names[number], "rb", buffering=0) as file:
                return file.read()

    loader = torch.utils.data.DataLoader(
        Files(), BATCH, shuffle=True, num_workers=workers, collate_fn=list,
        persistent_workers=True, drop_last=True,
    )  # fmt: skip
    while True:
        yield from map(len, loader)


def tf_files(directory: str, threads: int) -> Iterator[int]:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf  # type: ignore[import-untyped,import-not-found,unused-ignore]

    tf.config.threading.set_inter_op_parallelism_threads(threads)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.autotune.enabled = False
    names = files(directory)
    data = tf.data.Dataset.from_tensor_slices(names).shuffle(len(names)).repeat()
    data = data.map(tf.io.read_file, num_parallel_calls=threads, deterministic=False)
    return (int(batch.shape[0]) for batch in data.batch(BATCH).prefetch(2).with_options(options))


def dali_files(directory: str, threads: int) -> Iterator[int]:
    from nvidia.dali import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        fn,
        pipeline_def,
    )

    @pipeline_def(batch_size=BATCH, num_threads=threads, device_id=None, prefetch_queue_depth=2)  # type: ignore[untyped-decorator]
    def contents() -> Any:
        return fn.readers.file(files=files(directory), random_shuffle=True, initial_fill=1024)[0]

    pipeline = contents()
    pipeline.build()
    while True:
        yield len(pipeline.run()[0])


ARMS: dict[str, Callable[[str, int], Iterator[int]]] = {
    arm.__name__: arm for arm in (millhead_files, torch_files, tf_files, dali_files)
}


def main() -> None:
    name, directory, threads, seconds = sys.argv[1:5]
    found = measure(ARMS[name](directory, int(threads)), float(seconds), lambda count: count)
    print(json.dumps(found), flush=True)
    os._exit(0)  # some peers' threads never end


if __name__ == "__main__":
    main()
