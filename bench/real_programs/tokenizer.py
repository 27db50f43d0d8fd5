"""Texts tokenized in one worker, while other CPUs are idle."""

TRUTH = {"causes": ["cpu-bound", "python-bound"], "gains": True}

import os
import random

import torch
from common import DataLoader, batches, device, settings
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import Dataset

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
BATCH = 8


def texts(count: int, words: int) -> list[str]:
    """Words that are alike, as those of a language are."""
    rng = random.Random(0)
    known = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 10))) for _ in range(4000)]
    return [" ".join(rng.choices(known, k=words)) for _ in range(count)]


class Tokens(Dataset):
    def __init__(self, length: int) -> None:
        self.texts = texts(64, 4000)
        self.length = length
        self.tokenizer = Tokenizer(models.BPE())
        self.tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        self.tokenizer.train_from_iterator(self.texts[:4], trainers.BpeTrainer(vocab_size=2000))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        ids = self.tokenizer.encode(self.texts[index % 64]).ids
        return torch.tensor(ids[:2048])


if __name__ == "__main__":
    loader = DataLoader(Tokens(batches(50) * BATCH), **settings(batch_size=BATCH, num_workers=1))
    for _batch in loader:
        device(0.02)
