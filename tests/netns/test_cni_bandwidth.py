"""Bandwidth limits on the real kernel: they hold in each direction, CHECK verifies them, DEL removes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.netns.cni_world import Node, World

pytestmark = pytest.mark.netns

RATE = 16_000_000  # bits a second
SIZE = 2 << 20


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    world = World(tmp_path)
    try:
        made = world.node()
        made.start_server()
        made.world = world  # type: ignore[attr-defined]
        yield made
    finally:
        world.close()


def limits(**given: int) -> dict[str, object]:
    return {"bandwidth": given}


@pytest.mark.parametrize("direction", ["ingress", "egress"])
def test_a_limit_holds_in_its_direction_only(node: Node, direction: str) -> None:
    pod, free = node.world.namespace(), node.world.namespace()  # type: ignore[attr-defined]
    # Bursts as containerd gives them for the annotations of Kubernetes.
    wanted = limits(**{f"{direction}Rate": RATE, f"{direction}Burst": (1 << 32) - 1})
    address = node.add("limited", pod, runtimeConfig=wanted)
    other = node.add("free", free)
    pod.sink(80)
    free.sink(80)
    to_pod, from_pod = free.send(address, 80, SIZE), pod.send(other, 80, SIZE)
    slow, fast = (to_pod, from_pod) if direction == "ingress" else (from_pod, to_pod)
    assert slow[0] == fast[0] == SIZE
    least = (SIZE - RATE / 80) / (RATE / 8)  # all but the burst
    assert least * 0.9 < slow[1] < least * 3
    assert fast[1] < least / 2


def test_check_mends_nothing_but_tells_and_del_leaves_nothing(node: Node) -> None:
    pod = node.world.namespace()  # type: ignore[attr-defined]
    wanted = limits(ingressRate=RATE, egressRate=RATE)
    result = node.call("ADD", "c1", pod.path, runtimeConfig=wanted)
    assert result.status == 0, result
    assert node.call("CHECK", "c1", pod.path, runtimeConfig=wanted, prevResult=result.body).status == 0
    veth = node.veths()[0]
    node.namespace.run("tc", "qdisc", "del", "dev", veth, "root")
    check = node.call("CHECK", "c1", pod.path, runtimeConfig=wanted, prevResult=result.body)
    assert "ingress limit of 16000000 bit/s is not in place" in check.body["msg"]
    assert node.call("ADD", "c1", pod.path, runtimeConfig=wanted).status == 0
    assert node.call("CHECK", "c1", pod.path, runtimeConfig=wanted, prevResult=result.body).status == 0
    assert node.call("DEL", "c1", pod.path, runtimeConfig=wanted).status == 0
    links = node.namespace.run("ip", "-br", "link").stdout
    assert "nwbw" not in links
    assert "veth" not in links
