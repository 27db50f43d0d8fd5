"""What `millhead tune` chooses from: one setting of a loader, and the limits it must keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: torch's default, and where the search begins.
PREFETCH = 2
#: What else is worth a try; more batches in reserve than that cover nothing but a pause.
PREFETCHES = (2, 4, 8, 16)


@dataclass(frozen=True)
class Setting:
    """One point of the search."""

    batch_size: int
    workers: int = 0
    prefetch: int = PREFETCH
    dispatch: str = "batch"
    in_order: bool = True
    #: Threads that native code may use in each worker.
    threads: int = 1

    @property
    def name(self) -> str:
        """Its directory's, and the table's."""
        parts = [f"w{self.workers}", f"b{self.batch_size}"]
        parts += [f"p{self.prefetch}"] if self.prefetch != PREFETCH else []
        parts += ["by-sample"] if self.dispatch == "sample" else []
        parts += ["any-order"] if not self.in_order else []
        parts += [f"t{self.threads}"] if self.threads > 1 else []
        return "-".join(parts)

    def given(self, name: str, loader: str = "millhead") -> dict[str, Any]:
        """The configuration as a file has it. What is a default anyway is left out."""
        entry: dict[str, Any] = {
            "name": name,
            "loader": loader,
            "batch_size": self.batch_size,
            "num_workers": self.workers,
        }
        if self.workers:
            entry |= {"prefetch_factor": self.prefetch, "persistent_workers": True}
        if self.dispatch != "batch":
            entry["dispatch"] = self.dispatch
        if not self.in_order:
            entry["in_order"] = False
        if self.threads > 1:
            entry["worker_threads"] = self.threads
        return entry

    @property
    def cost(self) -> tuple[Any, ...]:
        """What it takes from the machine and the user: among equals the least wins."""
        return (
            self.workers * self.threads,
            not self.in_order,
            self.dispatch != "batch",
            self.prefetch,
            self.batch_size,
        )


@dataclass(frozen=True)
class Limits:
    """What a setting must keep to."""

    batch_sizes: tuple[int, ...]
    most_workers: int
    cpus: int
    memory: int
    #: The dataset reads through a library with threads of its own.
    streams: bool = False
    loader: str = "millhead"

    def ladder(self) -> list[int]:
        """Numbers of workers worth telling apart: steps of a third or less, the CPUs and the limit
        among them."""
        steps = {0, self.most_workers, min(self.cpus, self.most_workers)}
        at = 1
        while at < self.most_workers:
            steps.add(at)
            at += max(1, at // 3)
        return sorted(steps)


@dataclass(frozen=True)
class Trial:
    """One measured run of a setting."""

    #: Samples a second, start-up left out.
    rate: float
    #: Share of the time in which training waited for a batch.
    wait_share: float
    #: Most memory of the process and its workers, shared pages shared out.
    memory: int
    #: The verdict's; None where there is none.
    cause: str | None = None
    #: How much of the memory was the workers'.
    workers_memory: int = 0
