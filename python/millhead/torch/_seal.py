"""Whether a saved position is as it was saved.

A number that a failing disk or an editor changed mostly makes another position, as good as any: the
run would go on with other data and nobody would know.
"""

from __future__ import annotations

import zlib
from typing import Any

#: Not among them: the counts and the flag that Accelerate adjusts, what the user's hooks gave, and
#: the states of generators, which have check sums of their own.
_KEYS = (
    "epoch",
    "_steps_since_snapshot",
    "cut",
    "sampler_ended",
    "samples",
    "length",
    "batch_size",
    "base_seed",
    "workers",
    "next_worker",
    "persists",
    "again",
    "at_end",
    "ahead",
    "ended",
)
_WORKER_KEYS = ("renew", "cut", "skip")
#: What the state of millhead's own DistributedSampler has: numbers and names, so all of it counts.
_SAMPLER_KEYS = frozenset(("version", "epoch", "position", "length", "shuffle", "seed", "order"))
#: Of these, only whether there were any.
_HOOK_KEYS = ("dataset", "iterator", "generators", "began")


def _sum(state: dict[str, Any]) -> int:
    values = [state.get(key) for key in _KEYS]
    for entry in state["worker_states"]:
        values += [entry.get(key) for key in _WORKER_KEYS]
        values += [entry.get(key) is None for key in _HOOK_KEYS]
    sampler = state["_index_sampler_state"]
    if isinstance(sampler, dict) and sampler.keys() >= _SAMPLER_KEYS:
        values += [sampler[key] for key in sorted(_SAMPLER_KEYS)]
    values.append(sampler is None)
    # Batches that raised an exception: the adjusted counts keep their distance.
    values.append(state["_sampler_iter_yielded"] - state["_num_yielded"])
    return zlib.crc32(repr(values).encode())


def seal(state: dict[str, Any]) -> dict[str, Any]:
    """The state, with a check sum."""
    state["check"] = _sum(state)
    return state


def is_intact(state: dict[str, Any]) -> bool:
    """Whether it fits its check sum, where it has one."""
    return "check" not in state or state["check"] == _sum(state)
