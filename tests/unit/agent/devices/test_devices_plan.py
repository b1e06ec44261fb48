"""Which devices a container gets, what it is created with, and what is reported about devices."""

from __future__ import annotations

import pytest

from agent.devices.model.devices import (
    AllocationKey,
    Device,
    DeviceAllocation,
    DeviceGrant,
    PodDevices,
    RegisteredPlugin,
)
from agent.devices.plan import device_checkpoint, devices
from agent.devices.plan.pod_resources import allocatable, pod_resources
from agent.managers.model.memory_blocks import Block
from nodelib.errors import Invalid, Permanent
from tests.builders.pods import container, pod

GPU = "acme.com/gpu"
A = AllocationKey("u-a", "main", GPU)
MINE = AllocationKey("u", "main", GPU)


def plugin(*healthy: str, sick: tuple[str, ...] = (), connected: bool = True) -> RegisteredPlugin:
    found = [Device(one) for one in healthy] + [Device(one, healthy=False) for one in sick]
    return RegisteredPlugin({one.id: one for one in found}, connected)


def allocations(key: AllocationKey, *ids: str) -> PodDevices:
    return {key: DeviceAllocation(frozenset(ids), numa={-1: ids})}


@pytest.mark.parametrize(
    ("count", "existing", "registered", "reusable", "expected"),
    [
        pytest.param(2, {}, plugin("1", "2", "3"), (), (set(), {"1", "2", "3"}, 2), id="from what is free"),
        pytest.param(1, allocations(A, "1"), plugin("1", "2"), (), (set(), {"2"}, 1), id="not what others have"),
        pytest.param(1, {}, plugin("2", sick=("1",)), (), (set(), {"2"}, 1), id="not what is sick"),
        pytest.param(2, {}, plugin("1", "2"), ("2",), ({"2"}, {"1", "2"}, 1), id="first what the pod had before"),
        pytest.param(1, allocations(MINE, "1"), plugin("1"), (), None, id="it has them already"),
        pytest.param(2, allocations(A, "1"), plugin("1", "2"), (), "Requested: 2, Available: 1", id="too few"),
        pytest.param(1, {}, None, (), "cannot allocate unregistered device acme.com/gpu", id="no plugin offers it"),
        pytest.param(1, {}, plugin("1", connected=False), (), "no healthy devices present", id="its plugin is gone"),
        pytest.param(
            1, allocations(MINE, "1"), plugin("2", sick=("1",)), (), "no longer healthy", id="its own are sick"
        ),
        pytest.param(2, allocations(MINE, "1"), plugin("1", "2"), (), "from 1 to 2", id="another number than before"),
    ],
)
def test_candidates(
    count: int, existing: PodDevices, registered: RegisteredPlugin | None, reusable: tuple[str, ...], expected: object
) -> None:
    request = devices.DeviceRequest(MINE, count, False)
    if isinstance(expected, str):
        with pytest.raises(Permanent, match=expected) as caught:
            devices.candidates_for(request, existing, registered, frozenset(reusable))
        assert str(caught.value.message).endswith(", which is unexpected")
        return
    found = devices.candidates_for(request, existing, registered, frozenset(reusable))
    assert (found and (set(found.required), set(found.available), found.needed)) == expected


def test_the_plugin_is_asked_but_not_obeyed_blindly() -> None:
    candidates = devices.Candidates(frozenset({"9"}), frozenset({"1", "2", "3"}), 2)
    assert devices.selected(candidates, ["3", "7"]) == {"9", "3", "1"}
    assert devices.selected(candidates, []) == {"9", "1", "2"}


def test_requests_in_order_and_only_for_what_plugins_offer() -> None:
    limits = {"limits": {GPU: "2", "cpu": "1", "other.com/x": "1"}}
    subject = pod(
        container(name="main", resources=limits),
        initContainers=[
            container(name="first", resources=limits),
            container(name="side", restartPolicy="Always", resources=limits),
        ],
    )
    found = [(one.key.container, one.count, one.reusable) for one in devices.device_requests(subject, [GPU])]
    assert found == [("first", 2, True), ("side", 2, False), ("main", 2, False)]


def test_what_init_containers_had_is_used_again_but_not_a_sidecars() -> None:
    subject = pod(
        container(name="main"),
        initContainers=[container(name="first"), container(name="side", restartPolicy="Always")],
    )
    uid = subject.uid
    has = {
        **allocations(AllocationKey(uid, "first", GPU), "1", "2"),
        **allocations(AllocationKey(uid, "side", GPU), "2"),
    }
    request = devices.DeviceRequest(AllocationKey(uid, "main", GPU), 1, False)
    assert devices.reusable_devices(subject, request, has) == {"1"}


RESPONSE = {
    "envs": {"D": "1"},
    "mounts": [{"container_path": "/c", "host_path": "/h", "read_only": True}],
    "devices": [{"container_path": "/dev/a", "host_path": "/dev/b", "permissions": "rw"}],
    "annotations": {"n": "v"},
    "cdi_devices": [{"name": "acme.com/gpu=1"}],
}


