"""Finds random generators of the user's that the system seeded in a template.

``rng = np.random.default_rng()`` in a module, or where a dataset is unpickled, draws other numbers in
every new process. Forks of one process would all draw the same. A generator that came in the pickle
is the same everywhere, with torch too.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pickle
import random
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from typing import Any

#: What is looked at: attributes of attributes, the first entries of containers, so many things.
_DEPTH = 6
_ENTRIES = 64
_MOST = 10_000

#: The system seeds numpy's generators with 128 bits; a number that people write is smaller.
_WRITTEN = 2**64

Named = tuple[str, Any]


def seeded_by_system(roots: dict[str, Any], pickled: Callable[[bytes], bool]) -> str | None:
    """The name of a generator, within the roots or in a module of the user's, whose numbers should
    be others in every process; None: there is none.

    ``pickled(bytes)`` tells whether bytes occur in the pickle that the roots came from.
    """
    theirs = {getattr(root, "__module__", None) for root in roots.values()}
    seen: set[int] = set()
    for name, thing in itertools.chain(roots.items(), _globals_of_users(theirs)):
        for found, generator in _generators(name, thing, seen):
            if not any(pickled(mark) for mark in _marks(generator)):
                return found
    return None


def _globals_of_users(theirs: set[str | None]) -> Iterator[Named]:
    """What modules hold that are the roots' own, or neither Python's nor installed."""
    for module_name in list(sys.modules):
        if module_name in theirs or _is_users(module_name):
            with contextlib.suppress(TypeError):  # what stands there need not be a module
                for name, thing in list(vars(sys.modules[module_name]).items()):
                    yield f"{module_name}.{name}", thing


@functools.cache
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple({paths[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")})


@functools.cache
def _is_users(module_name: str) -> bool:
    file = getattr(getattr(sys.modules.get(module_name), "__spec__", None), "origin", None)
    if module_name == "__mp_main__":  # the training script
        return True
    if not isinstance(file, str) or file.startswith(_installed()) or not os.path.isabs(file):
        return False
    return "/site-packages/" not in file and "/dist-packages/" not in file


def _generators(name: str, thing: Any, seen: set[int]) -> Iterator[Named]:
    """The generators in a thing that the system may have seeded."""
    ahead = [(name, thing, 0)]
    while ahead and len(seen) < _MOST:
        name, thing, depth = ahead.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        with contextlib.suppress(Exception):  # the user's attributes may do anything
            if list(_marks(thing)):
                yield name, thing
            elif depth < _DEPTH:
                ahead += [(part, value, depth + 1) for part, value in _parts(name, thing)]


def _parts(name: str, thing: Any) -> Iterator[Named]:
    if isinstance(thing, dict):
        for key, value in itertools.islice(thing.items(), _ENTRIES):
            yield f"{name}[{key!r:.40}]", value
    elif isinstance(thing, (list, tuple)):
        for number, value in enumerate(thing[:_ENTRIES]):
            yield f"{name}[{number}]", value
    elif isinstance(thing, functools.partial):
        yield from ((name, part) for part in (thing.func, thing.args, thing.keywords))
    elif isinstance(thing, types.MethodType):
        yield name, thing.__self__
    elif isinstance(thing, type) and not _is_users(thing.__module__):
        return
    elif not isinstance(thing, (types.FunctionType, types.ModuleType)):
        for part, value in list(vars(thing).items()):
            yield f"{name}.{part}", value


def _marks(thing: Any) -> Iterator[bytes]:
    """Bytes that a pickle of the generator would hold; none where the system did not seed it."""
    kind = type(thing)
    if issubclass(kind, random.Random):
        if thing is not random._inst and not issubclass(kind, random.SystemRandom):
            # Whether a number seeded it cannot be told.
            words = thing.getstate()[1][:6]
            yield b"".join(pickle.dumps(word, 2)[2:-1] for word in words)
        return
    numpy = sys.modules.get("numpy.random")
    if numpy is None or thing is numpy.mtrand._rand:
        return
    if issubclass(kind, numpy.RandomState):
        thing = thing._bit_generator
    elif issubclass(kind, numpy.Generator):
        thing = thing.bit_generator
    if issubclass(type(thing), numpy.BitGenerator):
        seed = getattr(thing, "seed_seq", None) or getattr(thing, "_seed_seq", None)
        drawn = getattr(seed, "entropy", None)
        if isinstance(drawn, int) and drawn >= _WRITTEN:
            yield drawn.to_bytes(-(-drawn.bit_length() // 8), "little")
