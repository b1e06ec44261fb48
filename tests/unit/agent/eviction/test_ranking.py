"""Which pod is evicted first, what the node frees before that, and the message of an evicted pod."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.eviction.model import Candidate, EvictionPolicy, Observation, Threshold
from agent.eviction.plan import messages, ranking
from agent.eviction.plan.thresholds import share
from agent.stats.model import FsUsage
from tests.builders.pods import container, pod
from tests.unit.agent.eviction.usage import MIB, candidate, used_by


@pytest.mark.parametrize(
    ("signal", "image_fs", "candidates", "expect"),
    [
        pytest.param(
            "memory.available",
            False,
            [candidate("within", request="100Mi", memory=99 * MIB), candidate("over", request="10Mi", memory=11 * MIB)],
            ["over", "within"],
            id="over its request before others",
        ),
        pytest.param(
            "memory.available",
            False,
            [candidate("dear", priority=10, memory=900 * MIB), candidate("cheap", memory=MIB)],
            ["cheap", "dear"],
            id="lower priority before more use",
        ),
        pytest.param(
            "memory.available",
            False,
            [candidate("little", memory=MIB), candidate("much", request="50Mi", memory=100 * MIB)],
            ["much", "little"],
            id="more above its request before less",
        ),
        pytest.param(
            "memory.available",
            False,
            [candidate("known", memory=900 * MIB), candidate("unknown", known=False)],
            ["unknown", "known"],
            id="of which nothing is known",
        ),
        pytest.param(
            "pid.available",
            False,
            [
                candidate("few", processes=1),
                candidate("many", processes=9),
                candidate("dear", priority=1, processes=99),
            ],
            ["many", "few", "dear"],
            id="processes: priority, then number",
        ),
        pytest.param(
            "nodefs.available",
            False,
            [candidate("logs", logs=20), candidate("layer", layer=30), candidate("volume", volume=40)],
            ["volume", "layer", "logs"],
            id="one disk: all parts count",
        ),
        pytest.param(
            "nodefs.available",
            True,
            [candidate("layer", layer=900), candidate("logs", logs=20)],
            ["logs", "layer"],
            id="disk of volumes: layers are elsewhere",
        ),
        pytest.param(
            "imagefs.available",
            True,
            [candidate("logs", logs=900), candidate("layer", layer=20)],
            ["layer", "logs"],
            id="disk of images: logs are elsewhere",
        ),
        pytest.param(
            "nodefs.inodesFree",
            False,
            [candidate("bytes", layer=900, inodes=1), candidate("files", inodes=20)],
            ["files", "bytes"],
            id="inodes",
        ),
    ],
)
def test_ranked(signal: str, image_fs: bool, candidates: list[Candidate], expect: list[str]) -> None:
    for given in (candidates, candidates[::-1]):
        assert [one.pod.name for one in ranking.ranked(given, signal, image_fs=image_fs)] == expect


@pytest.mark.parametrize(
    ("signal", "image_fs", "expect"),
    [
        ("memory.available", False, ()),
        ("pid.available", False, ()),
        ("nodefs.available", False, ("containers", "images")),
        ("nodefs.available", True, ()),
        ("imagefs.inodesFree", True, ("containers", "images")),
    ],
)
def test_what_goes_before_any_pod(signal: str, image_fs: bool, expect: tuple[str, ...]) -> None:
    assert ranking.reclaimable(signal, image_fs=image_fs) == expect


HARD = Threshold("memory.available", share("100Mi"))
SOFT = Threshold("memory.available", share("100Mi"), 30)
SEEN = {"memory.available": Observation(10 * MIB, 1000 * MIB), "nodefs.inodesFree": Observation(7, 1000)}


def test_the_words_of_upstream() -> None:
    one = candidate("hungry", request="10Mi", memory=20 * MIB)
    found = messages.eviction(one, HARD, [HARD], SEEN, EvictionPolicy())
    assert found.message == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 10Mi. "
        "Container main was using 20Mi, request is 10Mi, has larger consumption of memory. "
    )
    assert (found.reason, found.grace, found.disrupted, found.signal) == ("Evicted", 1, True, "memory.available")
    assert found.annotations == {
        "offending_containers": "main",
        "offending_containers_usage": "20Mi",
        "starved_resource": "memory",
    }


def test_a_pod_with_resources_of_its_own_is_named() -> None:
    made = pod(container(), meta={"name": "whole", "uid": "whole"}, resources={"requests": {"memory": "5Mi"}})
    found = messages.eviction(Candidate(made, used_by("whole", memory=6 * MIB)), HARD, [], {}, EvictionPolicy())
    assert "Pod whole was using 6Mi, request is 5Mi, has larger consumption of memory. " in found.message
    assert found.annotations["offending_pod"] == "whole"


def test_inodes_are_shown_as_numbers() -> None:
    target = Threshold("nodefs.inodesFree", share("50"))
    found = messages.eviction(candidate("x"), target, [target], SEEN, EvictionPolicy())
    assert found.message == "The node was low on resource: inodes. Threshold quantity: 50, available: 7. "


@pytest.mark.parametrize(
    ("target", "own", "most", "expect"),
    [(HARD, 30, 60, 1), (SOFT, 30, 60, 30), (SOFT, 30, 5, 5), (SOFT, 30, 0, 0)],
    ids=["hard: at once", "soft: its own", "soft: bounded", "soft: nothing is granted"],
)
def test_grace(target: Threshold, own: int, most: int, expect: int) -> None:
    one = Candidate(pod(terminationGracePeriodSeconds=own), None)
    assert messages.eviction(one, target, [target], SEEN, EvictionPolicy(max_grace=most)).grace == expect


@pytest.mark.parametrize(("signal", "first"), [("nodefs.available", "hidden"), ("memory.available", "big")])
def test_a_pod_whose_disk_usage_cannot_be_measured_goes_first_when_the_disk_is_full(signal: str, first: str) -> None:
    hidden, big = candidate("hidden"), candidate("big", memory=100 * MIB, volume=100 * MIB)
    assert hidden.usage is not None
    unread = replace(hidden.usage, own_files=FsUsage(1, unread="a: Input/output error"))
    order = ranking.ranked([big, replace(hidden, usage=unread)], signal, image_fs=False)
    assert order[0].pod.name == first
