"""The native loader with one thread, which decodes pictures for a loop that could use more."""

TRUTH = {"causes": ["cpu-bound"], "fix": "threads=2", "gains": True, "loaders": ["torch"]}

import millhead
from common import batches, device, scratch, settings
from pillow_jpeg import make_files

PIPELINE = "decode | resize 224x224"

if __name__ == "__main__":
    make_files()
    folder = scratch() / "pictures"
    folder.mkdir(exist_ok=True)
    for at in range(64):
        link = folder / f"photo-{at}.jpg"
        if not link.exists():
            link.symlink_to(scratch() / f"photo-{at}.jpg")
    own = settings(batch_size=8, threads=1)
    own.pop("prefetch_factor", None)
    loader = millhead.Loader(str(folder), pipeline=PIPELINE, **own)
    for _epoch in range(batches(12)):
        for _batch in loader:
            device(0.012)
