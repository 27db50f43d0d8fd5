"""Configurations of a loader: read from a file and checked key by key, or the standard plan.

And the user's objects that they and the command line name, as ``module:name`` or ``file.py:name``.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import json
import math
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from millhead._command_line import UsageError, did_you_mean, modules_here, names_beside, read_text

#: A configuration's name is a directory's name too.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
#: How a repeat's or a cold run's directory ends.
_RESERVED = re.compile(r"\.(r[0-9]+|cold|failed)$")

LOADERS = ("millhead", "torch")


@dataclass(frozen=True)
class Config:
    """One line of the table: a name, and the mapping exactly as it was given."""

    name: str
    given: dict[str, Any]
    loader: str

    def arguments(self) -> dict[str, Any]:
        """What its DataLoader is given, with functions looked up; raises UsageError."""
        arguments = {
            key: value for key, value in self.given.items() if key not in ("name", "loader")
        }
        for key in ("collate_fn", "worker_init_fn"):
            if key in arguments:
                arguments[key] = find_object(arguments[key], key)
        return arguments

    @property
    def workers(self) -> int:
        """Its worker processes."""
        return int(self.given.get("num_workers", 0))

    @property
    def other_numbers(self) -> bool:
        """Whether its samples come in another order, or draw other random numbers."""
        return self.given.get("dispatch") == "sample" or self.given.get("in_order") is False

    @property
    def settings(self) -> int:
        """How many there are: fewer are plainer."""
        return len(self.given.keys() - {"name", "loader"})

    @property
    def batch_size(self) -> int | None:
        """Its samples per batch; None: single samples."""
        size: int | None = self.given.get("batch_size", 1)
        return size


def find_object(text: str, what: str) -> Any:
    """The object called ``text``; raises UsageError when there is none.

    Modules of the working directory are found too. What importing them raises is theirs: it is
    passed on, except that a module of that very name is not there.
    """
    module, _, name = text.rpartition(":")
    if not module or not name:
        raise UsageError(
            f"'{text}' does not say which object ({what}): write MODULE:NAME or FILE.py:NAME"
        )
    directory = os.getcwd()
    if module.endswith(".py"):
        if not os.path.isfile(module):
            todo = did_you_mean(module, names_beside(module)) or "give the path of a Python file"
            raise UsageError(f"no file '{module}' ({what}): {todo}")
        directory, module = os.path.split(os.path.abspath(module)[: -len(".py")])
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(error.name + ".")):
            raise  # a module that this one imports
        todo = did_you_mean(module, modules_here()) or "check its name and the working directory"
        raise UsageError(f"no module '{module}' ({what}): {todo}") from None
    for part in name.split("."):
        if not hasattr(found, part):
            todo = did_you_mean(part, dir(found)) or "name an object in it"
            raise UsageError(f"{_named(found)} has no '{part}' ({what}): {todo}")
        found = getattr(found, part)
    return found


def _named(found: Any) -> str:
    """A module by its file, as the user knows it; else what was found so far by its name."""
    if file := getattr(found, "__file__", None):
        return os.path.basename(str(file))
    return f"'{getattr(found, '__name__', type(found).__name__)}'"


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
_TORCH_KEYS = {
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
_MILLHEAD_KEYS = {
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
_KINDS = {"name": _TEXT, "loader": _one_of(*LOADERS), **_TORCH_KEYS, **_MILLHEAD_KEYS}
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
    """One entry of ``configs:``; raises UsageError, naming the key."""
    if not isinstance(given, dict):
        raise UsageError(f"an entry is {_as_written(given)} ({place}): write a mapping with a name")
    for key, value in given.items():
        _check_key(key, value, place)
    name = given.get("name")
    if name is None:
        raise UsageError(f"an entry has no name ({place}): add name: to {_as_written(given)}")
    if not _NAME.fullmatch(name) or _RESERVED.search(name):
        raise UsageError(
            f"name is {_as_written(name)} ({place}): use letters, digits, '-' and '_'; it names a "
            "directory"
        )
    loader = given.get("loader", loader)
    for key in given:
        if loader == "torch" and key in _MILLHEAD_KEYS:
            raise UsageError(
                f"{key} is an argument of millhead's loader ({place}, {name}): leave it out, or "
                "add loader: millhead"
            )
    return Config(name, given, loader)


def _check_key(key: Any, value: Any, place: str) -> None:
    if key in _NOT_HERE:
        raise UsageError(f"{key} cannot be set ({place}): {_NOT_HERE[key]}")
    if key not in _KINDS:
        near = difflib.get_close_matches(str(key), _KINDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(_KINDS)}"
        raise UsageError(f"unknown key {key} ({place}): {hint}")
    kind = _KINDS[key]
    if not kind.fits(value):
        raise UsageError(
            f"{key} is {_as_written(value)}, must be {kind.must_be} ({place}): change it"
        )


# ---- from a file ---------------------------------------------------------------------------------


def read(path: Path, loader: str) -> list[Config]:
    """The configurations of a YAML (or JSON) file; raises UsageError."""
    try:
        text = read_text(path)
    except UnicodeDecodeError:
        raise UsageError(f"not a text file ({path}): give a YAML file with configs:") from None
    except OSError as error:
        raise UsageError(f"{error.strerror} ({path}): give a YAML file with configs:") from None
    document = _json_or_yaml(text, path)
    if not isinstance(document, dict) or not isinstance(document.get("configs"), list):
        raise UsageError(f"no list 'configs:' ({path}): write configs: and a '- name: …' per entry")
    for key in document:
        if key != "configs":
            raise UsageError(f"unknown key {key} ({path}): only configs: is known at the top")
    configs = [check(entry, str(path), loader) for entry in document["configs"]]
    if not configs:
        raise UsageError(f"configs: is empty ({path}): add '- name: …' entries")
    names = [config.name for config in configs]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two configurations are called {name} ({path}): rename one")
    return configs


def load_config(path: str | PathLike[str], name: str | None = None) -> dict[str, Any]:
    """The DataLoader's arguments of a configuration: ``DataLoader(dataset, **load_config(path))``.

    The file is one that `millhead tune` or a person wrote and `millhead bench --configs` reads, and
    every key is checked as there. Functions written as MODULE:NAME are looked up.

    Args:
        path: a YAML or JSON file.
        name: which of its configurations; may be left out where there is one.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file cannot be read or used; one line says what to change.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
    try:
        configs = read(Path(path), "millhead")
        known = ", ".join(config.name for config in configs)
        if name is None and len(configs) > 1:
            raise UsageError(f"{len(configs)} configurations ({path}): give name=, one of {known}")
        for config in configs:
            if name in (None, config.name):
                return config.arguments()
        raise UsageError(f"no configuration '{name}' ({path}): known: {known}")
    except UsageError as error:
        raise ValueError(f"millhead: {error}") from None


def _json_or_yaml(text: str, path: Path) -> Any:
    """What a file holds; raises UsageError."""
    if path.suffix == ".json":
        try:
            return json.loads(text)
        except ValueError as error:
            raise UsageError(f"not JSON: {error} ({path}): correct it") from None
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise UsageError(
            f"no package yaml to read it ({path}): pip install pyyaml, or write it as JSON in a "
            "file called *.json"
        ) from None
    try:
        _refuse_duplicate_keys(yaml.compose(text, Loader=yaml.SafeLoader), path)
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"not YAML: {' '.join(str(error).split())} ({path}): correct it") from None


def _refuse_duplicate_keys(node: Any, path: Path) -> None:
    """Refuse a key that a mapping has twice: YAML would take the last without a word."""
    seen: set[str] = set()
    for child in getattr(node, "value", None) or []:
        if not isinstance(child, tuple):
            if not isinstance(child, str):
                _refuse_duplicate_keys(child, path)
            continue
        key, value = child
        if str(key.value) in seen:
            line = key.start_mark.line + 1
            raise UsageError(f"{key.value} is given twice ({path}, line {line}): leave one out")
        seen.add(str(key.value))
        _refuse_duplicate_keys(value, path)


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
