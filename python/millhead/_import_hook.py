"""Acting when a module is imported, without importing it."""

from __future__ import annotations

import sys
from _thread import get_ident

TYPE_CHECKING = False  # importing typing would slow down every Python that `millhead run` starts
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    Action = Callable[[ModuleType], None]


def when_imported(name: str, action: Action) -> None:
    """Call ``action`` with a module: now where it is imported, else as soon as it has been.

    The same action twice for one module is one. It must not raise: the import would.
    """
    module = sys.modules.get(name)
    if module is not None:
        action(module)
        return
    actions = _awaited.setdefault(name, [])
    if action not in actions:
        actions.append(action)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def forget(name: str, action: Action) -> None:
    """Take back :func:`when_imported`, where the module has not been imported since."""
    if action in _awaited.get(name, ()):
        _awaited[name].remove(action)


def missed(name: str) -> ModuleType | None:
    """The module, where it is awaited still and has been imported, past all that notices it."""
    module = sys.modules.get(name)
    return module if _awaited.get(name) and _spec_of(module) is not None else None


#: What to do after the import of each module.
_awaited: dict[str, list[Action]] = {}
#: Modules that a loader of ours executes now.
_executing: set[str] = set()
#: By thread and name: what the other finders are asked for now.
_asking: set[tuple[int, str]] = set()


class _Finder:
    """Has the other finders find the module, and adds to what its loader does, once."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _awaited:
            _look_for_bypass()
            return None
        question = (get_ident(), name)
        if question in _asking:
            return None  # to one of the others that asks all finders itself
        _asking.add(question)
        try:
            others = [finder for finder in sys.meta_path if finder is not self]
            found = (finder.find_spec(name, path, target) for finder in others)
            spec = next((spec for spec in found if spec is not None), None)
        finally:
            _asking.discard(question)
        if spec is not None and spec.loader is not None:
            _extend(spec.loader, name)
        return spec


_finder = _Finder()


def _act(name: str, module: ModuleType) -> None:
    for action in _awaited.pop(name, ()):
        action(module)


def _extend(loader: Loader, name: str) -> None:
    execute = loader.exec_module

    def execute_and_act(module: ModuleType) -> None:
        vars(loader).pop("exec_module", None)  # the class's own again: a reload is no import
        _executing.add(name)
        try:
            execute(module)
            _act(name, module)
        finally:
            _executing.discard(name)

    loader.exec_module = execute_and_act  # type: ignore[method-assign]


# --- modules that another finder finds without asking ours, or gives another loader ---


def _spec_of(module: ModuleType | None) -> ModuleSpec | None:
    """The spec of a module that is imported or being so; a lazy one would be imported by a look."""
    return vars(module).get("__spec__") if type(module) is type(sys) else None


def _look_for_bypass() -> None:
    """See whether the module that is imported now, by one that is awaited, gets past our loader."""
    for name in list(_awaited):
        spec = _spec_of(sys.modules.get(name))
        if name not in _executing and getattr(spec, "_initializing", False):
            _act_when_complete(name, spec)


def _act_when_complete(name: str, spec: ModuleSpec | None) -> None:
    """The machinery says in the spec when the import is over: all that is left to go by."""
    kind: Any = type(spec)
    if kind.__setattr__ is not object.__setattr__:
        return  # done already

    def set_and_act(self: Any, attribute: str, value: object) -> None:
        object.__setattr__(self, attribute, value)
        if attribute == "_initializing" and not value:
            self.__class__ = kind
            module = sys.modules.get(name)
            if module is not None:  # else it failed, and is still awaited
                _act(name, module)

    names = {"__setattr__": set_and_act, "__module__": kind.__module__}
    try:
        spec.__class__ = type(kind.__name__, (kind,), names)
    except TypeError:
        pass  # a spec of an unusual kind
