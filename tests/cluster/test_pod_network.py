"""The pod network under real runtimes: annotations that CRI passes on, and a runtime without a kubelet."""

from __future__ import annotations

import ipaddress
import json
import os
import uuid

import pytest

from tests.builders.pods import BUSYBOX, manifest
from tests.cluster.world import World, holds

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]


async def test_bandwidth_annotations_become_token_buckets(world: World) -> None:
    limited = manifest("limited", nodeName="node1")
    limited["metadata"]["annotations"] = {
        "kubernetes.io/ingress-bandwidth": "80M",
        "kubernetes.io/egress-bandwidth": "40M",
    }
    await world.run(limited)
    shown = json.loads((await world.in_node("node1", "tc", "-json", "qdisc", "show")).text)
    rates = {item["options"]["rate"] for item in shown if item["kind"] == "tbf"}
    assert {10_000_000, 5_000_000} <= rates  # bytes a second
    await world.delete("limited", grace=0)

    async def gone() -> bool:
        return "nwbw" not in (await world.in_node("node1", "ip", "-br", "link")).text

    await holds(gone, "the limits went with the pod")


async def test_a_container_without_a_kubelet_gets_the_same_network(world: World) -> None:
    """`ctr run --cni`: containerd's own client executes our plugin; no kubelet is involved."""
    ctr = (world.cluster.tools["ctr"], "-a", "/run/containerd/containerd.sock", "-n", "k8s.io")
    name = f"alone-{uuid.uuid4().hex[:6]}"
    script = "ip -4 -o addr show eth0; wget -q -T 5 -O- http://$0:10256/healthz >/dev/null && echo reached"
    argv = ("run", "--rm", "--cni", BUSYBOX, name, "sh", "-c", script, world.address("node2"))
    done = await world.in_node("node1", *ctr, *argv)
    address = done.text.split("inet ")[1].split("/")[0]
    node = await world.api.get("/api/v1/nodes/node1")
    assert ipaddress.ip_address(address) in ipaddress.ip_network(node["spec"]["podCIDR"])
    assert "reached" in done.text
    held = await world.in_node("node1", "ls", "/var/lib/cni/nodewright/nodewright")
    assert address not in held.text.split(), "DEL gave the address back"
