"""No import changed: torch's own class gives millhead's iterators.

Frameworks that build their loaders themselves (Accelerate, the Trainer of transformers, Lightning)
build ``torch.utils.data.DataLoader``. :func:`install` leaves that name alone and replaces the method
that makes its iterators, so that every loader is reached, also one that was built before.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch.utils.data
from torch.utils.data.dataloader import _BaseDataLoaderIter

from millhead import _import_hook
from millhead.torch import core_available
from millhead.torch.loader import (
    DataLoader,
    Keeper,
    forget_parents_iterator,
    iterator_for,
    report,
    served_by_torch,
)
from millhead.torch.loader_stats import advise

AnyLoader = torch.utils.data.DataLoader[Any]
Method = Callable[[AnyLoader], _BaseDataLoaderIter]


def _own_arguments() -> dict[str, Any]:
    torchs = inspect.signature(torch.utils.data.DataLoader.__init__).parameters
    ours = inspect.signature(DataLoader.__init__).parameters
    return {name: ours[name].default for name in ours if name not in torchs}


#: The arguments that only our class has, and their defaults.
_OWN_ARGUMENTS = _own_arguments()


class Adopted(Keeper):
    """The keeper of a loader that is not of our class; it lies in the loader's ``_millhead``.

    It belongs to one loader in one process: pickles and copies of the loader find None in its
    place, and need no millhead to be read.
    """

    def __init__(self, loader: AnyLoader) -> None:
        self._loader = weakref.ref(loader)
        self.__dict__.update(_OWN_ARGUMENTS)
        self._keep(_OWN_ARGUMENTS["memory"])

    def belongs_to(self, loader: AnyLoader) -> bool:
        """False in a shallow copy of the loader."""
        return self._loader() is loader

    def __reduce__(self) -> Any:
        return type(None), ()


def _adopted(loader: AnyLoader) -> Adopted | None:
    keeper = vars(loader).get("_millhead")
    return keeper if keeper is not None and keeper.belongs_to(loader) else None


def _keeper_of(loader: AnyLoader) -> Keeper:
    keeper = _adopted(loader)
    if keeper is None:
        keeper = Adopted(loader)
        # Not by the class's own __setattr__, which may record or refuse.
        object.__setattr__(loader, "_millhead", keeper)
    return keeper


# --- what replaces torch's methods ---


def _get_iterator(self: AnyLoader) -> _BaseDataLoaderIter:
    if not _installed or type(self)._get_iterator is not _get_iterator:
        return _call_original(self, "_get_iterator")  # or an override of it asks for its super's
    return iterator_for(self, _keeper_of(self))


def _iter(self: AnyLoader) -> _BaseDataLoaderIter:
    if _installed and not isinstance(self, DataLoader):
        forget_parents_iterator(self)
        if type(self)._get_iterator is not _get_iterator:
            name = f"{type(self).__module__}.{type(self).__qualname__}"
            advise(
                f"own iterators of {name}",
                f"loaders of {name} keep their own iterators (it overrides _get_iterator): "
                "remove the override to have millhead's",
            )
    return _call_original(self, "__iter__")


def _get_stateful_iterator(self: Any) -> _BaseDataLoaderIter:
    """For torchdata's loader, which keeps a state until an iterator goes on from it."""
    state = self.next_iter_state
    foreign = state is not None and "millhead" not in state  # torchdata's iterators wrote it
    overridden = type(self)._get_iterator is not _get_stateful_iterator
    # Where torch's iterators would serve, torchdata's do: its loader needs more than torch's have.
    if not _installed or foreign or overridden or served_by_torch(self):
        return _call_original(self, "_get_iterator")
    keeper = _keeper_of(self)
    keeper.snapshot_every_n_steps = self.snapshot_every_n_steps
    if state is not None:
        keeper._position.load(state, self)
        self.next_iter_state = None
    return iterator_for(self, keeper)


#: Class, method and what replaces it, by the module that defines the class. A module that is not
#: imported is awaited.
_REPLACEMENTS: dict[str, list[tuple[str, str, Method]]] = {
    "torch.utils.data.dataloader": [
        ("DataLoader", "_get_iterator", _get_iterator),
        ("DataLoader", "__iter__", _iter),
    ],
    "torchdata.stateful_dataloader.stateful_dataloader": [
        ("StatefulDataLoader", "_get_iterator", _get_stateful_iterator),
    ],
}

#: What was there before, by class and name. Kept after uninstall() too: others may have replaced
#: our method in turn, and call it.
_originals: dict[tuple[type, str], Method] = {}
_installed = False


def _call_original(loader: AnyLoader, name: str) -> _BaseDataLoaderIter:
    """What the method that ours stands for gives."""
    kind = next(kind for kind in type(loader).__mro__ if (kind, name) in _originals)
    return _originals[kind, name](loader)


def _replace(module: ModuleType) -> None:
    for name, method, ours in _REPLACEMENTS[module.__name__]:
        kind = getattr(module, name)
        present = kind.__dict__[method]
        # Neither ours nor the one before: another's, which passes on to ours.
        if present is not ours and _originals.setdefault((kind, method), present) is present:
            setattr(kind, method, ours)


def _restore(module: ModuleType) -> None:
    for name, method, ours in _REPLACEMENTS[module.__name__]:
        kind = getattr(module, name)
        if kind.__dict__[method] is ours:
            setattr(kind, method, _originals[kind, method])


# --- the public functions ---


def install() -> None:
    """Have every ``torch.utils.data.DataLoader`` give millhead's iterators from now on.

    Loaders that exist are reached too: it counts when iteration begins. A second call does nothing.
    Classes that override ``_get_iterator`` are left alone, which is said once. DataPipes keep
    torch's own iterators.

        >>> import torch.utils.data, millhead.torch
        >>> loader = torch.utils.data.DataLoader([1, 2, 3], batch_size=2)
        >>> millhead.torch.install()
        >>> list(loader), millhead.torch.stats(loader)["path"]
        ([tensor([1, 2]), tensor([3])], 'slot')
        >>> millhead.torch.uninstall()
    """
    global _installed
    if core_available.why_not is not None:
        advise("not native", core_available.why_not)
    _installed = True
    for module in _REPLACEMENTS:
        _import_hook.when_imported(module, _replace)


def uninstall() -> None:
    """Undo :func:`install`. Iterators that exist go on, persistent ones for further epochs."""
    global _installed
    _installed = False
    for name in _REPLACEMENTS:
        _import_hook.forget(name, _replace)
        if name in sys.modules:
            _restore(sys.modules[name])


def stats(loader: Any, reset: bool = False) -> dict[str, Any]:
    """``loader.stats()``, for a loader of whatever class or for one of its iterators.

    Raises:
        TypeError: no loader that millhead serves.
    """
    owner = getattr(loader, "_millhead_loader", None)
    if owner is not None and (found := owner()) is not None:
        loader = found
    if isinstance(loader, DataLoader):
        return loader.stats(reset)
    loader = getattr(loader, "base_dataloader", loader)  # Accelerate's are made of a loader
    known = issubclass(type(loader), torch.utils.data.DataLoader)
    if not known or not (_installed or _adopted(loader)):
        raise TypeError(
            "stats() wants a millhead loader, one that install() reached, or an iterator of "
            f"either, not {type(loader)!r}"
        )
    return report(loader.num_workers, _keeper_of(loader), reset)
