"""``millhead.load_config``: a loader's arguments from a file that `millhead tune` or a person wrote."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from millhead import _bench_target
from millhead._bench_configs import Config, Wrong, read


def load_config(path: str | PathLike[str], name: str | None = None) -> dict[str, Any]:
    """The DataLoader's arguments of a configuration: ``DataLoader(dataset, **load_config(path))``.

    The file is one that `millhead bench --configs` reads, and every key is checked as there.
    Functions written as MODULE:NAME are looked up.

    Args:
        path: a YAML or JSON file.
        name: which of its configurations; may be left out where there is one.

    Raises:
        ValueError: the file cannot be read or used; one line says what to change.
    """
    try:
        arguments = _choose(read(Path(path), "millhead"), name, path).arguments
        for key in ("collate_fn", "worker_init_fn"):
            if key in arguments:
                arguments[key] = _bench_target.find(arguments[key], key)
    except Wrong as wrong:
        raise ValueError(f"millhead: {wrong}") from None
    return arguments


def _choose(configs: list[Config], name: str | None, path: str | PathLike[str]) -> Config:
    known = ", ".join(config.name for config in configs)
    if name is None:
        if len(configs) > 1:
            raise Wrong(f"{len(configs)} configurations ({path}): give name=, one of {known}")
        return configs[0]
    for config in configs:
        if config.name == name:
            return config
    raise Wrong(f"no configuration '{name}' ({path}): known: {known}")
