"""What `doctor` finds in a network namespace with real faults."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator

import pytest

from controlplane.doctor.edge import pod_network
from controlplane.doctor.plan.netcheck import check, place
from tests.netns.cni_world import Namespace

pytestmark = pytest.mark.netns


@pytest.fixture
def space() -> Iterator[Namespace]:
    made = Namespace()
    try:
        made.run("ip", "link", "add", "nw0", "type", "bridge")
        made.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "far0")
        made.run("ip", "link", "set", "far0", "up")
        made.run("ip", "link", "set", "eth0", "up")
        made.run("ip", "route", "add", "default", "dev", "eth0")
        yield made
    finally:
        made.close()


def findings(space: Namespace) -> dict[str, str]:
    done = space.run(sys.executable, "-I", "-S", pod_network.__file__, "")
    return {item.check.removeprefix("here: "): item.level for item in check(place("here", json.loads(done.stdout)))}


def test_faults_of_a_real_namespace_are_seen_and_gone_when_mended(space: Namespace) -> None:
    space.run("ip", "link", "set", "eth0", "mtu", "1400")
    space.run("sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv4/conf/eth0/rp_filter")
    space.run("iptables-nft", "-P", "FORWARD", "DROP")
    space.run("iptables-nft", "-t", "nat", "-N", "KUBE-SERVICES")
    space.run("iptables-nft", "-t", "nat", "-A", "PREROUTING", "-j", "KUBE-SERVICES")
    expected = {"forwarding", "MTU", "reverse path filter", "FORWARD policy"}
    if (
        shutil.which("iptables-legacy")
        and space.run("iptables-legacy", "-A", "INPUT", "-j", "ACCEPT", check=False).returncode == 0
    ):
        expected.add("other iptables backend")
    assert set(findings(space)) == expected
    space.run("ip", "link", "set", "nw0", "mtu", "1400")
    space.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv4/conf/eth0/rp_filter")
    space.run("iptables-nft", "-P", "FORWARD", "ACCEPT")
    space.run("iptables-legacy", "-F", check=False)
    assert findings(space) == {"pod network": "ok"}
