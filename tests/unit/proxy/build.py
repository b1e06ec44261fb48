"""Services and EndpointSlices as the API gives them, and the plan of addresses of these tests.

Nodes: this one 192.168.0.10 (and 192.168.1.10), named "here". Pods of the cluster 10.0.0.0/8, Service addresses
172.30.0.0/16, external IPs 192.168.99.0/24, load balancers 1.2.3.0/24, clients outside 203.0.113.0/24.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nodelib.firewall.fake import FakeIptables
from nodelib.firewall.objects import Family
from nodelib.firewall.trace import Node, Packet, trace
from nodelib.json_values import Json
from proxy.model import Desired
from proxy.plan.context import Context, by_cidr
from proxy.plan.iptables.sync import plan_full
from proxy.plan.nftables.sync import AppliedState, plan
from proxy.plan.tracker import Tracker
from proxy.plan.userspace import portals
from tests.fakes.nft_trace import Tracer
from tests.fakes.userspace_trace import UserspaceTracer

HERE = "here"
NODE_IP = "192.168.0.10"
NODE_IP_TWO = "192.168.1.10"
POD = "10.0.0.2"
CLIENT = "203.0.113.2"
BLOCKED_CLIENT = "203.0.113.130"
NODE = Node(frozenset({NODE_IP, NODE_IP_TWO}))
CONTEXT = Context(node=HERE, node_ip=NODE_IP, detector=by_cidr("10.0.0.0/8"))


def service(name: str, cluster_ip: str, *, ns: str = "ns", lb: Sequence[Any] = (), **spec: Any) -> Json:
    ports = spec.pop("ports", [{"name": "p80", "port": 80, "protocol": "TCP"}])
    ingress = [entry if isinstance(entry, dict) else {"ip": entry} for entry in lb]
    return {
        "metadata": {"namespace": ns, "name": name},
        "spec": {"type": "ClusterIP", "clusterIP": cluster_ip, "ports": ports, **spec},
        "status": {"loadBalancer": {"ingress": ingress}},
    }


def endpoint_slice(
    service_name: str,
    endpoints: Sequence[Json | str],
    *,
    ns: str = "ns",
    ports: Sequence[Json] = ({"name": "p80", "port": 80, "protocol": "TCP"},),
    suffix: str = "1",
    kind: str = "IPv4",
) -> Json:
    return {
        "metadata": {
            "namespace": ns,
            "name": f"{service_name}-{suffix}",
            "labels": {"kubernetes.io/service-name": service_name},
        },
        "addressType": kind,
        "ports": list(ports),
        "endpoints": [endpoint(one) if isinstance(one, str) else one for one in endpoints],
    }


def endpoint(address: str, node: str | None = None, **given: Any) -> Json:
    """`ready`, `serving`, `terminating`, `zones`, `nodes`."""
    conditions = {key: given[key] for key in ("ready", "serving", "terminating") if key in given}
    hints = {
        "forZones": [{"name": name} for name in given.get("zones", ())],
        "forNodes": [{"name": name} for name in given.get("nodes", ())],
    }
    entry: Json = {"addresses": [address], "conditions": conditions or {"ready": True}, "hints": hints}
    if node is not None:
        entry["nodeName"] = node
    return entry


def desired(*objects: Json, family: Family = Family.IPV4, node: str = HERE) -> Desired:
    tracker = Tracker(family, node, 0.0)
    for obj in objects:
        if "endpoints" in obj:
            tracker.endpoint_slice(obj)
        else:
            tracker.service(obj)
    return tracker.take().desired


def installed(*objects: Json, ctx: Context = CONTEXT) -> FakeIptables:
    """A fake with everything written as at the first sync."""
    fake = FakeIptables(ctx.family)
    for change in plan_full(desired(*objects, family=ctx.family, node=ctx.node), ctx, fake.content()).changes:
        fake.load_change(change)
    return fake


def nft_installed(*objects: Json, ctx: Context = CONTEXT) -> Tracer:
    """The same in nftables mode; NodePorts on both addresses of the node unless `ctx` says other ones."""
    ctx = replace(ctx, node_port_ips=ctx.node_port_ips or (NODE_IP, NODE_IP_TWO))
    applied = AppliedState()
    applied.commit(plan(desired(*objects, family=ctx.family, node=ctx.node), None, ctx, applied))
    return Tracer(ctx, applied)


def userspace_installed(*objects: Json, ctx: Context = CONTEXT) -> UserspaceTracer:
    """The same in userspace mode, every socket with a port of its own."""
    wanted = desired(*objects, family=ctx.family, node=ctx.node)
    pools = portals.pools(wanted, wanted.ports, ctx)
    ports = {name: 40000 + number for number, name in enumerate(pools)}
    fake = FakeIptables(ctx.family)
    content = fake.content()["nat"]
    fake.load_change(portals.plan(portals.chains(wanted, ports, ctx), content, ctx))
    return UserspaceTracer(fake, {port: pools[name].addresses for name, port in ports.items()})


def flow(fake: FakeIptables, source: str, to: str, port: int, *, protocol: str = "tcp", node: Node = NODE) -> str:
    """What becomes of a connection: targets and verdicts in the order of the rules, then "masq" when masqueraded.

    A source that is the node's own address is a packet that this node sends.
    """
    sent_here = node.is_local(source)
    packet = Packet(source, to, port, protocol, interface="" if sent_here else "eth0")
    seen: dict[str, None] = {}
    masqueraded = False
    for outcome in trace(fake.content(), packet, node):
        if outcome.verdict != "ACCEPT":
            seen[outcome.verdict] = None
        elif outcome.translated:
            seen[outcome.to] = None
            masqueraded = masqueraded or outcome.masqueraded
        else:
            seen["passes"] = None
    return ", ".join(seen) + (" masq" if masqueraded else "")
