"""Which files of a container's log go, which are packed, and what the current one becomes.

Follows upstream's container_log_manager.go: `N.log` is renamed to `N.log.<time>`, packed to
`N.log.<time>.gz` at the next rotation, and removed when there would be more than `max_files`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

_PACKED = ".gz"
_STAGED = ".tmp"


@dataclass(frozen=True, slots=True)
class RotationPlan:
    """File names: remove these, pack those, then rename the current log to `rotated`."""

    remove: tuple[str, ...]
    pack: tuple[str, ...]
    rotated: str


def plan_rotation(current: str, names: Iterable[str], max_files: int, now: float) -> RotationPlan:
    """`names`: the files of the folder; `now` in seconds since the epoch. `max_files` counts the current one too."""
    rotated = {name for name in names if name.startswith(f"{current}.")}
    # A packed file takes the place of its original; what a crash left half packed is worth nothing.
    unused = {name for name in rotated if name.endswith(_STAGED) or f"{name}{_PACKED}" in rotated}
    kept = sorted(rotated - unused)
    # After the rotation there are the new current log and the one just renamed.
    excess = kept[: max(0, len(kept) - max(0, max_files - 2))]
    pack = [name for name in kept if name not in excess and not name.endswith(_PACKED)]
    return RotationPlan(tuple(sorted(unused) + excess), tuple(pack), _free_name(current, rotated, now))


def _free_name(current: str, taken: set[str], now: float) -> str:
    # Two rotations in one second must not write over each other.
    while True:
        name = f"{current}.{datetime.fromtimestamp(now, UTC).strftime('%Y%m%d-%H%M%S')}"
        if not any(other.startswith(name) for other in taken):
            return name
        now += 1
