"""Names of the user's objects, ``module:name`` or ``file.py:name``, and the objects behind them."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from millhead._bench_configs import Wrong

DEFAULT = "millhead.data:Dummy"


def find(text: str, what: str) -> Any:
    """The object called ``text``; raises Wrong when there is none.

    Modules of the working directory are found too. What importing them raises is theirs: it is
    passed on, except that a module of that very name is not there.
    """
    module, _, name = text.rpartition(":")
    if not module or not name:
        raise Wrong(f"{what} is '{text}' (bench): write MODULE:NAME or FILE.py:NAME")
    directory = os.getcwd()
    if module.endswith(".py"):
        if not os.path.isfile(module):
            raise Wrong(f"no file '{module}' ({what}): give the path of a Python file")
        directory, module = os.path.split(os.path.abspath(module)[: -len(".py")])
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(error.name + ".")):
            raise  # a module that this one imports
        raise Wrong(f"no module '{module}' ({what}): check the name and the directory") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise Wrong(f"no '{name}' in module '{module}' ({what}): check the name")
        found = getattr(found, part)
    return found


def dataset(text: str) -> Any:
    """The dataset called ``text``: the object itself, or what the class or function makes."""
    found = find(text, "TARGET")
    if not is_dataset(found) and callable(found):
        found = found()
    if not is_dataset(found):
        raise Wrong(
            f"'{text}' gives {type(found).__name__}, no dataset (TARGET): it needs __getitem__ and "
            "__len__, or __iter__"
        )
    return found


def is_dataset(found: Any) -> bool:
    """Whether it is one already, and not what makes one."""
    kind = type(found)
    holds = hasattr(kind, "__getitem__") or hasattr(kind, "__iter__")
    return holds and not isinstance(found, type)
