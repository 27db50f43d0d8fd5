"""What the operating system knows: a session's processor time and memory, steal, the machine."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


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
        fields = _stat(int(entry.name))
        if fields and int(fields[3]) == session:
            found.append(int(entry.name))
    return found


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none when the process has ended."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def usage(session: int) -> Usage:
    """What the processes of a session have used so far, with the children they have waited for."""
    cpu_s, switches = 0.0, 0
    for pid in session_pids(session):
        cpu_s += _cpu_seconds(pid) + _cpu_seconds_of_ended(pid)
        switches += _involuntary_switches(pid)
    return Usage(cpu_s, switches)


def _cpu_seconds_of_ended(pid: int) -> float:
    """Processor time of a process's children that it has waited for, and of theirs."""
    fields = _stat(pid)
    return (int(fields[13]) + int(fields[14])) / TICKS_PER_S if fields else 0.0


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
class Memory:
    """Memory of a session in bytes (PSS: shared pages count by shares), descriptors, threads."""

    pss: int
    fds: int
    threads: int

    @classmethod
    def of_session(cls, session: int) -> Memory:
        """Add up smaps_rollup, descriptors and threads of all its processes."""
        pss = fds = threads = 0
        for pid in session_pids(session):
            try:
                pss += _pss(pid)
                fds += len(os.listdir(PROC / str(pid) / "fd"))
                threads += len(os.listdir(PROC / str(pid) / "task"))
            except OSError:
                continue  # it has ended
        return cls(pss, fds, threads)


def _pss(pid: int) -> int:
    for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


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
