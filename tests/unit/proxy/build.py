"""Rules as each backend writes them for some Services, the path of a packet through them, and the addresses used.

Nodes: this one 192.168.0.10 (and 192.168.1.10), named "here". Pods of the cluster 10.0.0.0/8, Service addresses
172.30.0.0/16, external IPs 192.168.99.0/24, load balancers 1.2.3.0/24, clients outside 203.0.113.0/24.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nodelib.firewall.objects import Change, Family, TableContent
from nodelib.firewall.trace import Node, Packet, trace
from nodelib.json_values import Json
from proxy.model import Desired
from proxy.plan.context import Context, by_cidr
from proxy.plan.iptables.sync import Plan, full_stages, next_stage
from proxy.plan.nftables.sync import AppliedState, plan
from proxy.plan.tracker import Tracker
from proxy.plan.userspace import portals
from tests.fakes.fake_iptables import FakeIptables
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


def desired(*objects: Json, family: Family = Family.IPV4, node: str = HERE) -> Desired:
    tracker = Tracker(family, node, 0.0)
    for obj in objects:
        if "endpoints" in obj:
            tracker.endpoint_slice(obj)
        else:
            tracker.service(obj)
    return tracker.take().desired


def plan_full(desired: Desired, ctx: Context, kernel: Mapping[str, TableContent]) -> Plan:
    """All stages of a full sync at once, which the backend writes one by one."""
    stages = full_stages(desired, ctx, kernel)
    changes: list[Change] = []
    while not isinstance(step := next_stage(stages), Plan):
        changes.append(step)
    return replace(step, changes=tuple(changes))


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
