"""Thread pools of native libraries: what makes them small before they are loaded, and after.

Before, it is the environment. After, it is a call, found by name in the libraries that the process
has loaded. MKL needs no call of its own: it asks its OpenMP library.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import threading
from collections.abc import Iterator
from typing import Any

from millhead import _core

#: Variables that libraries heed when they are loaded, and what else each of those libraries heeds.
VARIABLES = {
    "OMP_NUM_THREADS": (),
    "OPENBLAS_NUM_THREADS": ("GOTO_NUM_THREADS", "OMP_NUM_THREADS"),
    "MKL_NUM_THREADS": ("OMP_NUM_THREADS",),
    "BLIS_NUM_THREADS": ("OMP_NUM_THREADS",),
    "NUMEXPR_NUM_THREADS": ("NUMEXPR_MAX_THREADS", "OMP_NUM_THREADS"),
    "POLARS_MAX_THREADS": (),
    "RAYON_NUM_THREADS": (),
}

#: Held while variables are lent; and those that are, which no user has set.
_lending = threading.Lock()
_lent: dict[str, str] = {}


def not_set() -> list[str]:
    """The variables that are free to be set: no choice of the user's says anything there."""
    ours = set(_lent)  # looked at twice: another thread may lend or take back just now
    given = set(os.environ) - ours - set(_lent)
    return [name for name, others in VARIABLES.items() if given.isdisjoint((name, *others))]


@contextlib.contextmanager
def lent(variables: dict[str, str]) -> Iterator[list[str]]:
    """Variables for processes that are started meanwhile, where they are not set; yields which."""
    with _lending:
        added = {name: value for name, value in variables.items() if name not in os.environ}
        _lent.update(added)
        os.environ.update(added)
        try:
            yield list(added)
        finally:
            _take_back()


def _take_back() -> None:
    for name in _lent:
        os.environ.pop(name, None)
    _lent.clear()


def _after_fork() -> None:
    """A child forked by another thread just then has no part in it."""
    global _lending
    _lending = threading.Lock()
    _take_back()


os.register_at_fork(after_in_child=_after_fork)


# --- libraries that are loaded ---

_MOST = re.compile(rb"MAX_THREADS=(\d+)")  # here, not in each forked worker
_LIBRARY = re.compile(r"/lib(?:\w*(openblas)|[gi]?omp)[^/]*\.so[^/]*$")


class Pool:
    """The threads of one loaded library."""

    #: Variables by which a user may have said how many.
    variables: tuple[str, ...]
    #: Functions: threads now, threads where nobody has said anything, and how to say it.
    functions: tuple[str, str, str]
    #: Whether threads that were there before a fork are waited for after it, for ever.
    hangs_after_fork = False

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.now, self._default, self._set = map(self._function, self.functions)

    def _function(self, name: str) -> Any:
        """A function by its plain name, or with what SciPy's builds put around it."""
        for before, after in (("", ""), ("", "64_"), ("scipy_", ""), ("scipy_", "64_")):
            with contextlib.suppress(AttributeError):
                return getattr(self.library, f"{before}{name}{after}")
        raise AttributeError(name)

    def default(self) -> int:
        """Threads it has where nobody has said how many."""
        return int(self._default())

    def chosen(self) -> int | None:
        """Threads that the user's environment asks for; 0 where that is no number."""
        for name in self.variables:
            if name in os.environ:
                number = os.environ[name].split(",")[0].strip()
                return int(number) if number.isdecimal() else 0
        return None

    def set(self, threads: int) -> None:
        """Use so many from now on."""
        self._set(threads)


class OpenBlas(Pool):
    """OpenBLAS with threads of its own, which it makes anew after a fork."""

    variables = ("OPENBLAS_NUM_THREADS", *VARIABLES["OPENBLAS_NUM_THREADS"])
    functions = ("openblas_get_num_threads", "openblas_get_num_procs", "openblas_set_num_threads")

    def __init__(self, library: ctypes.CDLL) -> None:
        super().__init__(library)
        self._config = self._function("openblas_get_config")
        self._config.restype = ctypes.c_char_p

    def default(self) -> int:
        """Threads it has where nobody has said how many: no more than it was built for."""
        most = _MOST.search(self._config() or b"")
        return min(super().default(), int(most[1]) if most else 2**16)

    def chosen(self) -> int | None:
        """Threads that the user's environment asks for: a variable gives no more than CPUs."""
        threads = super().chosen()
        return None if threads is None else min(threads, self.default())

    def set(self, threads: int) -> None:
        if threads == 1:
            # The function would make all threads anew after a fork, and let them sleep. The
            # number it sets is an exported variable.
            with contextlib.suppress(ValueError):
                ctypes.c_int.in_dll(self.library, "blas_cpu_number").value = 1
                return
        super().set(threads)


class OpenMp(Pool):
    """GNU's, Intel's or LLVM's OpenMP; the numbers are the calling thread's."""

    variables = ("OMP_NUM_THREADS",)
    functions = ("omp_get_max_threads", "omp_get_num_procs", "omp_set_num_threads")
    hangs_after_fork = True  # GNU's does


def loaded() -> list[Pool]:
    """The pools of the libraries that this process has loaded."""
    pools: list[Pool] = []
    for name in _core.libraries()[2]:
        found = _LIBRARY.search(name)
        if found is not None:
            # A file that was replaced is no longer there; a library by that name may be another's.
            with contextlib.suppress(OSError, AttributeError):
                library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD)
                pools.append(OpenBlas(library) if found[1] else OpenMp(library))
    return pools


_found: list[Pool] | None = None
#: How often libraries were loaded and unloaded before they were looked through.
_found_after: tuple[int, int] | None = None


def look() -> None:
    """Find the pools for all processes that will be forked from this one: after a fork a lock of
    the loader's may be held by nobody."""
    global _found, _found_after
    changes = _core.libraries()[:2]
    if _found is None or changes != _found_after:
        _found, _found_after = loaded(), changes


#: Pools, and how many threads each is to have.
Sizes = list[tuple[Pool, int]]


def sizes(limit: int | None, start: str) -> Sizes:
    """What a worker changes: at most ``limit`` threads in each pool that the user has not set.

    ``start`` is how the worker came to be. A template's pools have one thread, whatever anybody
    asked for; there they become as large as they would have been, or as they may be.
    """
    if limit is None and start != "template":
        return []
    found: Sizes = []
    for pool in loaded() if _found is None else _found:
        chosen, now, default = pool.chosen(), pool.now(), pool.default()
        if start == "template":
            wanted = chosen or (default if limit is None else min(limit, default))
        elif limit is None or chosen is not None or now != default:
            continue
        else:
            wanted = 1 if start == "fork" and pool.hangs_after_fork else min(limit, default)
        if wanted != now:
            found.append((pool, wanted))
    return found
