"""Sizes of volumes, and whether there is room for them."""

from __future__ import annotations

from collections.abc import Iterable

from csi.model import Image, Mode, Space
from nodelib.json_values import Json
from nodelib.plugin_apis.errors import Refused
from nodelib.quantity import format_bytes

_MIB = 1 << 20
DEFAULT = 1 << 30
"""Bytes of a volume for which nobody said a size."""
LARGEST = 16 << 40
"""Bytes; ext4 has no larger files, with blocks of 4 KiB."""
_INLINE = 2
"""Of the room for volumes, inline ones have one part in so many together: no quota counts what pods declare."""
_LEAST = {"": 1 * _MIB, "ext4": 8 * _MIB, "xfs": 300 * _MIB}


def asked(capacity_range: Json | None) -> tuple[int, int]:
    """required_bytes and limit_bytes. Raises Refused."""
    found = capacity_range or {}
    required, limit = int(found.get("required_bytes") or 0), int(found.get("limit_bytes") or 0)
    if required < 0 or limit < 0:
        raise Refused("INVALID_ARGUMENT", "a size is negative")
    if limit and required > limit:
        raise Refused("OUT_OF_RANGE", f"{_text(required)} are required, and at most {_text(limit)} allowed")
    return required, limit


def chosen(required: int, limit: int, mode: Mode, fs_type: str, source: int = 0) -> int:
    """The size of a new volume: whole MiB, not less than what its content comes from. Raises Refused."""
    least = max(_LEAST.get(fs_type if mode is Mode.MOUNT else "", _MIB), source)
    size = _rounded(max(required or min(DEFAULT, limit or DEFAULT), least))
    if limit and size > limit:
        why = "its source has" if source > required else "the least is"
        raise Refused("OUT_OF_RANGE", f"{why} {_text(max(least, required))}, and at most {_text(limit)} are allowed")
    if size > LARGEST:
        raise Refused("OUT_OF_RANGE", f"{_text(size)} are required; a volume has at most {_text(LARGEST)}")
    return size


def grown(size: int, required: int, limit: int) -> int:
    """The size of a volume after an expansion; it never shrinks. Raises Refused."""
    found = max(size, _rounded(required))
    if limit and found > limit:
        raise Refused("OUT_OF_RANGE", f"the volume has {_text(size)}, and at most {_text(limit)} are allowed")
    if found > LARGEST:
        raise Refused("OUT_OF_RANGE", f"{_text(found)} are required; a volume has at most {_text(LARGEST)}")
    return found


def fits(size: int, required: int, limit: int) -> bool:
    """Whether a volume of this size is what such a request asks for."""
    return size >= required and (not limit or size <= limit)


def available(space: Space, volumes: Iterable[Image], reserve: float) -> int:
    """Bytes that can still be promised.

    Images are sparse: what volumes may still write counts as taken, and so does a share of the file system
    (`reserve`), without which the kubelet would evict pods. Snapshots are never written to.
    """
    promised = sum(max(0, one.size - space.occupied.get(one.id, 0)) for one in volumes)
    return max(0, space.free - promised - int(space.total * reserve))


def available_inline(space: Space, inline: Iterable[Image], reserve: float) -> int:
    """Bytes that can still be promised to inline volumes; `inline`: those that are there."""
    return max(0, int(space.total * (1 - reserve)) // _INLINE - sum(one.size for one in inline))


def check_room(needed: int, left: int, what: str = "volumes") -> None:
    """Raises Refused when there is not enough."""
    if needed > left:
        raise Refused(
            "RESOURCE_EXHAUSTED",
            f"{_text(needed)} are needed, and {_text(max(left, 0))} are left on this node for {what}. "
            "Delete volumes or snapshots that nobody needs, or make room on the node.",
        )


def _rounded(size: int) -> int:
    return -(-size // _MIB) * _MIB


def _text(size: int) -> str:
    return format_bytes(size)
