"""How far a loader's sampler is, and how it goes on from a saved position."""

from __future__ import annotations

import itertools
from collections import deque
from types import WrapperDescriptorType
from typing import Any, NamedTuple

from torch.utils.data import BatchSampler

from millhead.torch.iterators.fetch import length
from millhead.torch.resume.restore import has_hooks, state_of
from millhead.torch.resume.saved_position import SavedPosition, require


def sampler_with_hooks(index_sampler: Any) -> Any:
    """What yields the indices and can save its own state: the sampler that was asked for, or the
    one that torch's BatchSampler asks. None where neither can."""
    if has_hooks(index_sampler):
        return index_sampler
    if type(index_sampler) is BatchSampler and has_hooks(index_sampler.sampler):
        return index_sampler.sampler
    return None


def has_plain_length(sampler: Any) -> bool:
    """Whether asking for its length runs no code of the user's. Theirs may draw its batches to count
    them, and torch's iterators never ask: the stream would not be torch's any more."""
    count = getattr(type(sampler), "__len__", None)
    if isinstance(count, WrapperDescriptorType):
        return True  # of a list, a range, an array
    module = getattr(count, "__module__", None) or ""
    if module.partition(".")[0] not in ("torch", "millhead"):
        return False
    return not isinstance(sampler, BatchSampler) or has_plain_length(sampler.sampler)


class _After(NamedTuple):
    """A sampler after one of its batches."""

    state: Any  # of its hooks; None where it can compute that later
    samples: int = 0  # that it gave in the epoch
    ended: bool = False  # it had no more


class SamplerProgress:
    """The sampler of an epoch: after the last batch consumed, and after each one asked for."""

    def __init__(self, index_sampler: Any) -> None:
        self.index_sampler = index_sampler
        self.hooked = sampler_with_hooks(index_sampler)
        #: It can compute its state after any number of samples: millhead's own do.
        self.counted = hasattr(self.hooked, "state_at")
        self._consumed = _After(None if self.counted else state_of(self.hooked))
        self._given = 0
        #: After each batch that was asked for and not consumed.
        self._ahead: deque[_After] = deque()
        #: The state that ``state_at`` counts from; None: not asked for anything yet.
        self._began: Any = None

    def to_dict(self) -> dict[str, Any]:
        """For the loader's state."""
        state = self._consumed.state
        if self.counted and self._began is not None:
            state = self.hooked.state_at(self._consumed.samples, since=self._began)
        return {
            "_index_sampler_state": state,
            "sampler_ended": self._consumed.ended,
            "samples": 0 if self.counted else self._consumed.samples,
        }

    def position(self) -> int:
        """Samples that all ranks together had consumed when the sampler began to share out the
        rest; 0 where it gives a rank's whole share."""
        return int(self._began["position"]) if self.counted and self._began else 0

    def asked(self, samples: int) -> None:
        """The sampler gave a batch: remember what it would go on from after it."""
        self._given += samples
        if self.counted and self._began is None:
            self._began = self.hooked.state_dict()
        if self.hooked is not None:
            self._ahead.append(self._after(samples))

    def consumed(self) -> None:
        """The first of the batches asked for was consumed."""
        if self._ahead:
            self._consumed = self._ahead.popleft()

    def _after(self, samples: int) -> _After:
        """The sampler with hooks, which just gave a batch. Of torch's batches only the last can be a
        short one: then its sampler had no more."""
        if self.counted:
            return _After(None, self._given)
        index_sampler = self.index_sampler
        short = type(index_sampler) is BatchSampler and samples < index_sampler.batch_size
        return _After(self.hooked.state_dict(), self._given, short)

    # --- going on from a position ---

    def load(self, resume: SavedPosition) -> None:
        """Be where the position says; the sampler itself follows in :meth:`skip_consumed`."""
        if self.counted:
            self._began = resume.sampler
        elif resume.sampler is not None:
            self._consumed = _After(resume.sampler, resume.samples, resume.sampler_ended)
            self._given = resume.samples

    def skip_consumed(self, resume: SavedPosition, indices: Any) -> tuple[Any, int]:
        """The iterator over indices beyond the batches consumed, and the samples it passed over."""
        if resume.sampler is not None and self.hooked is not None:
            found = self._open(resume)
            self._draw_again(found, resume.sampler_behind)
            return found, 0 if self.counted else self._consumed.samples
        lengths = self._draw_again(indices, resume.consumed)
        require(
            len(lengths) == resume.consumed,
            f"the sampler ended after {len(lengths)} of the {resume.consumed} batches that were "
            "consumed: it is not the one the state was made with",
        )
        return indices, sum(lengths)

    def _open(self, resume: SavedPosition) -> Any:
        """As for datasets: what was saved at the beginning of an epoch may be the end of another."""
        self.hooked.load_state_dict(resume.sampler)
        found = iter(self.index_sampler)
        ended = resume.sampler_ended
        if resume.consumed - resume.sampler_behind and not ended:
            if resume.cut:
                next(found, None)
            return found
        nothing = object()
        if next(found, nothing) is not nothing and not resume.cut:
            self.hooked.load_state_dict(resume.sampler)
        return iter(() if ended else self.index_sampler)

    def _draw_again(self, indices: Any, batches: int) -> list[int]:
        """Pass over batches that were consumed after the sampler's state was taken; their lengths."""
        lengths = [length(index) for index in itertools.islice(indices, batches)]
        if lengths and self.hooked is not None:
            if self.counted:
                self._began, self._given = self.hooked.state_dict(), 0
            self._given += sum(lengths)
            self._consumed = self._after(lengths[-1])
        return lengths
