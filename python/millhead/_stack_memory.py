"""Python stacks of other processes, which their signal handlers write into memory that is shared."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

#: How long a process may take to answer, and how often to look whether it does.
ANSWER_S, LOOK_S = 1.0, 0.02


class StackMemory:
    """Where processes that have its descriptor dump their stacks (:mod:`faulthandler`)."""

    def __init__(self, name: str) -> None:
        self._file = os.fdopen(os.memfd_create(name), "rb", buffering=0)

    def fileno(self) -> int:
        """The descriptor."""
        return self._file.fileno()

    def after(self, send_signal: Callable[[], object]) -> str:
        """What a process writes once it is sent a signal; nothing where it does not answer."""
        start = size = os.fstat(self.fileno()).st_size
        send_signal()
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            time.sleep(LOOK_S)
            before, size = size, os.fstat(self.fileno()).st_size
            if start < before == size:  # all written
                break
        return os.pread(self.fileno(), size - start, start).decode(errors="replace").strip()

    def close(self) -> None:
        """Give up the descriptor; what others have they keep."""
        self._file.close()
