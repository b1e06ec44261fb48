"""A Service and slices as a user of one namespace may write them, when an administrator looks at them."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from cli.commands import service as command
from cli.explain import service_text
from cli.explain.endpoints import ports, silent_endpoints
from cli.explain.facts import Facts
from cli.explain.places import sender, target
from cli.explain.rules_of import rules_of
from controlplane.machine.edge import rules
from controlplane.machine.model import Listener
from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from tests.builders.pods import pod_json
from tests.builders.services import endpoint_slice, node, service

NODE = node("node1", address="192.0.2.11")
MANY = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in range(1, 20_001)]


def addresses(count: int) -> list[str]:
    return [f"10.1.{one >> 8}.{one & 255}" for one in range(count)]


def test_listeners_are_looked_at_a_bounded_number_of_times() -> None:
    """20,000 ports of a Service and of its slice were compared with each other, for each of 32 endpoints: hours."""
    web = service("web", "10.9.0.7", ports=MANY)
    facts = Facts.of([web], [endpoint_slice("web", addresses(50), ports=MANY)], [], [NODE])
    looked: list[str] = []

    def listening(address: str) -> tuple[Listener, ...]:
        looked.append(address)
        return ()

    began = time.process_time()
    found = silent_endpoints(web, facts, listening)
    assert time.process_time() - began < 2.0
    assert 0 < len(looked) <= 2000 and len(found) == len(looked)
    assert found[0].entry == found[0].port - 1


def test_rules_are_not_compared_with_each_port() -> None:
    web = service("web", "10.9.0.7", ports=MANY)
    facts = Facts.of([web], [], [], [NODE])
    listed: list[Json] = [
        {"rule": {"family": "ip", "table": "kube-proxy", "chain": f"service-ABCDEFGH-ns/s{number}/tcp/p1", "expr": []}}
        for number in range(5000)
    ]
    own = "external-ABCDEFGH-ns/web/tcp/p77"
    listed.append({"rule": {"family": "ip", "table": "kube-proxy", "chain": own, "expr": []}})
    listed.append(
        {"rule": {"family": "ip", "table": "t", "chain": "endpoint-ABCD-ns/web/tcp/p7__10.1.0.1/80", "expr": []}}
    )
    views = ports(web, facts, "node1")
    began = time.process_time()
    found = rules_of(web, views, {}, {"nftables": listed}, Family.IPV4)
    assert time.process_time() - began < 2.0
    assert [one.where.split()[1] for one in found] == [own, "endpoint-ABCD-ns/web/tcp/p7__10.1.0.1/80"]


async def test_connections_of_a_few_addresses_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program was started on each node for each of 20,000 addresses, all at once, as root."""
    web = service("web", "10.9.0.7", clusterIPs=["10.9.0.7"], ipFamilies=["IPv4"], externalIPs=addresses(20_000))
    asked: list[str] = []

    async def connections(net: str, address: str, version: int) -> list[str]:
        asked.append(address)
        await asyncio.sleep(0)
        return []

    class Nothing:
        def __init__(self) -> None:
            self.tables: Json = {}
            self.nftables: Json = {}

        def namespace(self, node: str, kind: str) -> str:
            return node

    monkeypatch.setattr(rules, "connections", connections)
    nothing: Any = Nothing()
    seen = await command._on_node(nothing, web, Facts.of([web], [], [], [NODE]), "node1", {("node1", 4): nothing})
    assert asked[0] == "10.9.0.7" and len(asked) == 16
    found = command.ServiceFound(web, Facts.of([web], [], [], [NODE]), {"node1": seen}, (), (), "")
    assert any("to its first 16 addresses" in line for line in command.lines(found))


def test_what_is_printed_of_a_service_is_bounded() -> None:
    web = service("web", "10.9.0.7", ports=MANY[:300])
    facts = Facts.of([web], [endpoint_slice("web", addresses(1000), ports=MANY[:100])], [], [NODE])
    shown = list(service_text.ports({"node1": ports(web, facts, "node1")}, ()))
    assert len(shown) < 25_000 and "    and 800 more endpoints" in shown and shown[-1] == "  and 100 more ports"
    each = service("web", "None")
    shown = list(service_text.endpoints(each, facts, ()))
    assert len(shown) < 250 and shown[-1] == "  and 800 more"


def test_a_cluster_ip_is_called_by_the_name_of_its_service() -> None:
    """Whoever asks for it as an external IP gets nothing that is sent there, and was named in its place."""
    dns = service("kube-dns", "10.9.0.10", namespace="kube-system", clusterIPs=["10.9.0.10"])
    evil = [
        service("evil", "10.9.0.66", namespace=space, clusterIPs=["10.9.0.66"], externalIPs=["10.9.0.10"])
        for space in ("aaa", "zzz")
    ]
    pod = pod_json(
        "web-0", meta={"namespace": "ns"}, status={"phase": "Running", "podIP": "10.1.0.2"}, nodeName="node1"
    )
    facts = Facts.of([evil[0], dns, evil[1]], [], [pod], [NODE])
    assert facts.named("10.9.0.10") == "10.9.0.10 (Service kube-system/kube-dns)"
    start = sender("10.1.0.2", facts, "ns", "198.51.100.1")
    assert target("10.9.0.10", facts, "ns", start, "").service is dns


@pytest.mark.parametrize("text", ["web", "svc/web", "shop/web", "shop/svc/web", "service/shop/web"])
def test_how_a_service_may_be_named(text: str) -> None:
    web = service("web", "10.9.0.7", namespace="shop")
    assert command._service(text, "shop", Facts.of([web], [], [], [NODE]), "lab") is web
