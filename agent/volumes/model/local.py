"""Local PersistentVolumes: what is wanted, and what was found of the device that may be behind one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LocalVolume:
    """A local PersistentVolume at `path` of the node: a directory, or a block device to mount.

    `name` is that of the pod's volume, `spec_name` the PersistentVolume's, `claim` the claim's. `fs_type` and
    `mount_options` count only for a device. `block`: containers get the device itself, without a file system.
    """

    name: str
    spec_name: str
    path: str
    fs_type: str = "ext4"
    mount_options: tuple[str, ...] = ()
    read_only: bool = False
    fs_group: int | None = None
    fs_group_policy: str = "Always"
    claim: str = ""
    block: bool = False


@dataclass(frozen=True, slots=True)
class Device:
    """A block device: its path without links, and its number (st_rdev)."""

    path: str
    number: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is on a device: exit status and output of `blkid -p`, the size in bytes, and why it cannot be read."""

    status: int
    output: str
    size: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class GlobalMount:
    """What is mounted at a volume's global path: number of its device (st_dev), type, whether it is read-only."""

    number: int
    fs_type: str
    read_only: bool = False
