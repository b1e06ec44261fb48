"""rtnetlink with pyroute2's messages, several requests in one datagram. Decides nothing.

Why not pyroute2.IPRoute: as measured, IPRoute(netns=...) takes 18 ms and a fork of the whole process for the socket
alone, and each call runs an event loop (0.4 to 2 ms). With our own socket in the right namespace and batched requests,
a whole ADD takes 3 to 5 ms. The messages themselves are pyroute2's.

A `Netlink` belongs to the thread that uses it, and never changes that thread's namespace (see `edge.netns`).
"""

from __future__ import annotations

from ipaddress import ip_interface
from typing import Any

from cni.edge.messages import (
    CREATE,
    DELADDR,
    DELLINK,
    DELROUTE,
    DUMP,
    EXCL,
    GETADDR,
    GETLINK,
    GETROUTE,
    MAIN_TABLE,
    NEWADDR,
    NEWLINK,
    NEWNEIGH,
    NEWROUTE,
    ONLINK,
    REPLACE,
    REQUEST,
    UNICAST,
    address_message,
    bridge_entry,
    bridge_port,
    connected_route,
    info,
    link_facts,
    link_message,
    neighbour_message,
    peer,
    pod_route,
    route_facts,
    route_message,
)
from cni.edge.shaping import ShapingCalls
from cni.edge.tunnel import TunnelCalls
from cni.model import Interface, LinkFacts, LinkPlan, NodeRoute, RouteFacts
from nodelib.errors import NotFound

_LOOPBACK_INDEX = 1


