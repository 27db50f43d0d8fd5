"""What kind of file system a path is on."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

#: Types whose files come over a network, or from outside a virtual machine (as src/sys/parse.c's).
_NETWORK = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "lustre",
        "gpfs",
        "ceph",
        "9p",
        "beegfs",
        "afs",
        "virtiofs",
        "ocfs2",
        "glusterfs",
        "orangefs",
        "panfs",
    ]
)
#: What else a program serves (fuse.sshfs, fuse.s3fs, ...) comes from afar, but for these.
_LOCAL_FUSE = frozenset(("fuse.fuse-overlayfs", "fuse.mergerfs", "fuse.ntfs-3g"))


class Mount(NamedTuple):
    """A mounted file system."""

    device: str
    point: str
    kind: str

    def is_network(self) -> bool:
        """Whether other machines may see the same files."""
        served = self.kind.startswith("fuse.") and self.kind not in _LOCAL_FUSE
        return served or self.kind in _NETWORK


def mount_of(path: str | os.PathLike[str]) -> Mount:
    """The mount that holds a path, there or not; with empty fields where it is not known."""
    try:
        text = Path("/proc/self/mounts").read_text(errors="replace")
    except OSError:
        return Mount("", "", "")
    return find_mount(os.path.realpath(path), text)


def find_mount(place: str, mounts: str) -> Mount:
    """The same, for an absolute path and the text of ``/proc/self/mounts``."""
    best = Mount("", "", "")
    for line in mounts.splitlines():
        device, point, kind = (*line.split(" "), "", "", "")[:3]
        point = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point)
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        # Of two on one place the later hides the earlier.
        if inside and len(point) >= len(best.point):
            best = Mount(device, point, kind)
    return best
