"""The clusters whose whole ruleset is kept as text beside this file; the same text is loaded into the real kernel.

`python -m tests.golden.proxy.cases` writes the text anew after a change that is meant; read the diff.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from proxy.plan.context import CT_INVALID_COUNTER, LOCALHOST_COUNTER, Context, by_cidr, by_interface
from proxy.plan.nftables.sync import AppliedState, plan
from tests.builders.services import endpoint, endpoint_slice, service
from tests.fakes.fake_iptables import FakeIptables
from tests.golden.proxy.text import dump
from tests.unit.proxy.build import CONTEXT, HERE, desired, installed

FOLDER = Path(__file__).parent
TERMINATING: Json = {"ready": False, "serving": True, "terminating": True}
AWAY = "there"


def _np(port: int, node_port: int, name: str = "p80", protocol: str = "TCP") -> list[Json]:
    return [{"name": name, "port": port, "protocol": protocol, "nodePort": node_port}]


def basic() -> list[Json]:
    """A cluster IP, one without name, UDP beside TCP, SCTP, one without endpoints, a headless one."""
    return [
        service("one", "172.30.0.41", namespace="ns1"),
        endpoint_slice("one", ["10.180.0.1"], namespace="ns1"),
        service("two", "172.30.0.42"),
        endpoint_slice("two", ["10.180.0.2", "10.180.0.3", "10.180.0.4"]),
        service("noname", "172.30.0.43", ports=[{"port": 9000}]),
        endpoint_slice("noname", ["10.180.0.5"], ports=[{"name": "", "port": 9001}]),
        service(
            "dns",
            "172.30.0.10",
            ports=[{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53}],
        ),
        endpoint_slice(
            "dns",
            ["10.180.0.6"],
            ports=[{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53}],
        ),
        service("sctp", "172.30.0.44", ports=[{"name": "s", "port": 7, "protocol": "SCTP"}]),
        endpoint_slice("sctp", ["10.180.0.7"], ports=[{"name": "s", "port": 7, "protocol": "SCTP"}]),
        service("empty", "172.30.0.45"),
        service("headless", "None"),
    ]


def affinity() -> list[Json]:
    sticky: Json = {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}}}
    return [
        service("sticky", "172.30.0.41", **sticky),
        endpoint_slice("sticky", ["10.180.0.1", "10.180.0.2"]),
        service("local", "172.30.0.42", type="NodePort", ports=_np(80, 30001), externalTrafficPolicy="Local", **sticky),
        endpoint_slice("local", [endpoint("10.180.0.3", HERE), endpoint("10.180.1.3", AWAY)]),
    ]


def external() -> list[Json]:
    """NodePorts, external IPs and load balancers, with both policies, with endpoints here, elsewhere, nowhere."""
    here, away = endpoint("10.180.0.1", HERE), endpoint("10.180.1.1", AWAY)
    balancer: Json = {"type": "LoadBalancer", "loadBalancerSourceRanges": ["203.0.113.0/25", "192.168.0.0/24"]}
    local: Json = {"externalTrafficPolicy": "Local"}
    return [
        service("np", "172.30.0.1", type="NodePort", ports=_np(80, 30001)),
        endpoint_slice("np", [here, away]),
        service("np-udp", "172.30.0.2", type="NodePort", ports=_np(53, 30002, "dns", "UDP")),
        endpoint_slice("np-udp", [here], ports=[{"name": "dns", "port": 53, "protocol": "UDP"}]),
        service("np-empty", "172.30.0.3", type="NodePort", ports=_np(80, 30003), externalIPs=["192.168.99.3"]),
        service("ip", "172.30.0.4", externalIPs=["192.168.99.4", "192.168.99.5"]),
        endpoint_slice("ip", [here]),
        service("ip-local", "172.30.0.5", externalIPs=["192.168.99.6"], **local),
        endpoint_slice("ip-local", [here, away]),
        service("np-local", "172.30.0.6", type="NodePort", ports=_np(80, 30006), **local),
        endpoint_slice("np-local", [here, away]),
        service(
            "np-local-away", "172.30.0.7", type="NodePort", ports=_np(80, 30007), externalIPs=["192.168.99.7"], **local
        ),
        endpoint_slice("np-local-away", [away]),
        service("lb", "172.30.0.8", ports=_np(80, 30008), lb=["1.2.3.8"], type="LoadBalancer"),
        endpoint_slice("lb", [here, away]),
        service("lb-ranges", "172.30.0.9", ports=_np(80, 30009), lb=["1.2.3.9", "1.2.3.19"], **balancer),
        endpoint_slice("lb-ranges", [here]),
        service(
            "lb-local",
            "172.30.0.11",
            ports=_np(80, 30011),
            lb=["1.2.3.11"],
            healthCheckNodePort=31011,
            **balancer,
            **local,
        ),
        endpoint_slice("lb-local", [here, away]),
        service(
            "lb-away",
            "172.30.0.12",
            ports=_np(80, 30012),
            lb=["1.2.3.12"],
            healthCheckNodePort=31012,
            **balancer,
            **local,
        ),
        endpoint_slice("lb-away", [away]),
        service("lb-empty", "172.30.0.13", ports=_np(80, 30013), lb=["1.2.3.13"], **balancer),
        service(
            "lb-proxy",
            "172.30.0.14",
            ports=_np(80, 30014),
            lb=[{"ip": "1.2.3.14", "ipMode": "Proxy"}],
            type="LoadBalancer",
        ),
        endpoint_slice("lb-proxy", [here]),
    ]


def policies() -> list[Json]:
    """internalTrafficPolicy, terminating endpoints, hints, an endpoint in two slices."""
    here, away = endpoint("10.180.0.1", HERE), endpoint("10.180.1.1", AWAY)
    return [
        service("itp", "172.30.0.1", internalTrafficPolicy="Local"),
        endpoint_slice("itp", [here, away]),
        service("itp-away", "172.30.0.2", internalTrafficPolicy="Local"),
        endpoint_slice("itp-away", [away]),
        service(
            "both",
            "172.30.0.3",
            type="NodePort",
            ports=_np(80, 30003),
            internalTrafficPolicy="Local",
            externalTrafficPolicy="Local",
        ),
        endpoint_slice("both", [here, away]),
        service("term", "172.30.0.4"),
        endpoint_slice(
            "term", [endpoint("10.180.0.4", HERE, **TERMINATING), endpoint("10.180.1.4", AWAY, **TERMINATING)]
        ),
        service("term-local", "172.30.0.5", type="NodePort", ports=_np(80, 30005), externalTrafficPolicy="Local"),
        endpoint_slice("term-local", [endpoint("10.180.0.5", HERE, **TERMINATING), endpoint("10.180.1.5", AWAY)]),
        service("zones", "172.30.0.6"),
        endpoint_slice("zones", [endpoint("10.180.0.6", zones=["z1"]), endpoint("10.180.1.6", zones=["z2"])]),
        service("nodes", "172.30.0.7"),
        endpoint_slice(
            "nodes",
            [endpoint("10.180.0.7", nodes=[HERE], zones=["z1"]), endpoint("10.180.1.7", nodes=[AWAY], zones=["z1"])],
        ),
        service("zones-local", "172.30.0.8", type="NodePort", ports=_np(80, 30008), externalTrafficPolicy="Local"),
        endpoint_slice(
            "zones-local", [endpoint("10.180.0.8", HERE, zones=["z2"]), endpoint("10.180.1.8", zones=["z1"])]
        ),
        service("twice", "172.30.0.9"),
        endpoint_slice("twice", ["10.180.0.9"], suffix="1"),
        endpoint_slice("twice", ["10.180.0.9", "10.180.1.9"], suffix="2"),
    ]


def ipv6() -> list[Json]:
    return [
        service("one", "fd00:10:96::1"),
        endpoint_slice("one", ["fd00:10:244::1", "fd00:10:244::2"], address_type="IPv6"),
        service(
            "np",
            "fd00:10:96::2",
            type="NodePort",
            ports=_np(80, 30001),
            externalIPs=["2001:db8::7"],
            sessionAffinity="ClientIP",
        ),
        endpoint_slice("np", ["fd00:10:244::3"], address_type="IPv6"),
        service("empty", "fd00:10:96::3", type="NodePort", ports=_np(80, 30003)),
    ]


@dataclass(frozen=True)
class Case:
    name: str
    objects: Callable[[], list[Json]]
    ctx: Context = field(default=CONTEXT)

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.rules"

    def fake(self) -> FakeIptables:
        return installed(*self.objects(), ctx=self.ctx)

    @property
    def nft_path(self) -> Path:
        return FOLDER / f"{self.name}.nft"

    @property
    def nft_ctx(self) -> Context:
        """In nftables mode each address of a NodePort is named."""
        primary = "192.168.0.10" if self.ctx.family is Family.IPV4 else "2001:db8::10"
        return replace(self.ctx, node_port_ips=self.ctx.node_port_ips or (primary,))

    def nft_applied(self) -> AppliedState:
        """Everything written as at the first sync."""
        applied = AppliedState()
        world = desired(*self.objects(), family=self.ctx.family, node=self.ctx.node)
        applied.commit(plan(world, None, self.nft_ctx, applied))
        return applied

    def nft_dump(self) -> str:
        applied = self.nft_applied()
        return dump(sorted(applied.chains), applied.expected(), self.nft_ctx)


CASES = [
    Case("basic", basic),
    Case("affinity", affinity),
    Case("external", external),
    Case("policies", policies, replace(CONTEXT, zone="z1")),
    Case("masquerade-all", basic, replace(CONTEXT, masquerade_all=True, mark="0x00000020")),
    Case("no-detector-liberal", basic, replace(CONTEXT, detector=Context().detector, tcp_liberal=True)),
    Case("interface-prefix", external, replace(CONTEXT, detector=by_interface("veth+"), localhost_node_ports=False)),
    Case("chosen-node-ports", external, replace(CONTEXT, node_port_ips=("192.168.0.10", "127.0.0.1"))),
    Case("counters", external, replace(CONTEXT, counters=frozenset({CT_INVALID_COUNTER, LOCALHOST_COUNTER}))),
    Case("ipv6", ipv6, Context(family=Family.IPV6, node=HERE, detector=by_cidr("fd00:10:244::/56"))),
]


def main() -> None:
    for case in CASES:
        case.path.write_text(case.fake().dump())
        case.nft_path.write_text(case.nft_dump())


if __name__ == "__main__":
    main()
