"""An address of the cluster's pods is nobody's external IP."""

from __future__ import annotations

import time

from nodelib.firewall.objects import Family
from proxy.plan.pod_ranges import PodRanges
from proxy.plan.tracker import Tracker
from tests.builders.services import service
from tests.unit.proxy.build import HERE

PODS = PodRanges(["10.244.0.0/16", "fd44::/48"])


def test_an_external_ip_among_the_pods_is_left_out() -> None:
    """It took what all pods, and the kubelets that probe it, send to a pod of another namespace."""
    one = Tracker(Family.IPV4, HERE, 0.0, pods=PODS)
    balanced = {"loadBalancer": {"ingress": [{"ip": "10.244.3.4"}, {"ip": "192.0.2.2"}]}}
    made = service("a", "172.30.0.1", externalIPs=["10.244.1.7", "192.0.2.1", "10.245.0.1"]) | {"status": balanced}
    one.service(made)
    changes = one.take()
    (port,) = changes.desired.ports.values()
    assert port.external_ips == ("192.0.2.1", "10.245.0.1")
    assert port.load_balancer_ips == ("192.0.2.2",)
    assert [found.message for found in changes.problems] == [
        "10.244.1.7, 10.244.3.4: an address of pods is not an external IP"
    ]


def test_of_ipv6_too() -> None:
    one = Tracker(Family.IPV6, HERE, 0.0, pods=PODS)
    made = service("a", "fd00:10::1", externalIPs=["FD44:0:0:7::9", "2001:db8::1", "10.244.1.7"])
    made["spec"] |= {"ipFamilies": ["IPv6"], "clusterIPs": ["fd00:10::1"]}
    one.service(made)
    (port,) = one.take().desired.ports.values()
    assert port.external_ips == ("2001:db8::1",)


def test_where_nodes_are_among_the_pods_balancers_may_be_too() -> None:
    """A clusterCIDR that is the cloud's network, of pods, nodes and internal load balancers: nobody was answered at the
    addresses of these. The Node is seen before or after the Services.
    """
    made = service("a", "172.30.0.1", externalIPs=["10.244.1.7"])
    for node_first in (True, False):
        one = Tracker(Family.IPV4, HERE, 0.0, pods=PODS)
        for step in (one.node, one.service) if node_first else (one.service, one.node):
            one.take()
            step(["10.244.9.9", "192.0.2.7"] if step == one.node else made)  # type: ignore[arg-type]
        (port,) = one.take().desired.ports.values()
        assert port.external_ips == ("10.244.1.7",)
        one.node(["192.0.2.7"])
        assert one.pending
        (port,) = one.take().desired.ports.values()
        assert port.external_ips == ()


def test_without_known_ranges_nothing_is_left_out() -> None:
    one = Tracker(Family.IPV4, HERE, 0.0)
    assert one.service(service("a", "172.30.0.1", externalIPs=["10.244.1.7"])) == []
    (port,) = one.take().desired.ports.values()
    assert port.external_ips == ("10.244.1.7",)


def test_many_addresses_take_little() -> None:
    began = time.process_time()
    assert not any(PODS.has(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}") for n in range(80_000))
    assert time.process_time() - began < 0.5
