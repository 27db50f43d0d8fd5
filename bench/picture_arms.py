"""picture_arms - one way to load JPEG files, for a few seconds: pictures, seconds, CPU seconds as JSON.

    python bench/picture_arms.py ARM DIRECTORY THREADS SECONDS [STEP_SECONDS]

Every arm makes the same of the files of DIRECTORY: a random resized crop of 224 x 224, mirrored at random,
uint8, in batches of 64. bench/images.py runs it, each arm with the Python that has its packages. The first
batches, until a second is over, do not count. With STEP_SECONDS a device is busy for so long after each batch,
which costs no processor time here, and the share of the time that it is busy is found too.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

SIDE, BATCH, WARM_S = 224, 64, 1.0
PIPELINE = f"image: decode | random_resized_crop {SIDE} | flip"


def files(directory: str) -> list[str]:
    return sorted(str(path) for path in Path(directory).rglob("*.JPEG"))


def crop(width: int, height: int) -> tuple[int, int, int, int]:
    """torchvision's RandomResizedCrop: x, y, width, height."""
    low, high = math.log(3 / 4), math.log(4 / 3)
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(low, high))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


# --- the arms


def millhead_exact(directory: str, threads: int, profile: str = "exact") -> Iterator[Any]:
    import millhead

    loader = millhead.Loader(
        directory, BATCH, pipeline=PIPELINE, profile=profile, shuffle=True, threads=threads,
        drop_last=True,
    )  # fmt: skip
    while True:
        yield from (batch["image"] for batch in loader)


def millhead_fast(directory: str, threads: int) -> Iterator[Any]:
    return millhead_exact(directory, threads, "fast")


def _torch(directory: str, workers: int, load: Callable[[str], Any]) -> Iterator[Any]:
    import torch

    torch.set_num_threads(1)
    pictures = _pictures(directory, load)
    return iter(torch.utils.data.DataLoader(pictures, BATCH, shuffle=True, num_workers=workers))


def _pictures(directory: str, load: Callable[[str], Any]) -> Any:
    import torch

    class Pictures(torch.utils.data.Dataset[Any]):
        def __init__(self) -> None:
            self.files = files(directory)

        def __len__(self) -> int:
            return len(self.files) * 100  # so that epochs do not end

        def __getitem__(self, number: int) -> Any:
            return torch.from_numpy(load(self.files[number % len(self.files)]))

    return Pictures()


def load_with_pillow(path: str) -> Any:
    import numpy as np
    from PIL import Image

    image = Image.open(path).convert("RGB")
    x, y, width, height = crop(*image.size)
    image = image.crop((x, y, x + width, y + height))
    image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.array(image)


def torch_pillow(directory: str, workers: int) -> Iterator[Any]:
    return _torch(directory, workers, load_with_pillow)


def dropin_pillow(directory: str, workers: int) -> Iterator[Any]:
    import millhead.torch

    pictures = _pictures(directory, load_with_pillow)
    return iter(millhead.torch.DataLoader(pictures, BATCH, shuffle=True, num_workers=workers))


def dropin_open(directory: str, workers: int) -> Iterator[Any]:
    import millhead.torch
    import torch

    pictures: Any = millhead.open(directory, pipeline=PIPELINE, fields=["image"])
    order = torch.utils.data.RandomSampler(
        pictures, replacement=True, num_samples=100 * len(pictures)
    )
    loader: Any = millhead.torch.DataLoader(pictures, BATCH, sampler=order, num_workers=workers)
    return (batch["image"] for batch in loader)


def torch_opencv(directory: str, workers: int) -> Iterator[Any]:
    import cv2
    import numpy as np

    cv2.setNumThreads(0)

    def load(path: str) -> Any:
        image: Any = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR_RGB)
        x, y, width, height = crop(image.shape[1], image.shape[0])
        image = cv2.resize(image[y : y + height, x : x + width], (SIDE, SIDE))
        return np.ascontiguousarray(image[:, ::-1]) if random.random() < 0.5 else image

    return _torch(directory, workers, load)


def tf_antialias(directory: str, threads: int) -> Iterator[Any]:
    return tf_data(directory, threads, antialias=True)


