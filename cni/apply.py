"""Walks a LinkPlan; what it made is undone, newest first, when a later step fails. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from cni.model import Bandwidth, Interface, LinkFacts, LinkPlan, RouteFacts
from cni.ports import Links, OpenLinks
from cni.spec import INVALID_ENVIRONMENT, CNIError
from nodelib.errors import Conflict, NotFound


@dataclass(frozen=True, slots=True)
class Observed:
    """An attachment as the kernel shows it. None: not there."""

    bridge: LinkFacts | None
    host: LinkFacts | None
    pod: LinkFacts | None
    addresses: Sequence[Interface] = field(default=())
    routes: Sequence[RouteFacts] = field(default=())
    rates: Mapping[str, int] = field(default_factory=dict)  # bytes a second of the token buckets, by link


def attach(plan: LinkPlan, open_links: OpenLinks, netns: int, bridge: LinkFacts) -> Observed:
    """Make the veth pair and set up the pod's end. Raises what the kernel said, with nothing left behind."""
    with ExitStack() as undo, open_links(None) as node:
        host = _add_veth(plan, node, bridge, netns)
        undo.callback(_delete, open_links, plan.host_ifname)
        with open_links(netns) as pod_links:
            pod = pod_links.set_up_pod(plan)
        undo.callback(_delete, open_links, plan.ifb)
        shape(plan, node, host)
        undo.pop_all()
        return Observed(bridge, host, pod)


def shape(plan: LinkPlan, node: Links, host: LinkFacts) -> None:
    """Put the pod's bandwidth limits on the node's end, where the pod cannot lift them."""
    if plan.bandwidth.to_pod is not None:
        node.set_bucket(host.index, plan.bandwidth.to_pod)
    if plan.bandwidth.from_pod is not None:
        ifb = node.link(plan.ifb)
        if ifb is None:
            node.add_ifb(plan.ifb, plan.mtu)
            ifb = node.link(plan.ifb)
        if ifb is None:
            raise NotFound("it vanished while it was made", obj=plan.ifb, step="limit bandwidth")
        node.set_bucket(ifb.index, plan.bandwidth.from_pod)
        node.redirect(host.index, ifb.index)


def detach(host_ifname: str, ifb: str, open_links: OpenLinks) -> bool:
    """Remove the pair by the node's end; the pod's namespace is not needed. False: it was gone already."""
    with open_links(None) as node:
        there = node.delete_link(host_ifname)
        node.delete_link(ifb)
        return there


def observe(plan: LinkPlan, open_links: OpenLinks, netns: int) -> Observed:
    """All of it, or as much as is there."""
    with open_links(None) as node, open_links(netns) as inside:
        pod = inside.link(plan.ifname)
        addresses = [address for _, address in inside.addresses(pod.index)] if pod else []
        host, rates = node.link(plan.host_ifname), dict[str, int]()
        if plan.bandwidth != Bandwidth():
            ifb = node.link(plan.ifb)
            names = {link.index: link.name for link in (host, ifb) if link is not None}
            rates = {names[index]: rate for index, rate in node.buckets() if index in names}
        return Observed(node.link(plan.bridge), host, pod, addresses, inside.routes(), rates)


def _add_veth(plan: LinkPlan, node: Links, bridge: LinkFacts, netns: int) -> LinkFacts:
    try:
        return node.add_veth(plan, bridge, netns)
    except Conflict as error:
        # The name is made of this attachment's own key: what has it is the rest of an ADD that was killed.
        if not node.delete_link(plan.host_ifname):
            raise CNIError(
                INVALID_ENVIRONMENT,
                f"the pod has an interface {plan.ifname} already",
                details="Another network made it: give this one another CNI_IFNAME, or delete the sandbox.",
            ) from error
        return node.add_veth(plan, bridge, netns)


def _delete(open_links: OpenLinks, name: str) -> None:
    with open_links(None) as node:
        node.delete_link(name)
