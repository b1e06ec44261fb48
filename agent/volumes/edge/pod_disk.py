"""The pods' directories on this node. All calls block for a short time: call them in a thread."""

from __future__ import annotations

import os
import stat
import threading

from agent.common.model.pod_settings import PodPaths
from agent.volumes.edge import setup, subpath, teardown
from agent.volumes.model.volumes import DiskVolume, MountedVolume
from nodelib import files, mounts

_ENV_FILE_LIMIT = 1024 * 1024


class PodDisk:
    """Pods' directories under `root_dir`, laid out as upstream's kubelet does."""

    def __init__(self, root_dir: str) -> None:
        self._root_dir = root_dir
        self._reserving = threading.Lock()

    def set_up(self, paths: PodPaths, plans: list[DiskVolume]) -> dict[str, MountedVolume]:
        setup.make_pod_directories(paths)
        return setup.set_up(paths, plans)

    def reserve(self, paths: PodPaths, volume: str) -> str:
        """See VolumeDisk. An empty file in the pod's directory says it, also to the next agent."""
        with self._reserving:
            for uid in self.pods():
                if uid != paths.uid and os.path.lexists(f"{PodPaths(self._root_dir, uid).sole_volumes}/{volume}"):
                    return uid
            setup.make_directories(paths.sole_volumes)
            marker = f"{paths.sole_volumes}/{volume}"
            os.close(os.open(marker, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        return ""

    def update(self, paths: PodPaths, plans: list[DiskVolume]) -> list[str]:
        return setup.update(paths, plans)

    def bind_sub_path(self, volume: str, path: str, target: str, *, keeps_peers: bool = False) -> str:
        return subpath.bind(volume, path, target, keeps_peers=keeps_peers)

    def read_inside(self, volume: str, path: str) -> str | None:
        """The text of a file in a volume, through no link that leads out of it; None unless it is a regular file."""
        base = os.open(volume, os.O_PATH | os.O_CLOEXEC)
        try:
            found = mounts.open_beneath(base, path, os.O_PATH)
        except FileNotFoundError:
            return None
        finally:
            os.close(base)
        if not stat.S_ISREG(os.fstat(found).st_mode):
            os.close(found)
            return None
        with os.fdopen(files.readable(found), "rb") as file:
            return file.read(_ENV_FILE_LIMIT).decode(errors="replace")

    def read_text(self, path: str) -> str:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def write_text(self, path: str, text: str, mode: int) -> None:
        """Write in place, unless it says so already: containers have the file bind mounted, so its inode must stay.

        Raises OSError. When the disk is full, the old text stays whole.
        """
        data = text.encode()
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
        with os.fdopen(handle, "r+b", buffering=0) as file:
            size = os.fstat(handle).st_size
            if size != len(data) or file.read(size) != data:
                _reserve(handle, size, len(data))
                os.pwrite(handle, data, 0)
                os.ftruncate(handle, len(data))
            os.fchmod(handle, mode)

    def make_directory(self, path: str, mode: int) -> None:
        setup.make_directories(path, mode)

    def tear_down(self, paths: PodPaths) -> None:
        teardown.tear_down(paths)

    def pods(self) -> list[str]:
        return teardown.pods_on_disk(self._root_dir)


def _reserve(handle: int, size: int, wanted: int) -> None:
    """Give a file of `size` bytes the space for `wanted` bytes. Raises OSError, and leaves it as it was then."""
    if wanted == 0:
        return
    try:
        os.posix_fallocate(handle, 0, wanted)
    except OSError:
        os.ftruncate(handle, size)
        raise
