"""Decide how a local PersistentVolume is mounted, whether its device may be formatted, and how its file system grows.

Follows pkg/volume/local/local.go, and SafeFormatAndMount of mount-utils (mount_linux.go) with three differences: a
device that cannot be read, or that has no size, is never taken for an empty one, although blkid says the same of both;
the type of the file system must be a plain word, because it becomes the name of a command; and a global mount that
belongs to another device than the volume's (it was unplugged and came back) is replaced, not used.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from enum import Enum, auto

from agent.common.model.file_names import is_file_name
from agent.common.model.pods import Pod
from agent.volumes.model.local import Device, GlobalMount, Inspection, LocalVolume
from agent.volumes.model.volumes import HostPath
from agent.volumes.plan import csi, payload
from nodelib.errors import Invalid, NodewrightError, Temporary
from nodelib.json_values import Json

PLUGIN = "kubernetes.io~local-volume"
PARTITIONS = "unknown data, probably partitions"  # as upstream names it: no file system has this type
_OPTIONS = "volume.beta.kubernetes.io/mount-options"
_FS_TYPE = re.compile(r"[a-z0-9][a-z0-9._-]*", re.ASCII)
_BLKID_NOTHING = 2
_NOT_STARTED = 127  # as nodelib.command says it
_CORRECTED, _UNCORRECTED = 1, 4  # fsck(8)
_FORCED = {"ext3": ("-F", "-m0"), "ext4": ("-F", "-m0"), "xfs": ("-f",)}
# Each mount of it has a device number of its own, which is not the disk's.
_ANONYMOUS = frozenset({"btrfs"})


class Staging(Enum):
    """What the global path of a volume needs: nothing, a mount, another mount, or to become writable."""

    KEEP = auto()
    MOUNT = auto()
    REPLACE = auto()
    MAKE_WRITABLE = auto()


def local_volume(pod: Pod, name: str, claim: str, volume: Json, *, read_only: bool) -> LocalVolume:
    """A claim that is bound to the local PersistentVolume `volume`, as volume `name` of the pod. Raises Invalid."""
    meta, spec = volume.get("metadata") or {}, volume["spec"]
    local, spec_name = spec["local"], str(meta.get("name") or "")
    path = local.get("path") or ""
    if spec.get("volumeMode") == "Block":
        wanted = LocalVolume(name, spec_name, path, read_only=read_only, claim=claim, block=True)
    else:
        wanted = LocalVolume(
            name,
            spec_name,
            path,
            local.get("fsType") or "ext4",
            _mount_options(meta, spec),
            read_only,
            payload.fs_group(pod),
            csi.fs_group_change_policy(pod),
            claim,
        )
    if problem := _problem(wanted):
        raise Invalid(
            problem,
            obj=f"pod {pod.full_name}",
            step=f'volume "{name}"',
            action=f"Make PersistentVolume {wanted.spec_name!r} anew with a valid value.",
        )
    return wanted


def _mount_options(meta: Json, spec: Json) -> tuple[str, ...]:
    """The annotation wins, as in MountOptionFromSpec (pkg/volume/util/util.go)."""
    annotated = (meta.get("annotations") or {}).get(_OPTIONS)
    return tuple(annotated.split(",")) if annotated else tuple(spec.get("mountOptions") or ())


def _problem(volume: LocalVolume) -> str:
    if not volume.path.startswith("/") or ".." in volume.path.split("/") or "\0" in volume.path:
        return f"the local path {volume.path!r} must be an absolute path without '..'"
    if not is_file_name(volume.spec_name):
        return f"{volume.spec_name!r} is not a name of a PersistentVolume"
    if not _FS_TYPE.fullmatch(volume.fs_type):
        return f"{volume.fs_type!r} is not a type of a file system"
    if any("\0" in option for option in volume.mount_options):
        return "a mount option has a zero byte"
    return ""


def global_path(root_dir: str, spec_name: str) -> str:
    """Where the device is mounted once for all pods of the node."""
    return f"{root_dir}/plugins/kubernetes.io/local-volume/mounts/{spec_name}"


def shown(volume: LocalVolume, path: str, *, gives_to_group: bool = True) -> HostPath:
    """What is left to do for the pod once the volume is at `path`: a directory, or the device of a raw block volume."""
    if volume.block:
        return HostPath(volume.name, path, "BlockDevice", volume.read_only, block=True)
    group = volume.fs_group if gives_to_group else None
    return HostPath(
        volume.name,
        posixpath.normpath(path),
        "Directory",
        volume.read_only,
        group,
        volume.fs_group_policy,
        relabels=not volume.read_only,
    )


def staging(volume: LocalVolume, device: Device, mounted: GlobalMount | None, *, shared: bool) -> Staging:
    """What to do with `mounted`, which is at the volume's global path; `shared`: other pods have it mounted.

    Raises Temporary when they use what is no longer the volume's device.
    """
    if mounted is None:
        return Staging.MOUNT
    if _is_other(device, mounted):
        if not shared:
            return Staging.REPLACE
        raise Temporary(
            f"other pods still use the device that was at {volume.path} before; now there is another one",
            action="End the pods of this node that use the volume: the new device is mounted after the last of them.",
        )
    if mounted.read_only and not is_read_only(volume):
        return Staging.MAKE_WRITABLE
    return Staging.KEEP


def _is_other(device: Device, mounted: GlobalMount) -> bool:
    return mounted.number != device.number and mounted.fs_type not in _ANONYMOUS


def check_growable(volume: LocalVolume, device: Device, mounted: GlobalMount | None) -> None:
    """Raises Temporary unless it is this device that is mounted at the volume's global path."""
    if mounted is None or _is_other(device, mounted):
        found = "nothing" if mounted is None else "another device"
        raise Temporary(
            f"{found} is mounted for the volume, and {device.path} is not",
            action="End the pods of this node that use the volume: its device is mounted anew for the next.",
        )


