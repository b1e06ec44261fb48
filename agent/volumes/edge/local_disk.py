"""Devices behind local PersistentVolumes: what is on them, their mounts, and which pods have them.

The layout is upstream's (pkg/volume/local): plugins/kubernetes.io/local-volume/mounts/NAME is mounted once, and bound
to pods/UID/volumes/kubernetes.io~local-volume/NAME. That directory is also the record that the pod uses the volume.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence

from agent.common.model.pod_settings import PodPaths
from agent.volumes.edge import subpath
from agent.volumes.edge.setup import make_directories
from agent.volumes.model.local import Device, GlobalMount, Inspection
from nodelib import command, mounts
from nodelib.command import Completed
from nodelib.errors import Permanent
from nodelib.threads import alone

_PLUGIN = "kubernetes.io~local-volume"
_ENDS = 4096  # bytes that are read at the beginning and at the end of a device
_BLKID_SECONDS = 60.0
_MS_RDONLY, _MS_REMOUNT, _MS_RELATIME = 1, 32, 1 << 21
# statvfs(3) and mount(2) have the same numbers for these: nosuid, nodev, noexec, noatime, nodiratime.
_SAME_FLAGS = 2 | 4 | 8 | 1024 | 2048
_ST_RELATIME = 4096


class LocalDisk:
    """See LocalDisk in ports.py."""

    def __init__(self, root_dir: str) -> None:
        self._root_dir = root_dir

    def device(self, path: str) -> Device | None:
        """The block device at `path`; None: it is a directory. Raises OSError, and Permanent for anything else."""
        found = os.path.realpath(path, strict=True)
        status = os.stat(found)
        if stat.S_ISDIR(status.st_mode):
            return None
        if not stat.S_ISBLK(status.st_mode):
            raise Permanent(
                f"{path}: only directory and block device are supported",
                action="Let the PersistentVolume's local.path name a directory or a block device of this node.",
            )
        return Device(found, status.st_rdev)

    async def inspect(self, device: Device) -> Inspection:
        """Raises CommandError when blkid is missing or does not answer."""
        argv = ["blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device.path]
        done = await command.run(argv, check=False, timeout=_BLKID_SECONDS)
        size, problem = await alone(_read_ends, device)
        return Inspection(done.returncode, done.text + done.stderr.decode(errors="replace"), size, problem)

    async def run(self, argv: Sequence[str], timeout: float) -> Completed:
        """Run a command with a limit in seconds; if it is cancelled, the command is killed. Raises CommandError."""
        return await command.run(argv, check=False, timeout=timeout)

    def make(self, path: str) -> None:
        make_directories(path)

    def global_mount(self, path: str) -> GlobalMount | None:
        found = mounts.mount_at(path)
        if found is None:
            return None
        read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
        return GlobalMount(os.stat(path).st_dev, found.fs_type, read_only)

    def is_bound(self, target: str, *, read_only: bool) -> bool:
        if mounts.mount_at(target) is None:
            return False
        return not read_only or bool(os.statvfs(target).f_flag & os.ST_RDONLY)

    def bind(self, source: str, target: str, *, read_only: bool) -> None:
        """Raises MountError. Goes on where an agent that was killed has ended."""
        if mounts.mount_at(target) is None:
            mounts.mount(source, target, "", mounts.MS_BIND)
        if read_only:
            flags = os.statvfs(target).f_flag
            kept = flags & _SAME_FLAGS | (_MS_RELATIME if flags & _ST_RELATIME else 0)
            mounts.mount("", target, "", mounts.MS_BIND | _MS_REMOUNT | _MS_RDONLY | kept)

    def unmount(self, path: str) -> None:
        """Unmount what is at `path` and below it, nowhere else. Raises MountError when it is in use."""
        found = mounts.mounts_below(path)
        if found:
            mounts.seal(path)
        for one in reversed(found):
            mounts.unmount(one.path)

    def remove(self, path: str) -> None:
        """Remove the empty directory. Raises OSError when it holds files: they were never the volume's."""
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(path)

    def gid(self, path: str) -> int:
        return os.stat(path).st_gid

    def unbind_sub_paths(self, paths: PodPaths) -> None:
        subpath.unbind_all(paths.sub_paths)

    def volumes_of(self, paths: PodPaths) -> list[str]:
        """Names of the PersistentVolumes of which a pod uses the device."""
        return _names(f"{paths.volumes}/{_PLUGIN}")

    def users(self, spec_name: str) -> set[str]:
        """UIDs of the pods that use the device of this PersistentVolume."""
        found = _names(f"{self._root_dir}/pods")
        return {uid for uid in found if os.path.lexists(PodPaths(self._root_dir, uid).volume(_PLUGIN, spec_name))}


def _read_ends(device: Device) -> tuple[int, str]:
    """The size, and why the device cannot be read or "": blkid says of a broken disk that nothing is on it."""
    try:
        handle = os.open(device.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            size = os.lseek(handle, 0, os.SEEK_END)
            os.pread(handle, _ENDS, 0)
            os.pread(handle, _ENDS, max(size - _ENDS, 0))
        finally:
            os.close(handle)
    except OSError as error:
        return 0, str(error)
    return size, ""


def _names(folder: str) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
