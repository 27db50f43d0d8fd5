"""Acting when a module is imported, without importing it."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # importing typing would slow down every Python that `millhead run` starts
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

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


#: What to do after the import of each module.
_awaited: dict[str, list[Action]] = {}


class _Finder:
    """Has the other finders find the module, and adds to what its loader does, once."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _awaited:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            _extend(spec.loader, name)
        return spec


_finder = _Finder()


def _extend(loader: Loader, name: str) -> None:
    execute = loader.exec_module

    def execute_and_act(module: ModuleType) -> None:
        del loader.exec_module  # the class's own again: a reload is no import
        execute(module)
        for action in _awaited.pop(name, ()):
            action(module)

    loader.exec_module = execute_and_act  # type: ignore[method-assign]
