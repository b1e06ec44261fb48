"""Walks a LinkPlan; what it made is undone, newest first, when a later step fails. Decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from cni.model import Interface, LinkFacts, LinkPlan, RouteFacts
from cni.ports import Links, OpenLinks
from cni.spec import INVALID_ENVIRONMENT, CNIError
from nodelib.errors import Conflict


@dataclass(frozen=True, slots=True)
class Observed:
    """An attachment as the kernel shows it. None: not there."""

    bridge: LinkFacts | None
    host: LinkFacts | None
    pod: LinkFacts | None
    addresses: Sequence[Interface] = field(default=())
    routes: Sequence[RouteFacts] = field(default=())


def attach(plan: LinkPlan, open_links: OpenLinks, netns: int, bridge: LinkFacts) -> Observed:
    """Make the veth pair and set up the pod's end. Raises what the kernel said, with nothing left behind."""
    with ExitStack() as undo, open_links(None) as node:
        host = _add_veth(plan, node, bridge, netns)
        undo.callback(_delete, open_links, plan.host_ifname)
        with open_links(netns) as pod_links:
            pod = pod_links.set_up_pod(plan)
        undo.pop_all()
        return Observed(bridge, host, pod)


def detach(host_ifname: str, open_links: OpenLinks) -> bool:
    """Remove the pair by the node's end; the pod's namespace is not needed. False: it was gone already."""
    with open_links(None) as node:
        return node.delete_link(host_ifname)


def observe(plan: LinkPlan, open_links: OpenLinks, netns: int) -> Observed:
    with open_links(None) as node, open_links(netns) as inside:
        pod = inside.link(plan.ifname)
        addresses = [address for _, address in inside.addresses(pod.index)] if pod else []
        return Observed(node.link(plan.bridge), node.link(plan.host_ifname), pod, addresses, inside.routes())


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
