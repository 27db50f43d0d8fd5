"""A stream that every worker reads as a whole: more workers repeat the work."""

TRUTH = {"causes": ["cpu-bound", "python-bound"], "most_promised": 1.2, "hot": "json"}

from common import DataLoader, batches, device, settings
from gzip_lines import Lines
from torch.utils.data import get_worker_info


class Shared(Lines):
    def __iter__(self):
        info = get_worker_info()
        for at, row in enumerate(super().__iter__()):
            if info is None or at % info.num_workers == info.id:
                yield row


if __name__ == "__main__":
    for _batch in DataLoader(Shared(batches(60) * 16), **settings(batch_size=16, num_workers=1)):
        device(0.004)
