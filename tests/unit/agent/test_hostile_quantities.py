"""Amounts that an API server stores and no node has: every plan that reads one stays small, or the pod is invalid."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.admission.plan.admit import NodeView
from agent.admission.plan.preempt import admission
from agent.common.model.pod_settings import NodeContext
from agent.common.model.pods import Pod
from agent.common.plan.downward import resource_field
from agent.devices.plan.devices import device_requests
from agent.managers.plan.cpus import guaranteed_cpus
from agent.pods.plan.incoming import spec_problem
from agent.resources.plan import cgroups, container_limits
from agent.resources.plan.actuated import sizes
from agent.resources.plan.memory_qos import MemoryQos
from agent.volumes.model.sources import VolumeSources
from agent.volumes.plan.volumes import plan_volumes
from nodelib.errors import Invalid
from nodelib.json_values import Json
from nodelib.quantity import LARGEST

POD: Json = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u"},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"memory": "1Mi"}, "limits": {}}}]},
}
RESOURCES = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu")
MACHINE = container_limits.Machine(memory=4 << 30, cgroup_version=2, hugepage_sizes=(2 << 20,))
QOS = MemoryQos(throttling=0.9, reserves=True)


def _in_container(side: str, name: str) -> Callable[[Json, str], None]:
    def put(spec: Json, text: str) -> None:
        spec["containers"][0]["resources"].setdefault(side, {})[name] = text

    return put


def _in_pod(side: str, name: str) -> Callable[[Json, str], None]:
    def put(spec: Json, text: str) -> None:
        spec["resources"] = {side: {name: text}}

    return put


def _overhead(spec: Json, text: str) -> None:
    spec["overhead"] = {"cpu": text, "memory": text}


def _size_limit(medium: str) -> Callable[[Json, str], None]:
    def put(spec: Json, text: str) -> None:
        spec["volumes"] = [{"name": "v", "emptyDir": {"sizeLimit": text, "medium": medium}}]

    return put


def _page_size(spec: Json, text: str) -> None:
    spec["volumes"] = [{"name": "v", "emptyDir": {"medium": f"HugePages-{text}"}}]


def _resource_name(spec: Json, text: str) -> None:
    spec["containers"][0]["resources"] = {side: {f"hugepages-{text}": "1"} for side in ("requests", "limits")}


FIELDS = {
    **{f"{side}.{name}": _in_container(side, name) for side in ("requests", "limits") for name in RESOURCES},
    **{f"pod.{side}.{name}": _in_pod(side, name) for side in ("requests", "limits") for name in RESOURCES},
    "overhead": _overhead,
    "sizeLimit": _size_limit(""),
    "sizeLimit in memory": _size_limit("Memory"),
    "medium": _page_size,
    "hugepages name": _resource_name,
}
TEXTS = st.builds(
    "{}{}e{}".format,
    st.sampled_from(["", "-"]),
    st.sampled_from(["1", "0", "999999999999999999999", ".5"]),
    st.one_of(st.integers(-(10**9), 10**9), st.integers(-31, 31)),
)


@pytest.mark.parametrize("field", FIELDS)
@settings(max_examples=20, deadline=None)
@given(text=TEXTS)
def test_fuzz_quantity_in_every_field(field: str, text: str) -> None:
    _assert_every_plan_is_small(field, text)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("text", ["1e600000", "1e3000000", "1e30"])
def test_an_amount_that_an_api_server_stores(field: str, text: str) -> None:
    _assert_every_plan_is_small(field, text)


def _assert_every_plan_is_small(field: str, text: str) -> None:
    raw = copy.deepcopy(POD)
    FIELDS[field](raw["spec"], text)
    pod = Pod(raw)
    container = raw["spec"]["containers"][0]
    node = NodeContext(allocatable={"cpu": "4", "memory": "4Gi"})
    plans: list[Callable[[], object]] = [
        lambda: spec_problem(pod),
        lambda: vars_of(cgroups.limits_of_pod(pod, cgroups.Policy(memory=QOS))),
        lambda: container_limits.container_resources(pod, container, cgroups.Policy(memory=QOS), MACHINE),
        lambda: container_limits.sandbox_resources(pod, cgroups.Policy()),
        lambda: vars_of(sizes(container["resources"], raw["spec"].get("resources"))),
        lambda: repr(plan_volumes(pod, VolumeSources(), node)),
        lambda: repr(admission(pod, [], NodeView("n", allocatable={"cpu": "4", "memory": "4Gi", "pods": "9"}))),
        lambda: [one.count for one in device_requests(pod, ["example.com/gpu"])],
        lambda: guaranteed_cpus(pod, container),
        lambda: resource_field(pod, {"resource": "limits.memory", "divisor": "1"}, node, container),
        lambda: resource_field(pod, {"resource": "requests.cpu", "divisor": text}, node, container),
    ]
    for plan in plans:
        try:
            found = plan()
        except Invalid as error:
            found = str(error)
        _assert_bounded(found)


def vars_of(value: object) -> Json:
    return {name: getattr(value, name) for name in value.__slots__}  # type: ignore[attr-defined]  # a frozen dataclass


def _assert_bounded(found: object) -> None:
    """No number that a runtime or a kernel gets is beyond an int64 (CPUs: a thousand times that); no text is long."""
    if isinstance(found, dict):
        for one in found.values():
            _assert_bounded(one)
    elif isinstance(found, list | tuple):
        for one in found:
            _assert_bounded(one)
    elif isinstance(found, int):
        assert abs(found) <= LARGEST * 1000
    else:
        assert len(found if isinstance(found, str) else json.dumps(found, default=str)) < 2000
