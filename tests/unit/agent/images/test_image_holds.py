"""What holds images, and how the event describes it."""

from __future__ import annotations

import time

from agent.common.model.pods import ContainerState, ImageFacts, RunState
from agent.images.model.images import HeldImage, Hold, HoldReason
from agent.images.plan import image_gc, image_holds
from agent.images.plan.image_gc import ImageGcPolicy

NOW, MIB = 10_000.0, 1 << 20
POLICY = ImageGcPolicy(min_age=120)


def image(name: str, size: int, *, pinned: bool = False) -> ImageFacts:
    return ImageFacts(f"sha256:{name}", (f"r/{name}:1",), (), size * MIB, pinned=pinned)


def user(image_id: str, pod: str, container: str = "app") -> ContainerState:
    labels = {"io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.name": pod}
    return ContainerState("c", "s", "u", container, 0, RunState.RUNNING, 1, image_id=image_id, labels=labels)


IMAGES = [image("web", 300), image("data", 20), image("pause", 1, pinned=True), image("new", 40), image("old", 50)]


def held() -> dict[str, tuple[Hold, ...]]:
    return {one.names[0]: one.holds for one in _held()}


def _held() -> tuple[HeldImage, ...]:
    containers = [user("sha256:web", "web-0"), user("sha256:web", "web-1")]
    mounted = [("r/data:1", user("sha256:web", "web-0"))]
    known = [one for one in IMAGES if one.repo_tags != ("r/new:1",)]
    records = image_gc.noted({}, known, frozenset(), NOW - 500)
    used = image_gc.in_use(containers, (name for name, _ in mounted))
    records = image_gc.noted(records, IMAGES, used, NOW - 60)
    records = image_gc.noted(records, IMAGES, used, NOW)
    return image_holds.held(IMAGES, records, image_holds.users(containers, mounted), POLICY, NOW)


def test_each_image_says_what_holds_it() -> None:
    assert held() == {
        "r/old:1": (),
        "r/web:1": (Hold(HoldReason.CONTAINER, "shop/web-0[app]"), Hold(HoldReason.CONTAINER, "shop/web-1[app]")),
        "r/new:1": (Hold(HoldReason.YOUNG, "for 60 s more"),),
        "r/data:1": (Hold(HoldReason.VOLUME, "shop/web-0[app]"),),
        "r/pause:1": (Hold(HoldReason.PINNED),),
    }
    assert list(held())[:2] == ["r/old:1", "r/web:1"], "what goes first, then the largest"


def test_held_images_are_summed_up_by_kind_with_the_largest() -> None:
    assert image_holds.holds_text(_held()) == (
        "300 MiB in 1 image used by containers, 20 MiB in 1 image shown by image volumes, 1.0 MiB in 1 image pinned, "
        "40 MiB in 1 image too new to go; the largest: r/web:1 (300 MiB, container shop/web-0[app] and 1 more), "
        "r/new:1 (40 MiB, too new, for 60 s more), r/data:1 (20 MiB, volume shop/web-0[app])"
    )
    assert image_holds.holds_text(()) == ""


def test_a_dry_run_takes_only_what_may_go() -> None:
    going, freed = image_holds.to_go(_held(), 10 * MIB)
    assert ([one.name for one in going], freed) == (["r/old:1"], 50 * MIB)
    going, freed = image_holds.to_go(_held(), 100 * MIB)
    assert ([one.name for one in going], freed) == (["r/old:1"], 50 * MIB)


def test_thousands_of_images() -> None:
    """Each was looked for among all: 0.2 s of the event loop for 5,000, four times as much for twice as many."""
    images = [ImageFacts(f"sha256:{number:064}", (f"a:{number}",), (), 10) for number in range(5000)]
    records = image_gc.noted({}, images, frozenset(), 100.0)
    began = time.process_time()
    assert len(image_holds.held(images, records, {}, POLICY, NOW)) == 5000
    assert time.process_time() - began < 0.12
