"""Device plugins that name NUMA nodes which the machine does not have, on a node with a topology policy."""

from __future__ import annotations

import time

import pytest

from agent.devices.model.devices import Device, RegisteredPlugin
from agent.devices.plan.devices import Candidates, devices_of
from agent.devices.plan.topology import device_hints, with_affinity
from agent.managers.plan.hints import Hint
from tests.builders.pods import container, pod

GPU = "acme.com/gpu"
NODES = (0, 1)


def listed(*numa: int) -> RegisteredPlugin:
    """A device for each of these nodes, as its plugin lists it."""
    nodes = [{"ID": f"d{node}", "health": "Healthy", "topology": {"nodes": [{"ID": node}]}} for node in numa]
    return RegisteredPlugin(devices_of(nodes), True)


WHO = pod(container(resources={"limits": {GPU: "1"}}), meta={"uid": "u"})


@pytest.mark.parametrize("numa", [(-1,), (-(2**63),), (2**62,), (64,), (7, 9), range(2, 64)])
def test_nodes_that_there_are_not_are_no_preference(numa: tuple[int, ...]) -> None:
    """-1, which sysfs says of devices without a node, failed the pod; 2^62 took all memory; sixty took for ever."""
    (box,) = WHO.spec["containers"]
    began = time.process_time()
    assert device_hints(WHO, box, {}, {GPU: listed(*numa)}, NODES) == {}
    assert device_hints(WHO, None, {}, {GPU: listed(*numa)}, NODES) == {}
    assert time.process_time() - began < 1


def test_the_others_still_count() -> None:
    (box,) = WHO.spec["containers"]
    found = device_hints(WHO, box, {}, {GPU: listed(-1, 0, 5, 60, 2**40)}, NODES)
    assert found == {GPU: (Hint(1, True),)}
    plugin = RegisteredPlugin(devices_of([{"ID": "a", "health": "Healthy", "topology": {"nodes": [{"ID": -1}]}}]), True)
    candidates = Candidates(available=frozenset("a"), needed=1)
    assert with_affinity(candidates, plugin, 1).needed == 1


def test_tens_of_thousands_of_devices_and_eight_nodes() -> None:
    plugin = RegisteredPlugin({str(one): Device(str(one), True, (one % 8,)) for one in range(50_000)}, True)
    (box,) = WHO.spec["containers"]
    began = time.process_time()
    assert len(device_hints(WHO, box, {}, {GPU: plugin}, range(8))[GPU]) == 255
    assert time.process_time() - began < 1


def test_a_node_that_is_named_twice_is_one() -> None:
    nodes = {"nodes": [{"ID": 1}] * 1000}
    assert devices_of([{"ID": "a", "health": "Healthy", "topology": nodes}])["a"].numa == (1,)
