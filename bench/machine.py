"""What the operating system knows: processor time of a session, steal, and the machine's name."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Usage:
    """Processor seconds (user and system) and involuntary switches of a group of processes."""

    cpu_s: float
    switches: int


def session_pids(session: int) -> list[int]:
    """The processes of a session: an arm, its workers and theirs, orphans included."""
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            found.append(int(entry.name))
    return found


def usage(session: int) -> Usage:
    """What the processes of a session have used so far."""
    cpu_s, switches = 0.0, 0
    for pid in session_pids(session):
        cpu_s += _cpu_seconds(pid)
        switches += _involuntary_switches(pid)
    return Usage(cpu_s, switches)


def _cpu_seconds(pid: int) -> float:
    """The process's CPU clock: as utime + stime of /proc/PID/stat, in ns instead of ticks."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # the kernel's MAKE_PROCESS_CPUCLOCK(pid, SCHED)
    except OSError:
        return 0.0


def _involuntary_switches(pid: int) -> int:
    total = 0
    try:
        for task in (PROC / str(pid) / "task").iterdir():
            for line in (task / "status").read_text().splitlines():
                if line.startswith("nonvoluntary_ctxt_switches"):
                    total += int(line.split()[1])
    except OSError:
        pass
    return total


@dataclass(frozen=True)
class Ticks:
    """Clock ticks of all processors since boot: stolen by the hypervisor, and in total."""

    steal: int
    total: int

    @classmethod
    def now(cls) -> Ticks:
        """Read /proc/stat."""
        fields = [int(n) for n in (PROC / "stat").read_text().splitlines()[0].split()[1:9]]
        return cls(fields[7], sum(fields))

    def steal_share(self, later: Ticks) -> float:
        """The share of time stolen between this reading and a later one."""
        return (later.steal - self.steal) / max(later.total - self.total, 1)


def description() -> dict[str, str | float]:
    """Processor, allowed processors, load and kernel."""
    model = "unknown"
    for line in (PROC / "cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "allowed_cpus": len(os.sched_getaffinity(0)),
        "load_at_start": os.getloadavg()[0],
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
