"""Which images to remove: those that have been unused for longest, and only as many as necessary.

Follows pkg/kubelet/images/image_gc_manager.go. Images in use and pinned images are never removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from agent.common.model.binding import config
from agent.common.model.durations import seconds
from agent.common.model.pods import ContainerState, ImageFacts
from agent.common.plan.sizes import scaled


@dataclass(frozen=True, slots=True)
class ImageGcPolicy:
    """Percent of the image file system, ages in seconds; `max_age` 0: no image is too old."""

    high: Annotated[int, config("imageGCHighThresholdPercent")] = 85
    low: Annotated[int, config("imageGCLowThresholdPercent")] = 80
    min_age: Annotated[float, config("imageMinimumGCAge", convert=seconds)] = 120.0
    max_age: Annotated[float, config("imageMaximumGCAge", convert=seconds)] = 0.0

    @property
    def off(self) -> bool:
        """Whether this policy never removes anything."""
        return self.high == 100 and self.max_age == 0


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """An image on the node: when it was first seen, when it was last seen in use (0: never), its size in bytes."""

    id: str
    detected: float
    used: float = 0.0
    size: int = 0
    pinned: bool = False


Records = Mapping[str, ImageRecord]


def in_use(containers: Iterable[ContainerState], mounted: Iterable[str]) -> frozenset[str]:
    """Ids of the images that containers, running or not, were made from; `mounted`: those of image volumes."""
    found = {name for one in containers for name in (one.image_id, one.image_ref, one.image) if name}
    return frozenset(found | set(mounted))


def noted(records: Records, images: Iterable[ImageFacts], used: frozenset[str], now: float) -> dict[str, ImageRecord]:
    """The records after listing `images` at `now`, without images that are gone."""
    found = {}
    for image in images:
        old = records.get(image.id) or ImageRecord(image.id, now)
        busy = not used.isdisjoint((image.id, *image.repo_tags, *image.repo_digests))
        found[image.id] = replace(old, used=now if busy else old.used, size=image.size, pinned=image.pinned)
    return found


def removable(records: Records, now: float) -> list[ImageRecord]:
    """Unused images that are not pinned, in the order of removal. `now`: of the last noted()."""
    free = [one for one in records.values() if not one.pinned and one.used < now]
    return sorted(free, key=lambda one: (one.used, one.detected, one.id))


def too_old(free: Iterable[ImageRecord], policy: ImageGcPolicy, began: float, now: float) -> list[ImageRecord]:
    """Images unused for longer than the maximum age. `began`: since when uses are recorded."""
    if not policy.max_age or now - began <= policy.max_age:
        return []
    return [one for one in free if now - one.used > policy.max_age]


def old_enough(free: Iterable[ImageRecord], policy: ImageGcPolicy, now: float) -> list[ImageRecord]:
    """Without images that may just have been pulled for a container that is about to start."""
    return [one for one in free if now - one.detected >= policy.min_age]


def usage_percent(capacity: int, available: int) -> int:
    """Percent of the file system in use."""
    return 100 - min(available, capacity) * 100 // capacity


def bytes_to_free(policy: ImageGcPolicy, capacity: int, available: int) -> int:
    """Bytes to free to get down to the low threshold; 0 below the high threshold."""
    if usage_percent(capacity, available) < policy.high:
        return 0
    return max(0, capacity * (100 - policy.low) // 100 - min(available, capacity))


def not_enough(capacity: int, available: int, freed: int, held: str = "") -> str:
    """The event's message when removing images is not enough. `held`: what holds those that remain."""
    kept = f" Images that may not go: {held}." if held else ""
    return (
        f"Insufficient free disk space on the node's image filesystem ({usage_percent(capacity, available)}% of "
        f"{_size(capacity)} used). Failed to free sufficient space by deleting unused images (freed {freed} bytes). "
        f"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.{kept}"
    )


def _size(count: int) -> str:
    # As upstream's formatSize does.
    value, unit = scaled(count)
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
