"""The pods' directories on this node. Blocking calls, short ones; the caller picks the thread."""

from __future__ import annotations

import os
import stat

from agent.common.model.pod_settings import PodPaths
from agent.volumes.edge import mounts, setup, subpath, teardown
from agent.volumes.model.volumes import DiskVolume, MountedVolume

_ENV_FILE_LIMIT = 1024 * 1024


class PodDisk:
    """Everything under `root_dir`, as kubelet lays it out."""

    def __init__(self, root_dir: str) -> None:
        self._root_dir = root_dir

    def set_up(self, paths: PodPaths, plans: list[DiskVolume]) -> dict[str, MountedVolume]:
        setup.make_pod_directories(paths)
        return setup.set_up(paths, plans)

    def update(self, paths: PodPaths, plans: list[DiskVolume]) -> list[str]:
        return setup.update(paths, plans)

    def bind_sub_path(self, volume: str, path: str, target: str) -> str:
        return subpath.bind(volume, path, target)

    def read_inside(self, volume: str, path: str) -> str | None:
        """A file of a volume, by no link that leads out of it; None when it is not there or no plain file."""
        base = os.open(volume, os.O_PATH | os.O_CLOEXEC)
        try:
            handle = mounts.open_beneath(base, path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        finally:
            os.close(base)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            return file.read(_ENV_FILE_LIMIT).decode(errors="replace")

    def read_text(self, path: str) -> str:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def write_text(self, path: str, text: str, mode: int) -> None:
        """In place: a container has the file bind mounted, so it must stay the same one."""
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(handle, mode)

    def make_directory(self, path: str, mode: int) -> None:
        setup.make_directories(path, mode)

    def tear_down(self, paths: PodPaths) -> None:
        teardown.tear_down(paths)

    def pods(self) -> list[str]:
        return teardown.pods_on_disk(self._root_dir)
