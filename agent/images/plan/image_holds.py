"""What holds each image, for the report and for the message of an event."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from agent.common.model.pods import ContainerState, ImageFacts
from agent.common.plan.sizes import size_of
from agent.images.model.images import HeldImage, Hold, HoldReason
from agent.images.plan.image_gc import ImageGcPolicy, Records, old_enough, removable
from nodelib.durations import roughly

Users = Mapping[str, tuple[Hold, ...]]  # by any name of an image
_WORDS = {
    HoldReason.CONTAINER: "used by containers",
    HoldReason.VOLUME: "shown by image volumes",
    HoldReason.PINNED: "pinned",
    HoldReason.YOUNG: "too new to go",
}
_SHOWN = 3  # of the largest


def users(containers: Iterable[ContainerState], mounted: Iterable[tuple[str, ContainerState]]) -> Users:
    """The containers that use each image, running or not. `mounted`: images of image volumes, each with a container."""
    found: defaultdict[str, dict[Hold, None]] = defaultdict(dict)
    for one in containers:
        for name in (one.image_id, one.image_ref, one.image):
            if name:
                found[name][Hold(HoldReason.CONTAINER, _who(one))] = None
    for name, one in mounted:
        found[name][Hold(HoldReason.VOLUME, _who(one))] = None
    return {name: tuple(holds) for name, holds in found.items()}


def held(
    images: Iterable[ImageFacts], records: Records, using: Users, policy: ImageGcPolicy, now: float
) -> tuple[HeldImage, ...]:
    """First the images that can be removed, in order, then the others. `records`: of these images, as of `now`."""
    facts = {one.id: one for one in images}
    order = {one.id: None for one in old_enough(removable(records, now), policy, now)}
    rest = sorted(records.keys() - order.keys(), key=lambda one: (-records[one].size, one))
    return tuple(_held(facts[one], records, using, policy, now, free=one in order) for one in (*order, *rest))


def _held(
    image: ImageFacts, records: Records, using: Users, policy: ImageGcPolicy, now: float, *, free: bool
) -> HeldImage:
    record, names = records[image.id], (*image.repo_tags, *image.repo_digests)
    holds = dict.fromkeys(hold for name in (image.id, *names) for hold in using.get(name, ()))
    if image.pinned:
        holds[Hold(HoldReason.PINNED)] = None
    if not free and not holds:
        left = policy.min_age - (now - record.detected)
        holds[Hold(HoldReason.YOUNG, f"for {roughly(left)} more")] = None
    return HeldImage(image.id, names, image.size, record.detected, record.used, tuple(holds))


def holds_text(images: Iterable[HeldImage]) -> str:
    """What holds images: "1.2 GiB in 8 images used by containers, …; the largest: …". "" when none is held."""
    kept = sorted((one for one in images if one.holds), key=lambda one: -one.size)
    parts = []
    for kind, words in _WORDS.items():
        some = [one for one in kept if one.holds[0].kind is kind]
        if some:
            count = f"{len(some)} image{'s' if len(some) > 1 else ''}"
            parts.append(f"{size_of(sum(one.size for one in some))} in {count} {words}")
    if not parts:
        return ""
    largest = ", ".join(f"{one.name} ({size_of(one.size)}, {hold_text(one)})" for one in kept[:_SHOWN])
    return f"{', '.join(parts)}; the largest: {largest}"


def hold_text(image: HeldImage) -> str:
    """What holds this image, in short."""
    first, more = image.holds[0], len(image.holds) - 1
    words = f"{first.kind.value} {first.who}".strip()
    if first.kind is HoldReason.YOUNG:
        words = f"too new, {first.who}"
    return f"{words} and {more} more" if more else words


def to_go(images: Iterable[HeldImage], wanted: int) -> tuple[tuple[HeldImage, ...], int]:
    """The images to remove so that `wanted` bytes are freed, and the bytes that they free."""
    going, freed = [], 0
    for one in images:
        if one.holds or freed >= wanted:
            break
        going.append(one)
        freed += one.size
    return tuple(going), freed


def _who(one: ContainerState) -> str:
    pod = "/".join(one.labels.get(f"io.kubernetes.pod.{part}", "?") for part in ("namespace", "name"))
    return f"{pod}[{one.name}]"