def test_an_allocation_survives_the_checkpoint() -> None:
    near = {"1": Device("1", numa=(0,)), "2": Device("2", numa=(0, 1))}
    made = devices.allocation_from(frozenset({"1", "2"}), near, RESPONSE)
    assert made.numa == {0: ("1", "2"), 1: ("2",)} and made.grant.cdi_devices == ("acme.com/gpu=1",)
    text = device_checkpoint.encode({MINE: made}, {GPU: plugin("1")})
    assert device_checkpoint.decode(text) == ({MINE: made}, [GPU])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"Data": {"PodDeviceEntries": [{}]}}'])
def test_invalid_checkpoints_are_refused(text: str) -> None:
    with pytest.raises(Invalid):
        device_checkpoint.decode(text)


def test_grants_of_several_resources_together() -> None:
    one = DeviceGrant({"A": "1"}, ({"container_path": "/x", "host_path": "/1"},), (), {}, ("v/c=1",))
    two = DeviceGrant({"A": "2", "B": "2"}, ({"container_path": "/x", "host_path": "/2"},), (), {}, ("v/c=1", "v/c=2"))
    found = devices.merged([one, two])
    assert found.envs == {"A": "1", "B": "2"} and found.cdi_devices == ("v/c=1", "v/c=2")
    assert found.mounts == ({"container_path": "/x", "host_path": "/1"},)


def test_capacity_is_every_device_and_allocatable_the_healthy_ones() -> None:
    found = devices.node_extras({GPU: plugin("1", sick=("2",)), "b.com/x": plugin("1", connected=False)}, {"old.com/y"})
    assert found.capacity == {GPU: 2, "b.com/x": 1} and found.allocatable == {GPU: 1, "b.com/x": 0}
    assert found.removed == ("old.com/y",)


def test_a_plugin_that_does_not_come_back_is_removed() -> None:
    gone = RegisteredPlugin(stopped_at=100.0)
    assert devices.expired({GPU: gone}, (), 399.0) == [] and devices.expired({GPU: gone}, (), 400.0) == [GPU]
    assert devices.expired({GPU: gone}, {GPU}, 400.0) == [], "it has registered again"
    assert devices.expired({GPU: plugin("1")}, (), 1e9) == []
    assert devices.next_expiry({GPU: gone, "b.com/x": RegisteredPlugin(stopped_at=50.0)}, ()) == 350.0
    assert devices.next_expiry({GPU: gone, "b.com/x": plugin("1")}, {GPU}) is None


@pytest.mark.parametrize(
    ("version", "resource", "fine"),
    [
        pytest.param("v1beta1", "acme.com/gpu", True, id="fine"),
        pytest.param("v1alpha", "acme.com/gpu", False, id="version"),
        pytest.param("v1beta1", "gpu", False, id="no domain"),
        pytest.param("v1beta1", "kubernetes.io/gpu", False, id="not its own domain"),
        pytest.param("v1beta1", "requests.acme.com/gpu", False, id="a quota's name"),
        pytest.param("v1beta1", "acme.com/", False, id="no name"),
    ],
)
def test_registration(version: str, resource: str, fine: bool) -> None:
    if fine:
        devices.check_registration(version, resource)
    else:
        with pytest.raises(Invalid):
            devices.check_registration(version, resource)


def test_health_of_what_a_pod_has() -> None:
    has = allocations(MINE, "1", "2", "3")
    found = devices.health_status("u", {**has, **allocations(A, "4")}, {GPU: plugin("1", sick=("2",))})
    shown = [(one["resourceID"], one["health"]) for one in found["main"][0]["resources"]]
    assert shown == [("1", "Healthy"), ("2", "Unhealthy"), ("3", "Healthy")] and list(found) == ["main"]


def test_podresources_answers() -> None:
    subject = pod(container(name="main"), initContainers=[container(name="once")])
    has = {
        AllocationKey(subject.uid, "main", GPU): DeviceAllocation(frozenset({"1", "2"}), numa={0: ("1",), -1: ("2",)})
    }
    found = pod_resources(subject, has)
    assert [one["name"] for one in found["containers"]] == ["main"]
    assert found["containers"][0]["devices"] == [
        {"resource_name": GPU, "device_ids": ["2"]},
        {"resource_name": GPU, "device_ids": ["1"], "topology": {"nodes": [{"ID": 0}]}},
    ]
    assert allocatable({GPU: plugin("1", sick=("2",))})["devices"] == [{"resource_name": GPU, "device_ids": ["1"]}]


def test_podresources_of_cpus_and_memory() -> None:
    subject, block = pod(container(name="main")), Block((0, 1), "memory", 64)
    owner, near = (subject.uid, "main"), {"nodes": [{"ID": 0}, {"ID": 1}]}
    found = pod_resources(subject, {}, cpus={owner: frozenset({3, 1})}, memory={owner: (block,)})["containers"][0]
    assert found["cpu_ids"] == [1, 3]
    assert found["memory"] == [{"memory_type": "memory", "size": 64, "topology": near}]
    answer = allocatable({}, frozenset({2, 1}), [block])
    assert (answer["cpu_ids"], answer["memory"]) == ([1, 2], found["memory"])
