"""Pods that say that they are mirror pods: whoever may create pods can make thousands, and keep them by finalizers."""

from __future__ import annotations

import time

from agent.common.model.labels import CONFIG_HASH, CONFIG_MIRROR
from agent.common.model.pods import Pod
from agent.pods.plan.mirrors import CreateMirror, DeleteMirror, steps
from agent.static.plan import validation
from nodelib.json_values import Json
from tests.builders.pods import container, pod


def mirror(name: str, **meta: Json | str | int) -> Pod:
    return pod(container(), meta={"name": name, "uid": f"uid-{name}", "annotations": {CONFIG_MIRROR: "x"}, **meta})


def static(name: str) -> Pod:
    made = pod(container(), meta={"name": name, "uid": f"s-{name}", "annotations": {CONFIG_HASH: "h"}})
    return Pod(made.raw, "file")


def test_mirrors_of_static_pods_come_before_foreign_ones() -> None:
    """A thousand deletions, one after the other, came before the first creation."""
    shown = {one.full_name: one for one in map(mirror, ("a", "b"))}
    wanted = {one.full_name: one for one in map(static, ("b", "z"))}
    found = list(steps(wanted, shown, (), all_known=True))
    assert [type(one) for one in found] == [DeleteMirror, CreateMirror, DeleteMirror]
    assert [one.mirror.name for one in found if isinstance(one, DeleteMirror)] == ["b", "a"]
    assert len(list(steps(wanted, shown, (), all_known=False))) == 2
    assert not list(steps({}, shown, tuple(shown), all_known=True))


def test_what_waits_for_its_finalizers_is_not_asked_for_again() -> None:
    held = mirror("a", deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=0)
    asked = mirror("b", deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=30)
    shown = {one.full_name: one for one in (held, asked)}
    found = list(steps({}, shown, (), all_known=True))
    assert [one.mirror.name for one in found if isinstance(one, DeleteMirror)] == ["b"]


def test_names_that_are_there_twice() -> None:
    """Each of 20,000 was counted among all."""
    volumes = [{"name": f"v{number}", "emptyDir": {}} for number in range(20_000)]
    who = Pod(pod(container(), volumes=[*volumes, volumes[7]]).raw, "file")
    began = time.process_time()
    assert "volume 'v7' is there more than once" in list(validation.problems(who))
    assert time.process_time() - began < 3
