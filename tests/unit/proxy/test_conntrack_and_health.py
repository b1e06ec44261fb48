"""Stale UDP flows, health checks of single Services, and the node's addresses that serve NodePorts."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import aiohttp
import pytest

from nodelib.firewall.objects import Family
from nodelib.netlink.flows import UdpFlow
from proxy.edge.servers import ServiceHealthServers
from proxy.model import Desired, NamespacedName
from proxy.plan.conntrack import stale_flows
from proxy.plan.node_port_addresses import expand, has_loopback, networks, node_port_ips
from proxy.plan.service_health import health_check_ports, local_ready
from tests.builders.services import endpoint, endpoint_slice, service
from tests.unit.proxy.build import HERE, desired

DNS = [{"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053}]
SERVING = endpoint("10.1.0.1", ready=False, serving=True, terminating=True)
WORLD = desired(
    service("dns", "172.30.0.10", type="LoadBalancer", ports=DNS, externalIPs=["192.168.99.1"], lb=["1.2.3.4"]),
    endpoint_slice(
        "dns",
        [SERVING, endpoint("10.1.0.2", ready=False, serving=False)],
        ports=[{"name": "dns", "port": 5353, "protocol": "UDP"}],
    ),
    service(
        "empty", "172.30.0.11", type="NodePort", ports=[{"name": "e", "port": 53, "protocol": "UDP", "nodePort": 30054}]
    ),
    service("tcp", "172.30.0.12", ports=[{"name": "t", "port": 53}]),
)


@pytest.mark.parametrize(
    ("to", "port", "answered_by", "answer_port", "stale"),
    [
        pytest.param("172.30.0.10", 53, "10.1.0.1", 5353, False, id="a terminating endpoint that serves"),
        pytest.param("172.30.0.10", 53, "10.1.0.2", 5353, True, id="an endpoint that does not serve"),
        pytest.param("172.30.0.10", 53, "10.1.0.1", 53, True, id="another port"),
        pytest.param("172.30.0.10", 53, "172.30.0.10", 53, True, id="never translated"),
        pytest.param("172.30.0.10", 54, "10.1.0.9", 5353, False, id="not a port of the Service"),
        pytest.param("192.168.99.1", 53, "10.1.0.9", 5353, True, id="external IP"),
        pytest.param("1.2.3.4", 53, "10.1.0.9", 5353, True, id="load balancer"),
        pytest.param("192.168.0.10", 30053, "10.1.0.9", 5353, True, id="NodePort"),
        pytest.param("192.168.0.10", 30053, "10.1.0.1", 5353, False, id="NodePort to a serving endpoint"),
        pytest.param("172.30.0.11", 53, "10.1.0.9", 53, True, id="a Service without endpoints"),
        pytest.param(
            "192.168.0.10", 30054, "192.168.0.10", 30054, False, id="a NodePort without endpoints may be anything"
        ),
        pytest.param("172.30.0.12", 53, "10.1.0.9", 53, False, id="a TCP Service"),
    ],
)
def test_stale_flows(to: str, port: int, answered_by: str, answer_port: int, stale: bool) -> None:
    flow = UdpFlow("10.0.0.5", 40000, to, port, answered_by, answer_port)
    assert stale_flows(WORLD, [flow]) == ([flow] if stale else [])


@pytest.mark.parametrize(("to", "port"), [("192.168.99.1", 53), ("192.168.0.10", 30053)])
@pytest.mark.parametrize("other", ["a", "z"])
def test_a_flow_is_not_stale_as_another_service_asks_for_its_address(to: str, port: int, other: str) -> None:
    """Whoever may write Services ended the flows to the addresses of others, again and again: one has the address."""
    asking = service(other, "172.30.0.13", ports=[{"name": "u", "port": port, "protocol": "UDP"}], externalIPs=[to])
    world = desired(
        asking,
        service("dns", "172.30.0.10", type="NodePort", ports=DNS, externalIPs=["192.168.99.1"]),
        endpoint_slice("dns", ["10.1.0.1"], ports=[{"name": "dns", "port": 5353, "protocol": "UDP"}]),
        endpoint_slice(other, ["10.1.0.2"], ports=[{"name": "u", "port": 9, "protocol": "UDP"}]),
    )
    world = Desired(world.family, dict(sorted(world.ports.items())), world.endpoints)
    flows = [UdpFlow("10.0.0.5", 40000, to, port, *back) for back in (("10.1.0.1", 5353), ("10.1.0.2", 9))]
    gone = UdpFlow("10.0.0.5", 40000, to, port, "10.1.0.3", 5353)
    assert stale_flows(world, [*flows, gone]) == [gone]


def test_local_ready_endpoints_are_counted_by_address() -> None:
    world = desired(
        service("a", "172.30.0.1", type="LoadBalancer", externalTrafficPolicy="Local", healthCheckNodePort=31000),
        endpoint_slice(
            "a",
            [
                endpoint("10.1.0.1", HERE),
                endpoint("10.1.0.2", "there"),
                endpoint("10.1.0.3", HERE, ready=False, serving=True, terminating=True),
            ],
            ports=[{"name": "p80", "port": 80}, {"name": "p443", "port": 443}],
        ),
    )
    assert local_ready(world, health_check_ports(world)) == {("ns", "a"): 1}
    assert health_check_ports(world) == {("ns", "a"): 31000}


@pytest.fixture
def free_port() -> Iterator[int]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    yield port


async def test_health_check_of_a_service(free_port: int) -> None:
    name, well, failed = NamespacedName("ns", "a"), True, []
    servers = ServiceHealthServers(("127.0.0.1",), lambda: well, lambda who, text: failed.append((who, text)))

    async def ask() -> tuple[int, dict[str, object], str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{free_port}/any") as answer:
            return answer.status, json.loads(await answer.text()), answer.headers["X-Load-Balancing-Endpoint-Weight"]

    await servers.sync({name: free_port}, {name: 2})
    body = {"service": {"namespace": "ns", "name": "a"}, "localEndpoints": 2, "serviceProxyHealthy": True}
    assert await ask() == (200, body, "2")
    await servers.sync({name: free_port}, {})
    assert (await ask())[0] == 503
    well = False
    await servers.sync({name: free_port}, {name: 1})
    assert (await ask())[0] == 503
    other = ServiceHealthServers(("127.0.0.1",), lambda: True, lambda who, text: failed.append((who, text)))
    for _ in range(2):
        await other.sync({name: free_port}, {})
    assert len(failed) == 1 and f"127.0.0.1:{free_port}" in failed[0][1], "reported once, tried with each sync"
    await servers.close()
    with pytest.raises(aiohttp.ClientError):
        await ask()
    await other.sync({name: free_port}, {name: 1})
    assert (await ask())[0] == 200
    await other.close()


def test_node_port_addresses() -> None:
    ips = ("192.168.0.10", "fd00::10", "192.168.0.11")
    assert expand(("primary", "10.0.0.0/8"), ips) == ("192.168.0.10/32", "fd00::10/128", "10.0.0.0/8")
    assert expand(("localhost",), ()) == ("127.0.0.0/8", "::1/128")
    assert networks((), Family.IPV4) is None
    assert networks(("10.0.0.0/8", "fd00::/8"), Family.IPV6) == ("fd00::/8",)
    assert networks(("10.0.0.0/8", "0.0.0.0/0"), Family.IPV4) is None
    assert networks(("fd00::/8",), Family.IPV4) is None
    assert (has_loopback(None), has_loopback(("127.0.0.1/32",)), has_loopback(("10.0.0.0/8",))) == (True, True, False)
    own = ["127.0.0.1", "10.1.2.3", "192.168.0.10", "::1", "fd00::10"]
    both = ("10.0.0.0/8", "127.0.0.0/8")
    assert node_port_ips(both, own, Family.IPV4, localhost=True) == ("10.1.2.3", "127.0.0.1")
    assert node_port_ips(both, own, Family.IPV4, localhost=False) == ("10.1.2.3",)
    assert node_port_ips(("::1/128", "fd00::/8"), own, Family.IPV6, localhost=True) == ("fd00::10",)
    assert node_port_ips(None, own, Family.IPV4, localhost=True) is None
