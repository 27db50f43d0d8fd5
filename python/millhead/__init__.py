"""millhead: data loading that keeps the accelerator fed, and says why when it does not.

The drop-in for PyTorch is in :mod:`millhead.torch`::

    from millhead.torch import DataLoader
"""

import sys

TYPE_CHECKING = False  # importing typing would slow down every Python that `millhead run` starts
if TYPE_CHECKING:
    from typing import Any

    from millhead import data, report
    from millhead.ahead.prefetcher import prefetch
    from millhead.bench.configs import load_config
    from millhead.dataset import open
    from millhead.loader import Loader
    from millhead.ragged import Ragged
    from millhead.staging import stage
    from millhead.timer import StepTimer
    from millhead.watching.loops import watch

__all__ = [
    "Advice",
    "Error",
    "Loader",
    "Ragged",
    "StepTimer",
    "__version__",
    "data",
    "load_config",
    "open",
    "prefetch",
    "report",
    "stage",
    "watch",
]

#: Public names that are looked up when they are asked for, and where.
_LAZY = {
    "Loader": "millhead.loader",
    "Ragged": "millhead.ragged",
    "StepTimer": "millhead.timer",
    "data": "millhead.data",
    "load_config": "millhead.bench.configs",
    "open": "millhead.dataset",
    "prefetch": "millhead.ahead.prefetcher",
    "report": "millhead.report",
    "stage": "millhead.staging",
    "watch": "millhead.watching.loops",
}

#: The advice where there is no C core and torch's own iterators serve; None: there is one.
_no_core: str | None = None

try:
    if sys.platform != "linux":
        raise ImportError("it needs Linux")
    from millhead._core import Error, __version__
except ImportError as error:
    from importlib import metadata

    _no_core = (
        f"torch's own iterators serve every loader, without the C core: {error} ({sys.platform}): "
        + ("reinstall millhead" if sys.platform == "linux" else "train on Linux to have it")
    )
    try:
        __version__ = metadata.version("millhead")
    except metadata.PackageNotFoundError:  # a source tree
        __version__ = "unknown"

    class Error(RuntimeError):  # type: ignore[no-redef]
        """An error of millhead's engine; ``code`` says which kind, in fixed words."""

        code = "internal error"


class Advice(UserWarning):
    """What millhead noticed and what to do about it; given once per cause and process."""


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> "Any":
    if name not in _LAZY:
        raise AttributeError(f"module 'millhead' has no attribute {name!r}")
    if name in ("Loader", "open", "prefetch", "stage", "watch") and _no_core is not None:
        raise AttributeError(f"millhead.{name} needs the C core: {_no_core}")
    from importlib import import_module

    module = import_module(_LAZY[name])
    found = globals()[name] = getattr(module, name, module)
    return found
