"""What a run ran on: the machine, its limits and versions, and a fingerprint of them.

A plan that was made on one machine is not for another: the fingerprint tells them apart. It leaves out
what changes from run to run (arguments, time, directory).
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import resource
import socket
import sys
from importlib import metadata
from typing import Any

import millhead
from millhead._mounts import mount_of

#: Arguments with such a name in them are recorded without their value.
_SECRET = re.compile(r"(?i)(token|secret|password|passwd|api[-_]?key|credential|auth)")


def environment() -> dict[str, Any]:
    """All of it; what cannot be found out is None."""
    machine = _machine()
    fingerprint = hashlib.sha256(json.dumps(machine, sort_keys=True).encode()).hexdigest()[:16]
    return {
        "fingerprint": fingerprint,
        **machine,
        "disk": _disk(),
        "host": socket.gethostname(),
        "argv": redacted(sys.argv),
    }


def boot_id() -> str | None:
    """The kernel's name for the time since it started."""
    return _text("/proc/sys/kernel/random/boot_id")


def redacted(arguments: list[str]) -> list[str]:
    """The command line without what its names call secret."""
    shown = []
    hide_next = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if hide_next and not argument.startswith("-"):
            shown.append("***")
        elif equals and _SECRET.search(name):
            shown.append(f"{name}=***")
        else:
            shown.append(re.sub(r"//[^/@\s]+@", "//***@", argument))
        hide_next = not equals and argument.startswith("-") and bool(_SECRET.search(argument))
    return shown


def _machine() -> dict[str, Any]:
    """What the fingerprint is made of."""
    return {
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "allowed_cpus": len(os.sched_getaffinity(0)),
        "cgroup": {
            "cpu_max": _cgroup("cpu.max") or _text("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
            "memory_max": _cgroup("memory.max")
            or _text("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        },
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "shm": _size("/dev/shm"),
        "ulimits": {
            "nofile": _limit(resource.RLIMIT_NOFILE),
            "memlock": _limit(resource.RLIMIT_MEMLOCK),
            "as": _limit(resource.RLIMIT_AS),
        },
        "versions": {
            "python": platform.python_version(),
            "kernel": platform.release(),
            "millhead": millhead.__version__,
            "torch": _version("torch"),
            "numpy": _version("numpy"),
        },
    }


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def _cpu_model() -> str | None:
    for line in (_text("/proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return platform.processor() or platform.machine() or None


def _cgroup(name: str) -> str | None:
    """A file of this process's group, where groups are of version 2."""
    for line in (_text("/proc/self/cgroup") or "").splitlines():
        if line.startswith("0::"):
            return _text(f"/sys/fs/cgroup{line[3:].rstrip('/')}/{name}")
    return None


def _limit(which: int) -> int | None:
    soft = resource.getrlimit(which)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _size(path: str) -> int | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize


def _disk() -> dict[str, Any]:
    """The file system that the program runs in."""
    here = os.path.realpath("/proc/self/cwd")
    mount = mount_of(here)
    return {"device": mount.device or None, "type": mount.kind or None, "bytes": _size(here)}


def _version(package: str) -> str | None:
    try:  # not the module's: whether it is imported must not matter
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