def tf_data(directory: str, threads: int, antialias: bool = False) -> Iterator[Any]:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf  # type: ignore[import-untyped,import-not-found,unused-ignore]

    def load(path: Any) -> Any:
        content = tf.io.read_file(path)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.image.extract_jpeg_shape(content),
            bounding_boxes=tf.constant([0.0, 0.0, 1.0, 1.0], shape=[1, 1, 4]),
            min_object_covered=0.0, aspect_ratio_range=(3 / 4, 4 / 3), area_range=(0.08, 1.0),
            max_attempts=10, use_image_if_no_bounding_boxes=True,
        )  # fmt: skip
        window = tf.stack([begin[0], begin[1], size[0], size[1]])
        image = tf.image.decode_and_crop_jpeg(
            content, window, channels=3, dct_method="INTEGER_ACCURATE"
        )
        image = tf.image.resize(image, (SIDE, SIDE), antialias=antialias)
        image = tf.image.random_flip_left_right(image)
        return tf.cast(image, tf.uint8)

    tf.config.threading.set_inter_op_parallelism_threads(threads)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    options.autotune.enabled = False
    data = tf.data.Dataset.from_tensor_slices(files(directory)).shuffle(2000).repeat()
    data = data.map(load, num_parallel_calls=threads, deterministic=False)
    return iter(data.batch(BATCH).prefetch(2).with_options(options))


def dali(directory: str, threads: int) -> Iterator[Any]:
    from nvidia.dali import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        fn,
        pipeline_def,
        types,
    )

    @pipeline_def(batch_size=BATCH, num_threads=threads, device_id=None, prefetch_queue_depth=2)  # type: ignore[untyped-decorator]
    def pictures() -> Any:
        content, _ = fn.readers.file(files=files(directory), random_shuffle=True, initial_fill=256)
        image = fn.decoders.image_random_crop(
            content, output_type=types.RGB, random_area=[0.08, 1.0],
            random_aspect_ratio=[3 / 4, 4 / 3], num_attempts=10,
        )  # fmt: skip
        image = fn.resize(image, size=[SIDE, SIDE], interp_type=types.INTERP_LINEAR, antialias=True)
        return fn.flip(image, horizontal=fn.random.coin_flip())

    pipeline = pictures()
    pipeline.build()
    while True:
        yield pipeline.run()[0].as_array()


ARMS: dict[str, Callable[[str, int], Iterator[Any]]] = {
    arm.__name__: arm
    for arm in (
        millhead_exact,
        millhead_fast,
        torch_pillow,
        torch_opencv,
        tf_data,
        tf_antialias,
        dali,
        dropin_open,
        dropin_pillow,
    )
}


# --- measuring


def family(pid: int) -> Iterator[int]:
    """The process and those it started."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from family(int(child))


def cpu_s() -> float:
    """Of this process and all it started."""
    ticks = 0
    for pid in family(os.getpid()):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(int(number) for number in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(
    batches: Iterable[Any], seconds: float, count: Callable[[Any], int], step_s: float = 0
) -> dict[str, float]:
    """Samples between the arrivals of two batches, after a second of warming up."""
    iterator = iter(batches)
    count(next(iterator))
    began = time.monotonic()
    while time.monotonic() - began < WARM_S:
        next(iterator)
        time.sleep(step_s)
    began, cpu, samples, busy = time.monotonic(), cpu_s(), 0, 0.0
    while (now := time.monotonic()) - began < seconds:
        samples += count(next(iterator))
        if step_s:
            began_step = time.monotonic()
            time.sleep(step_s)
            busy += time.monotonic() - began_step
    return {
        "samples": samples,
        "seconds": now - began,
        "cpu_s": cpu_s() - cpu,
        "busy": busy / (now - began),
    }


def count_pictures(batch: Any) -> int:
    if tuple(batch.shape) != (BATCH, SIDE, SIDE, 3) or "uint8" not in str(batch.dtype):
        raise SystemExit(f"a batch of {tuple(batch.shape)}, {batch.dtype}")
    return BATCH


def main() -> None:
    name, directory, threads, seconds = sys.argv[1:5]
    step_s = float(sys.argv[5]) if len(sys.argv) > 5 else 0
    batches = ARMS[name](directory, int(threads))
    print(json.dumps(measure(batches, float(seconds), count_pictures, step_s)), flush=True)
    os._exit(0)  # some peers' threads never end


if __name__ == "__main__":
    main()
