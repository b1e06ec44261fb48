"""A node's disks in memory, for LocalVolumes: devices, what is on them, mounts, and directories of pods."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass

from agent.common.model.pod_settings import PodPaths
from agent.volumes.model.local import Device, GlobalMount, Inspection
from nodelib.command import CommandError, Completed

_PLUGIN = "kubernetes.io~local-volume"
_RESIZES = {"resize2fs": ("ext3", "ext4"), "xfs_growfs": ("xfs",), "btrfs": ("btrfs",)}


@dataclass
class Disk:
    """`content` "": nothing that blkid knows. `problem`: why it cannot be read.

    `size` is the device's, `used` as much of it as its file system has.
    """

    number: int
    content: str = ""
    problem: str = ""
    fsck: int = 0
    size: int = 10
    used: int = 0


class FakeLocalDisk:
    """`disks` by path, `mounted` the device path and whether read-only by mount point, `made` the directories.

    `commands`: what was run. `busy`: mount points in use. `fails_at`: the method before which the agent dies.
    `missing`: commands that are not installed.
    """

    def __init__(self, root: str = "/r") -> None:
        self.root = root
        self.disks: dict[str, Disk] = {}
        self.mounted: dict[str, tuple[int, str, bool]] = {}
        self.made: set[str] = set()
        self.commands: list[tuple[str, ...]] = []
        self.busy: set[str] = set()
        self.gids: dict[str, int] = {}
        self.fails_at = ""
        self.missing: set[str] = set()

    def device(self, path: str) -> Device | None:
        if path in self.made:
            return None
        if path not in self.disks:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return Device(path, self.disks[path].number)

    async def inspect(self, device: Device) -> Inspection:
        disk = self.disks[device.path]
        if disk.content == "partitions":
            return Inspection(0, f"DEVNAME={device.path}\nPTTYPE=gpt\n", 1 << 20)
        text = f"DEVNAME={device.path}\nTYPE={disk.content}\n" if disk.content else ""
        return Inspection(0 if disk.content else 2, text, 0 if disk.problem else 1 << 20, disk.problem)

    async def run(self, argv: Sequence[str], timeout: float) -> Completed:
        self._die_at("run")
        self.commands.append(tuple(argv))
        status, said = self._execute(argv)
        return Completed(tuple(argv), status, b"", said.encode())

    def _execute(self, argv: Sequence[str]) -> tuple[int, str]:
        if argv[0] in self.missing:
            raise CommandError(argv, 127, b"", reason="cannot start: No such file or directory")
        if argv[0].startswith("mkfs."):
            disk = self.disks[argv[-1]]
            disk.content, disk.used = argv[0].removeprefix("mkfs."), disk.size
        elif argv[0] in _RESIZES:
            return self._resize(argv)
        elif argv[0] == "fsck":
            return self.disks[argv[-1]].fsck, "fsck"
        elif "remount,rw" in argv:
            number, kind, _ = self.mounted[argv[-1]]
            self.mounted[argv[-1]] = (number, kind, False)
        else:
            disk, kind = self.disks[argv[-2]], argv[2]
            if disk.content != kind:
                return 32, "wrong fs type"
            options = argv[argv.index("-o") + 1].split(",") if "-o" in argv else []
            self.mounted[argv[-1]] = (disk.number, kind, "ro" in options)
        return 0, ""

    def _resize(self, argv: Sequence[str]) -> tuple[int, str]:
        if argv[0] == "resize2fs":
            disk = self.disks[argv[-1]]
        elif argv[-1] not in self.mounted:
            return 1, "is not a mounted file system"
        else:
            disk = next(one for one in self.disks.values() if one.number == self.mounted[argv[-1]][0])
        if disk.content not in _RESIZES[argv[0]]:
            return 1, "bad magic number"
        disk.used = disk.size
        return 0, ""

    def make(self, path: str) -> None:
        self.made.add(path)

    def global_mount(self, path: str) -> GlobalMount | None:
        found = self.mounted.get(path)
        return GlobalMount(*found) if found else None

    def is_bound(self, target: str, *, read_only: bool) -> bool:
        return target in self.mounted and (self.mounted[target][2] or not read_only)

    def bind(self, source: str, target: str, *, read_only: bool) -> None:
        self._die_at("bind")
        number, kind, sealed = self.mounted[source]
        self.mounted[target] = (number, kind, sealed or read_only)

    def unmount(self, path: str) -> None:
        self._die_at("unmount")
        if path in self.busy:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
        self.mounted.pop(path, None)

    def remove(self, path: str) -> None:
        assert path not in self.mounted
        self.made.discard(path)

    def gid(self, path: str) -> int:
        return self.gids.get(path, 0)

    def unbind_sub_paths(self, paths: PodPaths) -> None:
        return

    def volumes_of(self, paths: PodPaths) -> list[str]:
        prefix = f"{paths.volumes}/{_PLUGIN}/"
        return sorted(path.removeprefix(prefix) for path in self.made if path.startswith(prefix))

    def users(self, spec_name: str) -> set[str]:
        found = (path.removeprefix(f"{self.root}/pods/").split("/") for path in self.made)
        return {parts[0] for parts in found if parts[1:] == ["volumes", _PLUGIN, spec_name]}

    def _die_at(self, step: str) -> None:
        if self.fails_at == step:
            raise KeyboardInterrupt(step)
