"""When a step trains, without a change to the loop: by torch's own hooks.

Training is from the first module's forward to the end of the last optimizer's step, and whatever
time the thread sleeps besides: on a device those are only the launches, and the loop waits for the
device where it first needs a number (``loss.item()``). What the thread does on a CPU besides is the
loop's own work. A loop without an optimizer gives no time.
"""

from __future__ import annotations

import functools
import time
from typing import Any

from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from millhead import _core
from millhead.watching import hot_code


class Hooks:
    """Two hooks for all modules and optimizers of the process.

    That of the modules is there only until the first forward of a step: a hook costs every module.
    """

    def __init__(self) -> None:
        self._forward: Any = None
        self._began = self._ended = 0
        #: CPU time of the thread besides the training, and where it stood when that began to count.
        self._own = self._cpu = 0
        self._armed = 0
        register_optimizer_step_post_hook(self._has_updated)

    def arm(self) -> None:
        """A batch was delivered: a step begins."""
        self._began = self._ended = self._own = 0
        self._armed, self._cpu = time.monotonic_ns(), time.thread_time_ns()
        if self._forward is None:
            self._forward = register_module_forward_pre_hook(self._goes_forward)

    def take(self) -> tuple[int, int]:
        """Of the step that ends: nanoseconds of training, and CPU time of the loop's own work; -1:
        not known."""
        if not self._ended:
            return -1, -1
        own = max(0, self._own + time.thread_time_ns() - self._cpu)
        train = max(time.monotonic_ns() - self._armed - own, self._ended - self._began)
        return train, own

    def _goes_forward(self, module: Any, inputs: Any) -> None:
        self._began = time.monotonic_ns()
        _core.ticks_stage(hot_code.TRAIN)
        self._own = time.thread_time_ns() - self._cpu
        if self._forward is not None:
            self._forward.remove()
            self._forward = None

    def _has_updated(self, *_: Any) -> None:
        if self._began:
            self._ended, self._cpu = time.monotonic_ns(), time.thread_time_ns()
            _core.ticks_stage(hot_code.LOOP)


@functools.cache
def hooks() -> Hooks:
    """Those of this process, set when they are first asked for."""
    return Hooks()
