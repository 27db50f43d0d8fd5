"""When a step trains, without a change to the loop: by torch's own hooks.

Training is from the first forward of a module with parameters to the end of the last optimizer's step, and
whatever time the thread sleeps besides: on a device those are only the launches, and the loop waits for the
device where it first needs a number (``loss.item()``). What the thread does on a CPU besides is the loop's own
work. A step without an update trains to its end, as where gradients are accumulated; a forward without gradients
(``torch.no_grad()``) is over when it returns. A loop without a forward gives no time.
"""

from __future__ import annotations

import contextlib
import functools
import time
from typing import Any

from torch import is_grad_enabled
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from millhead import _core
from millhead.watching import hot_code


class Hooks:
    """Two hooks for all modules and optimizers of the process.

    That of the modules is there only until the next forward: a hook costs every module.
    """

    def __init__(self) -> None:
        self._forward: Any = None
        self._return: Any = None  # of a forward without gradients
        self._trains = self._has_trained = False
        #: CPU time of the thread besides the training, and where it stood when that began to count.
        self._own = self._cpu = 0
        self._armed = 0
        #: The loop itself said when the step before this one trained.
        self.told = False
        register_optimizer_step_post_hook(self._has_updated)

    def arm(self) -> None:
        """A batch was delivered: a step begins."""
        self._trains = self._has_trained = hot_code.sleeping_trains = False
        self._own = 0
        self._armed, self._cpu = time.monotonic_ns(), time.thread_time_ns()
        self._drop_return()
        self._await_forward()

    def take(self) -> tuple[int, int]:
        """Of the step that ends: nanoseconds of training, and CPU time of the loop's own work; -1:
        not known."""
        if not self._has_trained:
            return -1, -1
        own = self._own if self._trains else self._own + time.thread_time_ns() - self._cpu
        return max(0, time.monotonic_ns() - self._armed - own), own

    def _await_forward(self) -> None:
        if self._forward is None:
            self._forward = register_module_forward_pre_hook(self._goes_forward)

    def _drop_return(self) -> None:
        if self._return is not None:
            self._return.remove()
            self._return = None

    def _goes_forward(self, module: Any, inputs: Any) -> None:
        if self._forward is None or next(module.parameters(), None) is None:
            return  # a transform, say, or a metric
        self._forward.remove()
        self._forward = None
        self._own += time.thread_time_ns() - self._cpu
        self._trains = self._has_trained = True
        hot_code.sleeping_trains = not self.told
        _core.ticks_stage(hot_code.TRAIN)
        if not is_grad_enabled():
            with contextlib.suppress(RuntimeError):  # a ScriptModule takes none: the step trains on
                self._return = module.register_forward_hook(self._has_returned)

    def _has_returned(self, *_: Any) -> None:
        self._drop_return()
        self._rests()
        self._await_forward()

    def _has_updated(self, *_: Any) -> None:
        if self._has_trained:
            self._rests()

    def _rests(self) -> None:
        self._trains, self._cpu = False, time.thread_time_ns()
        _core.ticks_stage(hot_code.LOOP)


@functools.cache
def hooks() -> Hooks:
    """Those of this process, set when they are first asked for."""
    return Hooks()
