"""Runs first in every Python that `millhead run` starts: once torch is imported, its loaders are ours.

And in those that `millhead doctor -- COMMAND` starts: MILLHEAD_WATCH names a directory, and all loaders
are watched into it. They are left torch's then, unless `millhead run` says otherwise (MILLHEAD_RUN).

`millhead run` puts this directory at the head of PYTHONPATH, where the interpreter looks for a
module of this name. That reaches every process a script starts: ranks, spawned workers, launchers.
Torch itself is not imported here: a script may set variables before it does so. A Python that has
no millhead, or is older, gets past this file too.
"""

import atexit
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _watch_for_torch() -> None:
    try:
        from millhead import _import_hook
    except ImportError:
        return  # another environment's Python
    _import_hook.when_imported("torch", _install)
    atexit.register(_advise_if_missed)


def _advise_if_missed() -> None:
    """Say so where torch got past us: in the program's first process, and unless it has millhead."""
    from millhead import _import_hook

    torch = _import_hook.missed("torch")
    processes = sys.modules.get("multiprocessing.process")
    first = processes is None or processes.parent_process() is None
    if torch is None or not first or "millhead.torch" in sys.modules:
        return
    import warnings

    from millhead import Advice

    loader = type(torch.__loader__)
    warnings.warn_explicit(
        "millhead: torch's own iterators served every loader: torch was imported past millhead's "
        f"import hook, by {loader.__module__}.{loader.__qualname__} (run): keep what is in "
        "sys.meta_path, or call millhead.torch.install() after importing torch",
        Advice,
        sys.argv[0] or "python",
        0,  # no line of it: the end of the program
    )


def _install(_: object) -> None:
    try:
        import millhead.torch

        watched = os.environ.get("MILLHEAD_WATCH")
        if not watched or os.environ.get("MILLHEAD_RUN"):
            millhead.torch.install()
        if watched:
            millhead.torch.watch_all(watched)
    except Exception as error:  # noqa: BLE001 - the script's import of torch must not fail
        why = " ".join(f"{type(error).__name__}: {error}".split())
        print(
            f"millhead: torch's own iterators serve every loader: {why} (run): reinstall millhead",
            file=sys.stderr,
        )


def _make_way() -> None:
    """Run the module of this name that would have run, had we not been before it."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _HERE]
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


_watch_for_torch()
_make_way()
