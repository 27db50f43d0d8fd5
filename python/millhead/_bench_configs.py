"""The configurations of a benchmark: read from a file and checked key by key, or the standard plan."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millhead._options import read_text

#: A configuration's name is a directory's name too.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
#: How a repeat's or a cold run's directory ends; see _bench_matrix.
_RESERVED = re.compile(r"\.(r[0-9]+|cold|failed)$")

LOADERS = ("millhead", "torch")


class Wrong(Exception):
    """What the user gave cannot be used: one line ``WHAT (WHERE): WHAT TO DO``."""


@dataclass(frozen=True)
class Config:
    """One line of the table: a name, and the mapping exactly as it was given."""

    name: str
    given: dict[str, Any]
    loader: str

    @property
    def arguments(self) -> dict[str, Any]:
        """What its DataLoader is given."""
        return {key: value for key, value in self.given.items() if key not in ("name", "loader")}

    @property
    def workers(self) -> int:
        """Its worker processes."""
        return int(self.given.get("num_workers", 0))

    @property
    def batch_size(self) -> int | None:
        """Its samples per batch; None: single samples."""
        size: int | None = self.given.get("batch_size", 1)
        return size


# ---- what each key may hold ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Kind:
    must_be: str
    fits: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    """Whether it is one: true and false are whole numbers to Python, and to nobody else."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _whole(least: int) -> _Kind:
    def fits(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    return _Kind(f"a whole number of {least} or more", fits)


def _one_of(*choices: str) -> _Kind:
    return _Kind(f"one of {', '.join(choices)}", lambda value: value in choices)


def _or_null(kind: _Kind) -> _Kind:
    return _Kind(f"{kind.must_be}, or null", lambda value: value is None or kind.fits(value))


_FLAG = _Kind("true or false", lambda value: isinstance(value, bool))
_SECONDS = _Kind("a number of seconds", lambda value: _is_number(value) and value >= 0)
_TEXT = _Kind("a text", lambda value: isinstance(value, str))
_OBJECT = _Kind("MODULE:NAME", lambda value: isinstance(value, str) and ":" in value)
_BYTES = _Kind("bytes or like '2GB'", lambda value: isinstance(value, str) or _whole(1).fits(value))
_LIMIT = _Kind(
    "bytes, like '4GB', a fraction or 'auto'",
    lambda value: isinstance(value, str) or (_is_number(value) and value >= 0),
)
_GENERATORS = _Kind(
    "a list of random, numpy, torch",
    lambda value: isinstance(value, list) and set(value) <= {"random", "numpy", "torch"},
)

#: torch's arguments. What is no data (sampler, generator) belongs into TARGET.
_TORCHS = {
    "batch_size": _or_null(_whole(1)),
    "shuffle": _or_null(_FLAG),
    "num_workers": _whole(0),
    "collate_fn": _OBJECT,
    "pin_memory": _FLAG,
    "drop_last": _FLAG,
    "timeout": _SECONDS,
    "worker_init_fn": _OBJECT,
    "multiprocessing_context": _or_null(_one_of("fork", "spawn", "forkserver")),
    "prefetch_factor": _or_null(_whole(1)),
    "persistent_workers": _FLAG,
    "pin_memory_device": _TEXT,
    "in_order": _FLAG,
}
#: Those that millhead's loader adds.
_OURS = {
    "dispatch": _one_of("batch", "sample"),
    "rng": _GENERATORS,
    "memory": _or_null(_BYTES),
    "worker_threads": _or_null(_whole(1)),
    "worker_memory": _or_null(_LIMIT),
    "snapshot_every_n_steps": _whole(1),
    "snapshot_rng": _FLAG,
    "prefetch_epoch": _FLAG,
    "on_error": _one_of("raise", "skip", "replace"),
    "accumulate": _whole(1),
}
_KINDS = {"name": _TEXT, "loader": _one_of(*LOADERS), **_TORCHS, **_OURS}
_NOT_HERE = {
    "dataset": "it is TARGET",
    "sampler": "an object cannot be written here; let TARGET bring its order",
    "batch_sampler": "an object cannot be written here; let TARGET bring its order",
    "generator": "every run is seeded alike",
    "limit_batches": "give --limit-batches, which holds for all of them",
}


def _as_written(value: Any) -> str:
    """A value as YAML or JSON has it, for messages."""
    return json.dumps(value, default=str)


def check(given: Any, place: str, loader: str) -> Config:
    """One entry of ``configs:``; raises Wrong, naming the key."""
    if not isinstance(given, dict):
        raise Wrong(f"an entry is {_as_written(given)} ({place}): write a mapping with a name")
    for key, value in given.items():
        _check_key(key, value, place)
    name = given.get("name")
    if name is None:
        raise Wrong(f"an entry has no name ({place}): add name: to {_as_written(given)}")
    if not _NAME.fullmatch(name) or _RESERVED.search(name):
        raise Wrong(
            f"name is {_as_written(name)} ({place}): use letters, digits, '-' and '_'; it names a "
            "directory"
        )
    loader = given.get("loader", loader)
    for key in given:
        if loader == "torch" and key in _OURS:
            raise Wrong(
                f"{key} is an argument of millhead's loader ({place}, {name}): leave it out, or "
                "add loader: millhead"
            )
    return Config(name, given, loader)


def _check_key(key: Any, value: Any, place: str) -> None:
    if key in _NOT_HERE:
        raise Wrong(f"{key} cannot be set ({place}): {_NOT_HERE[key]}")
    if key not in _KINDS:
        near = difflib.get_close_matches(str(key), _KINDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(_KINDS)}"
        raise Wrong(f"unknown key {key} ({place}): {hint}")
    kind = _KINDS[key]
    if not kind.fits(value):
        raise Wrong(f"{key} is {_as_written(value)}, must be {kind.must_be} ({place}): change it")


# ---- from a file ---------------------------------------------------------------------------------


def read(path: Path, loader: str) -> list[Config]:
    """The configurations of a YAML (or JSON) file; raises Wrong."""
    try:
        text = read_text(path)
    except UnicodeDecodeError:
        raise Wrong(f"not a text file ({path}): give a YAML file with configs:") from None
    except OSError as error:
        raise Wrong(f"{error.strerror} ({path}): give a YAML file with configs:") from None
    document = json_or_yaml(text, path)
    if not isinstance(document, dict) or not isinstance(document.get("configs"), list):
        raise Wrong(f"no list 'configs:' ({path}): write configs: and a '- name: …' per entry")
    for key in document:
        if key != "configs":
            raise Wrong(f"unknown key {key} ({path}): only configs: is known at the top")
    return unique([check(entry, str(path), loader) for entry in document["configs"]], str(path))


def json_or_yaml(text: str, path: Path) -> Any:
    """What a file holds; raises Wrong."""
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except ValueError as error:
            raise Wrong(f"not JSON: {error} ({path}): correct it") from None
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise Wrong(
            f"no package yaml to read it ({path}): pip install pyyaml, or write it as JSON in a "
            "file called *.json"
        ) from None
    try:
        _refuse_twice(yaml.compose(text, Loader=yaml.SafeLoader), path)
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise Wrong(f"not YAML: {' '.join(str(error).split())} ({path}): correct it") from None


def _refuse_twice(node: Any, path: Path) -> None:
    """Refuse a key that a mapping has twice: YAML would take the last without a word."""
    seen: set[str] = set()
    for child in getattr(node, "value", None) or []:
        if not isinstance(child, tuple):
            if not isinstance(child, str):
                _refuse_twice(child, path)
            continue
        key, value = child
        if str(key.value) in seen:
            line = key.start_mark.line + 1
            raise Wrong(f"{key.value} is given twice ({path}, line {line}): leave one out")
        seen.add(str(key.value))
        _refuse_twice(value, path)


def unique(configs: list[Config], place: str) -> list[Config]:
    """The same list, when it is one to work with; raises Wrong."""
    if not configs:
        raise Wrong(f"configs: is empty ({place}): add '- name: …' entries")
    names = [config.name for config in configs]
    for name in names:
        if names.count(name) > 1:
            raise Wrong(f"two configurations are called {name} ({place}): rename one")
    return configs


# ---- the standard plan ---------------------------------------------------------------------------


def standard(
    cpus: int, workers: int, batch_size: int, *, pin: bool = False, streams: bool = False
) -> list[Config]:
    """What to try on a machine where ``workers`` is the sensible number.

    ``pin``: it has an accelerator. ``streams``: the dataset reads through a library with threads of
    its own (dask, zarr): then threads and workers are traded against each other as well.
    """
    half, more = max(1, workers // 2), workers + max(1, workers // 2)
    lasting: dict[str, Any] = {"persistent_workers": True, **({"pin_memory": True} if pin else {})}
    default = {"num_workers": workers, **lasting}
    plan: dict[str, dict[str, Any]] = {
        "baseline": {"loader": "torch", "num_workers": 0},
        "default": default,
        "default-torch": {"loader": "torch", **default},
        "no-workers": {"num_workers": 0},
        "fewer-workers": {**default, "num_workers": half},
        "more-workers": {**default, "num_workers": more},
        "oversubscribed": {**default, "num_workers": 2 * cpus},
        "oversubscribed-more": {**default, "num_workers": 4 * cpus},
        "prefetch-1": {**default, "prefetch_factor": 1},
        "prefetch-4": {**default, "prefetch_factor": 4},
        "half-batch": {**default, "batch_size": max(1, batch_size // 2)},
        "double-batch": {**default, "batch_size": 2 * batch_size},
        "spawn": {**default, "multiprocessing_context": "spawn"},
        "by-sample": {**default, "dispatch": "sample"},
    }
    if streams:
        threads = max(2, cpus // 2)
        plan["streaming"] = {**default, "worker_threads": threads}
        plan["more-streaming"] = {**default, "num_workers": half, "worker_threads": 2 * threads}
        plan["less-streaming"] = {**default, "num_workers": more, "worker_threads": 2}
    entries: list[dict[str, Any]] = []
    configs = []
    for name, arguments in plan.items():
        entry = {"loader": "millhead", "batch_size": batch_size, **arguments}
        if entry not in entries:  # with few CPUs some are the same
            entries.append(entry)
            configs.append(Config(name, {"name": name, **entry}, entry["loader"]))
    return configs
