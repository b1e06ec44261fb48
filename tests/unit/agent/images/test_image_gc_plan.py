"""Which images are removed, in which order, and how many."""

from __future__ import annotations

import pytest

from agent.common.model.pods import ContainerState, ImageFacts, RunState
from agent.images.plan import image_gc as plan
from agent.images.plan.image_gc import ImageGcPolicy, ImageRecord

NOW = 10_000.0


def image(name: str, *, size: int = 10, pinned: bool = False) -> ImageFacts:
    return ImageFacts(f"sha256:{name}", (f"{name}:1",), (f"{name}@sha256:{name}",), size, pinned=pinned)


def user(image_id: str) -> ContainerState:
    return ContainerState("c", "s", "u", "main", 0, RunState.EXITED, 1, image_id=image_id)


def test_in_use_by_a_container_even_an_ended_one_and_by_a_volume() -> None:
    assert plan.in_use([user("sha256:a")], ["sha256:v"]) == {"sha256:a", "sha256:v"}


def test_uses_are_recorded_and_records_of_gone_images_removed() -> None:
    first = plan.noted({}, [image("a"), image("b")], frozenset({"sha256:a"}), 100)
    assert (first["sha256:a"].used, first["sha256:b"].used) == (100, 0)
    later = plan.noted(first, [image("a")], frozenset(), 200)
    assert list(later) == ["sha256:a"]
    assert (later["sha256:a"].used, later["sha256:a"].detected) == (100, 100)


@pytest.mark.parametrize("name", ["a:1", "a@sha256:a", "sha256:a"])
def test_an_image_is_known_by_each_of_its_names(name: str) -> None:
    assert plan.noted({}, [image("a")], frozenset({name}), 100)["sha256:a"].used == 100


def test_least_recently_used_first_and_neither_used_nor_pinned_ones() -> None:
    records = plan.noted({}, [image(name) for name in "abcd"] + [image("p", pinned=True)], frozenset({"sha256:a"}), 100)
    records = plan.noted(records, [*map(image, "abcde"), image("p", pinned=True)], frozenset({"sha256:b"}), 200)
    records = plan.noted(records, [*map(image, "abcde"), image("p", pinned=True)], frozenset({"sha256:d"}), 300)
    assert [one.id for one in plan.removable(records, 300)] == [f"sha256:{name}" for name in "ceab"]


@pytest.mark.parametrize(
    ("policy", "available", "expect"),
    [
        (ImageGcPolicy(85, 80), 160, 0),
        (ImageGcPolicy(85, 80), 150, 50),
        (ImageGcPolicy(85, 80), 0, 200),
        (ImageGcPolicy(85, 80), 2000, 0),
        (ImageGcPolicy(0, 0), 900, 100),
    ],
    ids=["below", "at the high one", "full", "more available than there is", "all of it"],
)
def test_how_much_is_to_be_freed(policy: ImageGcPolicy, available: int, expect: int) -> None:
    assert plan.bytes_to_free(policy, 1000, available) == expect


@pytest.mark.parametrize(
    ("max_age", "began", "expect"),
    [(0.0, 0.0, []), (100.0, NOW - 100, []), (100.0, NOW - 101, ["never", "long"])],
    ids=["no limit", "uses are not known for long enough", "those beyond it"],
)
def test_too_old(max_age: float, began: float, expect: list[str]) -> None:
    free = [ImageRecord("never", 0), ImageRecord("long", 0, NOW - 101), ImageRecord("lately", 0, NOW - 99)]
    assert [one.id for one in plan.too_old(free, ImageGcPolicy(max_age=max_age), began, NOW)] == expect


def test_an_image_that_was_just_pulled_stays() -> None:
    free = [ImageRecord("old", NOW - 120), ImageRecord("new", NOW - 119)]
    assert [one.id for one in plan.old_enough(free, ImageGcPolicy(), NOW)] == ["old"]


def test_the_messages_are_upstreams() -> None:
    text = plan.not_enough(10 << 30, 1 << 30, 5)
    assert text.startswith("Insufficient free disk space on the node's image filesystem (90% of 10.0 GiB used). ")
    assert "(freed 5 bytes)" in text
