"""Which files of a container's log are removed or compressed, and the new name of the current one.

Follows upstream's container_log_manager.go: `N.log` is renamed to `N.log.<time>`, compressed to `N.log.<time>.gz` at
the next rotation, and removed when there would be more than `max_files`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

_PACKED = ".gz"
_STAGED = ".tmp"
_LENGTH = len(".20260102-030405")


@dataclass(frozen=True, slots=True)
class RotationPlan:
    """Names of the files to remove and to compress, and the name that the current log gets afterwards."""

    remove: tuple[str, ...]
    pack: tuple[str, ...]
    rotated: str


def plan_rotation(current: str, names: Iterable[str], max_files: int, now: float) -> RotationPlan:
    """`names` are the files of the folder, `now` is in seconds since the epoch. `max_files` counts the current log."""
    rotated = {name for name in names if name.startswith(f"{current}.")}
    # A compressed file replaces its original. A staged file is what a crash left half compressed.
    unused = {name for name in rotated if name.endswith(_STAGED) or f"{name}{_PACKED}" in rotated}
    kept = sorted(rotated - unused)
    # After the rotation the new current log and the one just renamed exist too.
    excess = kept[: max(0, len(kept) - max(0, max_files - 2))]
    pack = [name for name in kept[len(excess) :] if not name.endswith(_PACKED)]
    return RotationPlan(tuple(sorted(unused) + excess), tuple(pack), _free_name(current, rotated, now))


def _free_name(current: str, taken: set[str], now: float) -> str:
    # Two rotations within one second must not overwrite each other.
    known = {name[: len(current) + _LENGTH] for name in taken}
    while True:
        name = f"{current}.{datetime.fromtimestamp(now, UTC).strftime('%Y%m%d-%H%M%S')}"
        if name not in known:
            return name
        now += 1
