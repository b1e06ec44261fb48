"""Allocations as values: applied to pods, compared, ordered, written and read back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from agent.admission.plan.admit import NodeView, refusal
from agent.common.model.pods import Pod
from agent.common.plan.demand import counted_requests
from agent.resources.model import Allocation
from agent.resources.plan import allocation, checkpoint
from nodelib.errors import Invalid
from nodelib.json_values import Json
from tests.builders.pods import pod
from tests.unit.agent.pods.test_resize_plan import LARGE, SMALL, WAS, now_wanting, res, with_resources


def test_an_allocation_replaces_the_resources_of_the_spec() -> None:
    want = now_wanting(WAS, a=LARGE)
    got = allocation.applied(want, allocation.allocation_of(WAS))
    assert [one["resources"] for one in got.spec["containers"]] == [SMALL, SMALL]
    assert want.spec["containers"][0]["resources"] == LARGE, "the object itself is never changed"
    assert allocation.applied(want, allocation.allocation_of(want)) is want


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        pytest.param(SMALL, SMALL, True, id="same"),
        pytest.param(res("1"), res("1000m"), True, id="written-otherwise"),
        pytest.param({}, {"requests": {}}, True, id="absent-is-empty"),
        pytest.param(None, {}, True, id="none-is-empty"),
        pytest.param(res("1"), res("2"), False, id="more"),
        pytest.param(res("1"), res("1", max_cpu="1"), False, id="a-limit-added"),
    ],
)
def test_same(one: Json | None, other: Json | None, equal: bool) -> None:
    assert allocation.same_resources(one, other) is equal
    assert allocation.same(Allocation({"a": one or {}}), Allocation({"a": other or {}})) is equal
    assert allocation.same(Allocation({}, one), Allocation({}, other)) is equal


def test_a_container_of_only_one_allocation_is_ignored() -> None:
    assert allocation.same(Allocation({"a": SMALL}), Allocation({"a": SMALL, "b": LARGE}))


def test_pod_level_resources_come_and_go_with_the_allocation() -> None:
    want = pod(with_resources("a", SMALL), resources=res("2"))
    assert allocation.applied(want, Allocation({"a": SMALL}, res("1"))).spec["resources"] == res("1")
    assert "resources" not in allocation.applied(want, Allocation({"a": SMALL})).spec


def asking(name: str, to: Json, **spec: Any) -> Pod:
    return pod(with_resources("a", to), meta={"name": name}, **spec)


def test_the_order_in_which_waiting_resizes_are_tried() -> None:
    both = res("100m", "64Mi", "100m", "64Mi")
    more = res("200m", "64Mi", "200m", "64Mi")
    waiting = [
        (asking("late", LARGE), asking("late", SMALL), 200.0),
        (asking("early", LARGE), asking("early", SMALL), 100.0),
        (asking("guaranteed", more), asking("guaranteed", both), 300.0),
        (asking("important", LARGE, priority=10), asking("important", SMALL), 400.0),
        (asking("shrinking", SMALL), asking("shrinking", LARGE), 500.0),
    ]
    found = [one.name for one in allocation.pending_order(waiting)]
    assert found == ["shrinking", "important", "guaranteed", "early", "late"]


@pytest.mark.parametrize(
    ("status", "cpu"),
    [
        pytest.param({}, "0.1", id="nothing-shown"),
        pytest.param({"allocatedResources": {"cpu": "50m"}}, "0.1", id="less-shown"),
        pytest.param({"allocatedResources": {"cpu": "300m"}}, "0.3", id="allocated-more"),
        pytest.param({"resources": {"requests": {"cpu": "400m"}}}, "0.4", id="still-in-force"),
    ],
)
def test_what_a_running_pod_counts_for(status: Json, cpu: str) -> None:
    assert counted_requests(pod(with_resources("a", SMALL), status=status))["cpu"] == Decimal(cpu)


def test_a_pod_that_shrinks_leaves_room_only_when_it_has_shrunk() -> None:
    node = NodeView(allocatable={"cpu": "500m", "memory": "1Gi", "pods": "10"})
    status = {"resources": {"requests": {"cpu": "400m"}}}
    shrinking = pod(with_resources("a", SMALL), meta={"uid": "x"}, status=status)
    shrunk = pod(with_resources("a", SMALL), meta={"uid": "x"}, status={"resources": {"requests": {"cpu": "100m"}}})
    asks = pod(with_resources("a", LARGE), meta={"uid": "y"})
    found = refusal(asks, [shrinking], node)
    assert found is not None and found.reason == "OutOfcpu"
    assert found.message == "Node didn't have enough resource: cpu, requested: 200, used: 400, capacity: 500"
    assert refusal(asks, [shrunk], node) is None
    assert allocation.shrank(shrinking, shrunk) and not allocation.shrank(shrunk, shrinking)


# --- checkpoints


def test_a_checkpoint_reads_back() -> None:
    entries = {"u2": Allocation({"b": LARGE, "a": SMALL}, res("1")), "u1": Allocation({})}
    assert checkpoint.decode(checkpoint.encode(entries)) == entries


def test_the_checksum_is_that_of_go() -> None:
    # fnv.New32a over k8s.io/utils/dump.ForHash of the string, as upstream's checkpointmanager has it.
    assert checkpoint.checksum('{"entries":{"u":{}}}') == 1106369546


def test_the_text_is_upstreams() -> None:
    text = checkpoint.encode({"u": Allocation({"a": {"requests": {"cpu": "1"}}})})
    data = (
        r"{\"entries\":{\"u\":{\"ContainerResources\":{\"a\":{\"requests\":{\"cpu\":\"1\"}}},"
        r"\"PodLevelResources\":null,\"EmptyDirVolumeLimits\":null}}}"
    )
    assert text.startswith(f'{{"data":"{data}","checksum":')


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"data":"{}"}', '{"data":"{}","checksum":1}', '{"data":3,"checksum":1}', "\x00" * 9],
)
def test_invalid_checkpoints_are_refused(text: str) -> None:
    with pytest.raises(Invalid, match=r"checkpoint|checksum"):
        checkpoint.decode(text)
