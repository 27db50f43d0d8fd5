"""Where a training step's time goes: :class:`StepTimer`."""

from millhead.timer.step_timer import StepTimer as StepTimer
