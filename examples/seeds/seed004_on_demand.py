"""Distributed Data Loading Guide, snippet 5: load when asked, not everything at once.

The document's lines: both classes, as they stand; the import says millhead.torch.
Added: a folder of pictures, a load_image() that counts its calls (workers too), a __getitem__ for
the bad class and a __len__ for both, which a loader needs. The good class lists bare file names, so
the folder is the current one.
"""

import multiprocessing
import os

import pictures
from fingerprint import fingerprint
from millhead.torch import DataLoader, Dataset

loaded = multiprocessing.Value("i", 0)


def load_image(name):
    with loaded.get_lock():
        loaded.value += 1
    return pictures.load_image(name)


# Bad: Loads all data into memory
class BadDataset(Dataset):
    def __init__(self, path):
        self.data = [load_image(f) for f in os.listdir(path)]


# Good: Load on demand
class GoodDataset(Dataset):
    def __init__(self, path):
        self.files = os.listdir(path)

    def __getitem__(self, idx):
        return load_image(self.files[idx])


BadDataset.__len__ = lambda self: len(self.data)
BadDataset.__getitem__ = lambda self, idx: self.data[idx]
GoodDataset.__len__ = lambda self: len(self.files)


with pictures.working_in_a_folder_of_pictures():
    for kind in (BadDataset, GoodDataset):
        loaded.value = 0
        dataset = kind(".")
        before = loaded.value
        batches = list(DataLoader(dataset, batch_size=8, num_workers=2))
        print(f"result: {kind.__name__}: {before} loaded at first, {loaded.value} in the end")
        print(f"result: {fingerprint(batches)}")
