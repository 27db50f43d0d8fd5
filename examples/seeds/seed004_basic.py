"""Distributed Data Loading Guide, snippet 1: a Dataset of files, and a loader with four workers.

The document's lines: the class and the DataLoader call, as they stand; the import says millhead.torch.
Added: the imports of os and Image, a folder of pictures, and in a subclass the transform and the
labels that __getitem__ uses and the class does not set. The class opens bare file names, so the
folder is the current one; in your own code join folder and name.
"""

import os

import torch
from fingerprint import fingerprint
from millhead.torch import DataLoader, Dataset
from pictures import CLASSES, to_tensor, working_in_a_folder_of_pictures
from PIL import Image


class MyDataset(Dataset):
    def __init__(self, data_path):
        self.data_path = data_path
        self.files = os.listdir(data_path)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, idx):
        # Load at runtime, not in __init__
        image = Image.open(self.files[idx])
        tensor = self.transform(image)
        return tensor, self.labels[idx]


class Pictures(MyDataset):
    def __init__(self, data_path):
        super().__init__(data_path)
        self.files.sort()  # os.listdir() may give another order on another machine
        self.transform = to_tensor
        self.labels = [index % CLASSES for index in range(len(self.files))]


torch.manual_seed(0)
with working_in_a_folder_of_pictures():
    dataset = Pictures(".")

    dataloader = DataLoader(
        dataset,
        batch_size=32,
        num_workers=4,  # Parallel data loading
        shuffle=True,
        pin_memory=True,  # Faster CPU→GPU transfer
    )

    batches = list(dataloader)
print(f"result: batches of {[tuple(images.shape) for images, _ in batches]}")
print(f"result: {fingerprint(batches)}")