def grow_command(found: str, device: Device, path: str) -> tuple[str, ...]:
    """Makes the file system of type `found`, mounted at `path`, as large as its device; empty: it has none.

    Follows ResizeFs of mount-utils (resizefs_linux.go). Raises Temporary for a type that cannot grow.
    """
    match found:
        case "":
            return ()
        case "ext3" | "ext4":
            return ("resize2fs", device.path)
        case "xfs":
            return ("xfs_growfs", "-d", path)
        case "btrfs":
            return ("btrfs", "filesystem", "resize", "max", path)
    raise Temporary(
        f"resize of format {found} is not supported for device {device.path} mounted at {path}",
        action="Grow it by the tools of its file system, or use ext3, ext4, xfs or btrfs.",
    )


def is_read_only(volume: LocalVolume) -> bool:
    """Whether the pod, or the volume's own mount options, only read it: then it does not grow."""
    return "ro" in mount_options(volume)


def mount_options(volume: LocalVolume) -> tuple[str, ...]:
    """Options of the global mount, sorted as upstream does."""
    return tuple(sorted({*volume.mount_options, *(("ro",) if volume.read_only else ())}))


def mount_command(volume: LocalVolume, device: Device, target: str) -> tuple[str, ...]:
    """mount(8): it knows which options are flags and which are the file system's."""
    options = mount_options(volume)
    chosen = ("-o", ",".join(options)) if options else ()
    return ("mount", "-t", volume.fs_type, *chosen, "--", device.path, target)


def content(device: Device, found: Inspection) -> str:
    """The type of what is on the device, "" only if blkid finds nothing on a device that can be read.

    Raises Temporary when that cannot be said: such a device must not be formatted.
    """
    if found.status not in (0, _BLKID_NOTHING):
        why = f"blkid ended with status {found.status}: {found.output.strip()}"
        raise _unknown(device, why, f"`wipefs {device.path}` on the node lists what it has.")
    values = dict(line.split("=", 1) for line in found.output.splitlines() if "=" in line)
    if values.get("PTTYPE"):
        return PARTITIONS
    if found.status == 0 and not values.get("TYPE"):
        raise _unknown(device, f"blkid says {found.output!r}", f"Run `blkid -p {device.path}` on the node.")
    if values.get("TYPE"):
        return values["TYPE"]
    if found.problem or found.size == 0:
        why = found.problem or "it has no size: there is no disk behind it"
        raise _unknown(device, why, "See whether the disk is there and healthy (dmesg, lsblk).")
    return ""


def _unknown(device: Device, why: str, action: str) -> Temporary:
    return Temporary(f"failed to get disk format of disk {device.path}: {why}", action=action)


def format_command(volume: LocalVolume, device: Device) -> tuple[str, ...]:
    """For a device without content only. Raises Temporary if the volume is read-only."""
    if is_read_only(volume):
        raise Temporary(
            f"cannot mount unformatted disk {device.path} as we are manipulating it in read-only mode",
            action="Let a pod that may write use the claim first, or format the device yourself.",
        )
    return (f"mkfs.{volume.fs_type}", *_FORCED.get(volume.fs_type, ()), device.path)


def check_command(volume: LocalVolume, device: Device) -> tuple[str, ...]:
    """The check of a device that has a file system; empty for one that is only read."""
    return () if is_read_only(volume) else ("fsck", "-a", device.path)


def check_problem(device: Device, status: int, output: str) -> str:
    """Why the device must not be mounted after fsck ended with this status; "" if it may be."""
    if status != _UNCORRECTED:
        return ""
    return f"'fsck' found errors on device {device.path} but could not correct them: {output}"


def was_corrected(status: int) -> bool:
    return status == _CORRECTED


def advice(argv: Sequence[str], status: int | None) -> str:
    """What to do when a command ended with this status; 127: it could not be started, None: it took too long."""
    if status == _NOT_STARTED:
        return f"Install the package that has {argv[0]} on the node (e2fsprogs, xfsprogs, …)."
    return f"Run `{' '.join(argv)}` on the node, and see `dmesg`; the agent tries again."


def mismatch(volume: LocalVolume, found: str) -> str:
    """A hint for a mount that failed because the device has something else on it, or ""."""
    if found in ("", volume.fs_type):
        return ""
    return f"The device has {found}, and the PersistentVolume says {volume.fs_type}. It is never formatted again."


def failed(volume: LocalVolume, error: NodewrightError, step: str = "MountDevice") -> NodewrightError:
    """The error with upstream's words for the step, and the volume's name."""
    error.message = f'MountVolume.{step} failed for volume "{volume.spec_name}" : {error.message}'
    return error


def already_mounted(volume: LocalVolume, gid: int) -> str:
    """Message of the event AlreadyMountedVolume; "" if the pod asks for no group or for that of the volume."""
    if volume.fs_group in (None, gid):
        return ""
    return (
        f"The requested fsGroup is {volume.fs_group}, but the volume {volume.spec_name} has GID {gid}. "
        "The volume may not be shareable."
    )
