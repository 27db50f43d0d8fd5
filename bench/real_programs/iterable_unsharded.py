"""A stream that two workers read as a whole each, keeping every second item: half the work is done twice."""

TRUTH = {"causes": ["cpu-bound", "python-bound"], "fix": "get_worker_info", "hot": "json"}

from common import DataLoader, batches, device, settings
from iterable_repeats import Shared

if __name__ == "__main__":
    for _batch in DataLoader(Shared(batches(60) * 16), **settings(batch_size=16, num_workers=2)):
        device(0.004)
