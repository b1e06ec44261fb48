"""Capabilities of volumes: access modes, file systems, mount options."""

from __future__ import annotations

from collections.abc import Sequence

from csi.model import Access, Image, Mode
from nodelib.json_values import Json
from nodelib.plugin_apis.errors import Refused
from nodelib.text import one_line

FILE_SYSTEMS = ("ext4", "xfs")
_DEFAULT = "ext4"
# SINGLE_NODE_WRITER, SINGLE_NODE_READER_ONLY, SINGLE_NODE_SINGLE_WRITER, SINGLE_NODE_MULTI_WRITER
_MODES = frozenset((1, 2, 6, 7))
_SINGLE_WRITER = 6
_MOST = 64  # options

# mount(2). Every other option is refused: ext4's "errors=panic" would end the machine, and not only the node of a pod.
_SET = {
    "ro": 1, "nosuid": 2, "nodev": 4, "noexec": 8, "sync": 16, "dirsync": 128, "noatime": 1024, "nodiratime": 2048,
    "relatime": 1 << 21, "strictatime": 1 << 24, "lazytime": 1 << 25,
}  # fmt: skip
_CLEAR = {"rw": 1, "suid": 2, "dev": 4, "exec": 8, "async": 16, "atime": 1024, "diratime": 2048}
_DATA = {
    "ext4": frozenset(
        [
            "discard",
            "nodiscard",
            "barrier",
            "nobarrier",
            "user_xattr",
            "acl",
            "delalloc",
            "nodelalloc",
            "data=ordered",
            "data=journal",
            "errors=remount-ro",
            "errors=continue",
        ]
    ),
    "xfs": frozenset(["discard", "nodiscard", "inode32", "inode64", "largeio", "nolargeio", "swalloc"]),
}
_ALWAYS = {"ext4": "errors=remount-ro", "xfs": "nouuid"}  # a clone has the UUID of its source
READ_ONLY = 1
"""MS_RDONLY"""


def mode_of(capability: Json) -> Mode:
    """Raises Refused when it is neither for a mount nor for a block device."""
    mount, block = "mount" in capability, "block" in capability
    if mount == block:
        raise Refused("INVALID_ARGUMENT", "a capability has to say mount or block")
    return Mode.BLOCK if block else Mode.MOUNT


def common(capabilities: Sequence[Json]) -> tuple[Mode, str]:
    """How a new volume with these capabilities is made: mode and file system ("": the default). Raises Refused."""
    if not capabilities:
        raise Refused("INVALID_ARGUMENT", "the capabilities are missing")
    modes, systems = set(), set()
    for one in capabilities[:_MOST]:
        problem = unsupported(one)
        if problem:
            raise Refused("INVALID_ARGUMENT", problem)
        modes.add(mode_of(one))
        systems.add(_named(one))
    if len(modes) > 1:
        raise Refused("INVALID_ARGUMENT", "a volume is either mounted or a block device, not both")
    systems.discard("")
    if len(systems) > 1:
        raise Refused("INVALID_ARGUMENT", f"a volume has one file system, not {' and '.join(sorted(systems))}")
    return modes.pop(), next(iter(systems), "")


def file_system(mode: Mode, asked: str) -> str:
    """The file system of a new volume without a source; "" of a block device."""
    return "" if mode is Mode.BLOCK else asked or _DEFAULT


def unsupported(capability: Json) -> str:
    """Why the driver has no such volumes, "" if it has."""
    number = int((capability.get("access_mode") or {}).get("mode") or 0)
    if number == 0:
        raise Refused("INVALID_ARGUMENT", "a capability has no access mode")
    if number not in _MODES:
        return "a volume is on one node: ReadWriteMany and ReadOnlyMany cannot be had, use ReadWriteOnce"
    if mode_of(capability) is Mode.BLOCK:
        return ""
    fs_type = _named(capability)
    if fs_type and fs_type not in FILE_SYSTEMS:
        return unknown_file_system(fs_type)
    return _wrong_option(_options(capability), fs_type or _DEFAULT)


def unknown_file_system(name: str) -> str:
    """What to say of it."""
    return f"file system {one_line(name, 40)!r} is not one of {', '.join(FILE_SYSTEMS)}"


def of(capability: Json | None, image: Image, *, read_only: bool = False) -> Access:
    """How this volume shall be mounted. Raises Refused when it is of another kind."""
    if not capability:
        raise Refused("INVALID_ARGUMENT", "the volume capability is missing")
    problem = unsupported(capability) or misfit(capability, image)
    if problem:
        raise Refused("INVALID_ARGUMENT", problem)
    read_only = read_only or int(capability["access_mode"]["mode"]) == 2
    if image.mode is Mode.BLOCK:
        return Access(Mode.BLOCK, "", 0, "", read_only)
    flags, data = 0, [_ALWAYS[image.fs_type]]
    for option in _options(capability):
        flags = (flags | _SET.get(option, 0)) & ~_CLEAR.get(option, 0)
        if option in _DATA[image.fs_type]:
            data.append(option)
    return Access(Mode.MOUNT, image.fs_type, flags, ",".join(data), read_only)


def is_for_one(capability: Json) -> bool:
    """Whether only one pod may use the volume (ReadWriteOncePod)."""
    return int(capability["access_mode"]["mode"]) == _SINGLE_WRITER


def misfit(capability: Json, image: Image) -> str:
    """Why a volume that exists cannot be used so, "" if it can."""
    mode, fs_type = mode_of(capability), _named(capability)
    if mode is not image.mode:
        return f"the volume was made for {image.mode}, not for {mode}"
    if mode is Mode.MOUNT and fs_type and fs_type != image.fs_type:
        return f"the volume has {image.fs_type}, not {one_line(fs_type, 40)!r}"
    return _wrong_option(_options(capability), image.fs_type) if mode is Mode.MOUNT else ""


def _named(capability: Json) -> str:
    return str((capability.get("mount") or {}).get("fs_type") or "")


def _options(capability: Json) -> list[str]:
    flags = (capability.get("mount") or {}).get("mount_flags") or []
    return [option for flag in flags for option in str(flag).split(",") if option]


def _wrong_option(options: Sequence[str], fs_type: str) -> str:
    if len(options) > _MOST:
        return f"{len(options)} mount options are too many"
    known = _SET.keys() | _CLEAR.keys() | {"defaults"} | _DATA[fs_type]
    wrong = [one for one in options if one not in known]
    return f"mount option {one_line(wrong[0], 60)!r} is not allowed with {fs_type}" if wrong else ""