class Netlink(TunnelCalls, ShapingCalls):
    """One rtnetlink socket in the namespace `netns` (a descriptor; None: the caller's own)."""

    # -- reading ---------------------------------------------------------------------------------------------

    def link(self, name: str) -> LinkFacts | None:
        """The link with that name, None when there is none."""
        try:
            answers = self.call([link_message(GETLINK, name=name)], step="look up link", obj=name)
        except NotFound:
            return None
        return link_facts(answers[0])

    def links(self) -> list[LinkFacts]:
        return [link_facts(item) for item in self.dump(link_message(GETLINK, flags=REQUEST | DUMP))]

    def addresses(self, index: int = 0) -> list[tuple[int, Interface]]:
        """(link index, address with prefix) of every link, or of the one given."""
        found = []
        for item in self.dump(address_message(GETADDR, flags=REQUEST | DUMP)):
            text = item.get_attr("IFA_LOCAL") or item.get_attr("IFA_ADDRESS")
            if index in (0, item["index"]):
                found.append((int(item["index"]), ip_interface(f"{text}/{item['prefixlen']}")))
        return found

    def routes(self) -> list[RouteFacts]:
        """Unicast routes of the main table, both families."""
        return [
            route_facts(item)
            for item in self.dump(route_message(GETROUTE, flags=REQUEST | DUMP))
            if item["type"] == UNICAST and (item.get_attr("RTA_TABLE") or item["table"]) == MAIN_TABLE
        ]

    # -- changing --------------------------------------------------------------------------------------------

    def add_bridge(self, name: str, mac: str, mtu: int) -> None:
        """Raises Conflict when a link with that name exists."""
        kind = ["IFLA_LINKINFO", {"attrs": [["IFLA_INFO_KIND", "bridge"]]}]
        attrs: list[list[Any]] = [["IFLA_ADDRESS", mac], ["IFLA_MTU", mtu], kind]
        self.call([link_message(NEWLINK, CREATE | EXCL, name=name, up=True, attrs=attrs)], "add bridge", name)

    def set_link(self, name: str, *, mtu: int | None = None, mac: str | None = None, up: bool = True) -> None:
        attrs: list[list[Any]] = []
        if mtu is not None:
            attrs.append(["IFLA_MTU", mtu])
        if mac is not None:
            attrs.append(["IFLA_ADDRESS", mac])
        self.call([link_message(NEWLINK, name=name, up=up, attrs=attrs)], step="set link", obj=name)

    def add_veth(self, plan: LinkPlan, bridge: LinkFacts, netns: int) -> LinkFacts:
        """Add the pair: the node's end here, up and as a port of the bridge, the pod's end directly in `netns`.

        The pod's end cannot come up in the same message: veth_open() fails with ENOTCONN until the pair is connected.
        The port is locked to the pod's hardware address: the bridge drops frames from any other, and learns none. It is
        what macspoofchk of upstream's bridge plugin does, without rules (Linux 5.18; older kernels only learn none).
        Raises Conflict when either name is taken.
        """
        far: list[list[Any]] = [["IFLA_IFNAME", plan.ifname], ["IFLA_MTU", plan.mtu], ["IFLA_NET_NS_FD", netns]]
        if plan.mac:
            far.append(["IFLA_ADDRESS", plan.mac])
        veth = info("IFLA_INFO_KIND", "veth", "IFLA_INFO_DATA", "VETH_INFO_PEER", peer(far))
        create = [["IFLA_MTU", plan.mtu], ["IFLA_MASTER", bridge.index], veth]
        name = plan.host_ifname
        answers = self.call(
            [
                link_message(NEWLINK, CREATE | EXCL, name=name, up=True, attrs=create),
                link_message(GETLINK, name=name),
            ],
            step="add veth pair",
            obj=f"{name} and {plan.ifname}",
        )
        host = link_facts(answers[0])
        port = [["IFLA_BRPORT_MODE", int(plan.hairpin)]]
        messages = []
        if plan.mac:
            messages.append(bridge_entry(host.index, plan.mac))
            port += [["IFLA_BRPORT_LEARNING", 0], ["IFLA_BRPORT_LOCKED", 1]]
        messages.append(link_message(NEWLINK, name=name, attrs=[bridge_port(port)]))
        self.call(messages, step="set bridge port", obj=name)
        return host

    def set_up_pod(self, plan: LinkPlan) -> LinkFacts:
        """Inside the pod: bring loopback up, then set addresses, state and routes of its end."""
        found = self.call(
            [link_message(GETLINK, name=plan.ifname), link_message(NEWLINK, index=_LOOPBACK_INDEX, up=True)],
            step="look up link",
            obj=plan.ifname,
        )
        link = link_facts(found[0])
        messages = [address_message(NEWADDR, CREATE | REPLACE, link.index, item) for item in plan.addresses]
        messages.append(link_message(NEWLINK, index=link.index, up=True))
        messages += [pod_route(route, link.index) for route in plan.routes]
        messages += [neighbour_message(NEWNEIGH, CREATE | REPLACE, link.index, one) for one in plan.gateways]
        self.call(messages, step="set addresses and routes", obj=plan.ifname)
        return link

    def delete_link(self, name: str) -> bool:
        """False when it was gone already."""
        try:
            self.call([link_message(DELLINK, name=name)], step="delete link", obj=name)
        except NotFound:
            return False
        return True

    def add_address(self, index: int, address: Interface) -> None:
        """Raises Conflict when it is there already."""
        self.call([address_message(NEWADDR, CREATE | EXCL, index, address)], "add address", str(address))

    def delete_address(self, index: int, address: Interface) -> None:
        self.call([address_message(DELADDR, 0, index, address)], step="delete address", obj=str(address))

    def restore_route(self, index: int, address: Interface) -> None:
        """The route of an address's own network, as the kernel makes it together with the address."""
        self.call([connected_route(address, index)], step="set route", obj=str(address.network))

    def replace_route(self, route: NodeRoute, protocol: int) -> None:
        """Raises NotFound when the route names a link that does not exist."""
        attrs: list[list[Any]] = [["RTA_DST", str(route.destination.network_address)]]
        attrs.append(["RTA_GATEWAY", str(route.gateway)])
        message = route_message(NEWROUTE, CREATE | REPLACE, route.destination, attrs, protocol)
        if route.link:
            link = self.link(route.link)
            if link is None:
                raise NotFound("it does not exist", obj=route.link, step=f"route to {route.destination}")
            message["flags"] = ONLINK
            attrs.append(["RTA_OIF", link.index])
            message["attrs"] = attrs
        self.call([message], step="set route", obj=f"{route.destination} via {route.gateway}")

    def delete_route(self, route: RouteFacts) -> bool:
        """False when it was gone already."""
        attrs: list[list[Any]] = [["RTA_DST", str(route.destination.network_address)]]
        if route.gateway is not None:
            attrs.append(["RTA_GATEWAY", str(route.gateway)])
        message = route_message(DELROUTE, 0, route.destination, attrs, route.protocol)
        try:
            self.call([message], step="delete route", obj=str(route.destination))
        except NotFound:
            return False
        return True
