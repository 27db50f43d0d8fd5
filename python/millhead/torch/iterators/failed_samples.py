"""Samples that cannot be loaded: what ``on_error=`` does about them.

A sample whose ``__getitem__`` raises an exception is left out of its batch (``skip``) or stands
aside for another one (``replace``). Positions never shift: the sampler goes on as if nothing had
happened and every batch is delivered, so that all ranks make the same number of steps. A batch of
which nothing is left cannot be delivered; its first exception is raised.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import SubsetRandomSampler

from millhead.torch.workers.position_rng import mix

POLICIES = ("raise", "skip", "replace")

#: Substitutes that are tried for one sample before its own exception is raised.
ATTEMPTS = 8

#: ``fetch(numbers, first, samples)`` appends their samples; the first is number ``first`` of the
#: batch. Where it raises, samples before the one that failed are appended.
Fetch = Callable[[list[Any], int, list[Any]], None]


@dataclass
class Faults:
    """What happened to the samples of one batch that could not be loaded."""

    skipped: int = 0
    replaced: int = 0
    first: str = ""  # the first of them, in words
    at: int = 0  # and which sample of the batch it is
    error: Exception | None = None

    def note(self, number: Any, at: int, error: Exception) -> None:
        """One more sample raised an exception."""
        if self.error is None:
            self.error, self.at = error, at
            self.first = describe(number, error)


def describe(number: Any, error: Exception) -> str:
    """A sample and its exception, in words, whatever the user's classes make of them."""
    try:
        return f"sample index {number!r}: {type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an index or an exception that cannot be shown
        return f"a sample: {type(error).__name__}"


@dataclass
class Tolerance:
    """Fetches samples, and deals with those that raise an exception.

    ``choices`` are the indices that ``replace`` may draw, ``seed`` is the epoch's; the positions of
    a batch's samples are ``stride`` apart.
    """

    policy: str
    choices: Sequence[Any]
    seed: int
    stride: int = 1
    #: Which sample of the batch the exception that was raised belongs to.
    failed: int = 0

    def fetch(
        self, numbers: list[Any], position: int, fetch: Fetch, first: int = 0
    ) -> tuple[list[Any], Faults]:
        """The samples that can be had. ``position``: of the batch's first sample in the epoch;
        ``first``: which sample of the batch ``numbers`` begin with."""
        samples: list[Any] = []
        faults = Faults()
        at = 0
        while at < len(numbers):
            before = len(samples)
            try:
                fetch(numbers[at:], first + at, samples)
                break
            except Exception as error:
                at += len(samples) - before
                self.failed = first + at
                faults.note(numbers[at], self.failed, error)
                if self.policy == "skip":
                    faults.skipped += 1
                elif self._replace(position, fetch, samples):
                    faults.replaced += 1
                else:
                    raise
                at += 1
        return samples, faults

    def fetch_batch(
        self, numbers: list[Any], position: int, fetch: Fetch
    ) -> tuple[list[Any], Faults]:
        """The same for a whole batch. Raises its first exception where nothing is left of it."""
        samples, faults = self.fetch(numbers, position, fetch)
        if faults.error is not None and not samples:
            self.failed = faults.at
            raise faults.error
        return samples, faults

    def _replace(self, position: int, fetch: Fetch, samples: list[Any]) -> bool:
        """Append a substitute for the sample that failed; False where none can be had."""
        for attempt in range(ATTEMPTS if len(self.choices) else 0):
            place = mix(self.seed) ^ (position + self.stride * self.failed)
            substitute = self.choices[mix(mix(place) ^ attempt) % len(self.choices)]
            with contextlib.suppress(Exception):  # then another one
                fetch([substitute], self.failed, samples)
                return True
        return False


def choices_of(loader: Any) -> Sequence[Any]:
    """What a substitute may be: any sample of the dataset, but of a SubsetRandomSampler's subset
    where there is one, so that training draws nothing that was set aside."""
    sampler = loader.sampler
    if loader.batch_sampler is not None:
        sampler = getattr(loader.batch_sampler, "sampler", sampler)
    if isinstance(sampler, SubsetRandomSampler):
        return list(sampler.indices)
    return range(len(loader.dataset)) if hasattr(loader.dataset, "__len__") else ()


def tolerance_of(loader: Any, keeper: Any, seed: int) -> Tolerance | None:
    """What deals with samples that raise an exception; None: they are the caller's to see."""
    if keeper.on_error == "raise":
        return None
    return Tolerance(keeper.on_error, choices_of(loader), seed)
