"""Walks a LinkPlan. When a step fails, the earlier ones are undone, newest first. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from cni.model import Bandwidth, Interface, LinkFacts, LinkPlan, Neighbour, RouteFacts
from cni.ports import Links, OpenLinks
from cni.spec.errors import INVALID_ENVIRONMENT, CNIError
from nodelib.errors import Conflict, NotFound


@dataclass(frozen=True, slots=True)
class Observed:
    """An attachment as the kernel shows it. None: it does not exist."""

    bridge: LinkFacts | None
    host: LinkFacts | None
    pod: LinkFacts | None
    addresses: Sequence[Interface] = field(default=())
    routes: Sequence[RouteFacts] = field(default=())
    rates: Mapping[str, int] = field(default_factory=dict)  # bytes per second of the token buckets, by link


def attach(plan: LinkPlan, open_links: OpenLinks, netns: int, bridge: LinkFacts) -> Observed:
    """Make the veth pair and set up the pod's end. Raises the kernel's error and leaves nothing behind."""
    with ExitStack() as undo, open_links(None) as node:
        host = _add_veth(plan, node, bridge, netns)
        undo.callback(_delete, open_links, plan.host_ifname)
        with open_links(netns) as pod_links:
            pod = pod_links.set_up_pod(plan)
        undo.callback(forget, plan.bridge, plan.neighbours, open_links)
        for entry in plan.neighbours:
            node.replace_neighbour(bridge.index, entry)
        undo.callback(_delete, open_links, plan.ifb)
        shape(plan, node, host)
        undo.pop_all()
        return Observed(bridge, host, pod)


def shape(plan: LinkPlan, node: Links, host: LinkFacts) -> None:
    """Set the pod's bandwidth limits on the node's end, where the pod cannot remove them."""
    if plan.bandwidth.to_pod is not None:
        node.set_bucket(host.index, plan.bandwidth.to_pod)
    if plan.bandwidth.from_pod is not None:
        ifb = node.link(plan.ifb)
        if ifb is None:
            node.add_ifb(plan.ifb, plan.mtu)
            ifb = node.link(plan.ifb)
        if ifb is None:
            raise NotFound("it vanished while it was being made", obj=plan.ifb, step="limit bandwidth")
        node.set_bucket(ifb.index, plan.bandwidth.from_pod)
        node.redirect(host.index, ifb.index)


def detach(host_ifname: str, ifb: str, open_links: OpenLinks) -> bool:
    """Remove the pair by its node's end; the pod's namespace is not needed. False: it was gone already."""
    with open_links(None) as node:
        there = node.delete_link(host_ifname)
        node.delete_link(ifb)
        return there


def forget(bridge: str, entries: Sequence[Neighbour], open_links: OpenLinks) -> None:
    """Let the node not look for a pod that has gone where it was: who connects is told at once that nobody is there."""
    with open_links(None) as node:
        link = node.link(bridge)
        if link is not None:
            for entry in entries:
                node.delete_neighbour(link.index, entry)


def observe(plan: LinkPlan, open_links: OpenLinks, netns: int) -> Observed:
    """Read the attachment, or as much of it as exists."""
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
        # The name comes from this attachment's key, so whatever has it was left by an ADD that was killed.
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
