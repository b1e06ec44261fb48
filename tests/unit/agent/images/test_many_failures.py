"""A pod whose thousands of images cannot be pulled."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from agent.common.model.pods import Pod
from agent.images.model.pulls import UnreadSecret
from agent.images.plan.images import Wanted
from agent.images.work.images import ImageManager, ImageManagerDeps
from tests.builders.metrics import metrics
from tests.builders.pods import container, pod
from tests.fakes.clock import FakeClock


def manager() -> Any:
    unused: Any = None
    events: Any = SimpleNamespace(emit=lambda *what, **more: None)
    deps = ImageManagerDeps(unused, unused, events, FakeClock(), unused, metrics(), lambda *what: None)
    return ImageManager(deps)


def fail(made: Any, who: Pod, *images: str) -> None:
    for image in images:
        made._pull_failed(who, Wanted("main", image, "Always"), 0, "no such host", lambda key, state: None)


def test_no_back_off_gives_way_to_those_of_another_pod() -> None:
    """There was room for a thousand: a pod with more, and all other pods, tried each image once a second."""
    made, names = manager(), [f"evil.example/{number}" for number in range(3000)]
    greedy = pod(*(container(f"c{number}") for number in range(3000)), meta={"uid": "greedy"})
    other = pod(container(), meta={"uid": "other"})
    fail(made, other, "reg.io/app")
    for _ in range(3):
        fail(made, greedy, *names)
    assert made._backoff["other"].keys() == {"reg.io/app"}
    assert {one.delay for one, _ in made._backoff["greedy"].values()} == {40.0}
    made.remove("greedy")
    assert made._backoff.keys() == {"other"}


def test_a_pod_that_is_gone_leaves_no_word_of_its_secrets() -> None:
    made, who = manager(), pod(container(), meta={"uid": "u"})
    made.unread_secrets.note(who, (UnreadSecret("regcred"),))
    assert made.unread_secrets.of("u")
    made.remove("u")
    assert not made.unread_secrets.of("u")


def test_images_that_change_without_end() -> None:
    made, who = manager(), pod(container(), meta={"uid": "u"})
    fail(made, who, *(f"evil.example/{number}" for number in range(3000)))
    assert len(made._backoff["u"]) == 17 and "evil.example/2999" in made._backoff["u"]
