"""When a step trains, without a change to the loop: by torch's own hooks.

Training is from the first module's forward to the end of the last optimizer's step. A loop
without an optimizer gives no time.
"""

from __future__ import annotations

import functools
import time
from typing import Any

from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook


class Hooks:
    """Two hooks for all modules and optimizers of the process.

    That of the modules is there only until the first forward of a step: a hook costs every module.
    """

    def __init__(self) -> None:
        self._forward: Any = None
        self._began = self._ended = 0
        register_optimizer_step_post_hook(self._has_updated)

    def arm(self) -> None:
        """A batch was delivered: a step begins."""
        self._began = self._ended = 0
        if self._forward is None:
            self._forward = register_module_forward_pre_hook(self._goes_forward)

    def take(self) -> int:
        """Nanoseconds of training in the step that ends; -1: not known."""
        return self._ended - self._began if self._ended else -1

    def _goes_forward(self, module: Any, inputs: Any) -> None:
        self._began = time.monotonic_ns()
        if self._forward is not None:
            self._forward.remove()
            self._forward = None

    def _has_updated(self, *_: Any) -> None:
        if self._began:
            self._ended = time.monotonic_ns()


@functools.cache
def hooks() -> Hooks:
    """Those of this process, set when they are first asked for."""
    return Hooks()
