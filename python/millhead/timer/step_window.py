"""What the steps since the last line come to: times, rates, memory of the device."""

from __future__ import annotations

import sys

from millhead.timer.stragglers import OTHER

PHASES = ("data", "forward", "backward", "update")


class StepWindow:
    """Sums over the steps since the last line."""

    def __init__(self) -> None:
        self.steps = self.samples = self.tokens = 0
        self.seconds: dict[str, float] = {}

    def add(self, seconds: dict[str, float], samples: int, tokens: int) -> None:
        """A step: its seconds by phase, and what it trained on."""
        self.steps += 1
        self.samples += samples
        self.tokens += tokens
        for name, value in seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value

    def times(self) -> dict[str, float]:
        """In ms a step."""
        names = [*PHASES, *(name for name in self.seconds if name not in (*PHASES, OTHER)), OTHER]
        steps = max(self.steps, 1)
        times = {name: 1000 * self.seconds.get(name, 0.0) / steps for name in names}
        return {"time/total": sum(times.values())} | {f"time/{n}": ms for n, ms in times.items()}

    def rates(self, world: int) -> dict[str, float]:
        """Of all ranks together."""
        seconds = sum(self.seconds.values())
        rates = {}
        for name, count in (("tokens_per_s", self.tokens), ("samples_per_s", self.samples)):
            if count or not self.steps:
                rates[name] = world * count / seconds if seconds else 0.0
        return rates


def device_memory() -> dict[str, float]:
    """In GB; zeros where there is no CUDA device in use."""
    keys = {
        "curr_alloc_gb": "allocated_bytes.all.current",
        "peak_alloc_gb": "allocated_bytes.all.peak",
        "curr_resv_gb": "reserved_bytes.all.current",
        "peak_resv_gb": "reserved_bytes.all.peak",
    }
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return dict.fromkeys(("total_gb", *keys), 0.0)
    stats = torch.cuda.memory_stats()
    total = 1e-9 * torch.cuda.get_device_properties(None).total_memory
    return {"total_gb": total} | {name: 1e-9 * stats[key] for name, key in keys.items()}
