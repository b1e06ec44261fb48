"""rtnetlink in memory: namespaces, links, addresses and routes, with the kernel's refusals.

`FakeKernel.open` has the signature of `cni.edge.netlink.Netlink`: a namespace's number instead of a descriptor, None
for the node's. It interprets: a veth pair vanishes with either end, an address brings its connected route, a route
needs a next hop on a link. `fail_next` makes the named calls fail once each, in turn.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self

from cni.model import (
    Address,
    Bucket,
    Forward,
    Interface,
    LinkFacts,
    LinkPlan,
    Listener,
    Neighbour,
    NodeRoute,
    OverlayPlan,
    Route,
    RouteFacts,
)
from nodelib.errors import Conflict, NodewrightError, NotFound, Permanent

NODE = 0


@dataclass
class FakeNamespace:
    links: dict[str, LinkFacts] = field(default_factory=dict)
    addresses: list[tuple[int, Interface]] = field(default_factory=list)
    routes: list[RouteFacts] = field(default_factory=list)
    forwards: list[tuple[int, Forward]] = field(default_factory=list)
    neighbours: list[tuple[int, Neighbour]] = field(default_factory=list)
    buckets: dict[int, Bucket] = field(default_factory=dict)
    redirects: dict[int, int] = field(default_factory=dict)
    next_index: int = 2

    def __post_init__(self) -> None:
        self.links["lo"] = LinkFacts(1, "lo", "", "00:00:00:00:00:00", 65536, up=False)


class FakeKernel:
    def __init__(self) -> None:
        self.namespaces: dict[int, FakeNamespace] = {NODE: FakeNamespace()}
        self.peers: dict[tuple[int, str], tuple[int, str]] = {}
        self.hairpin: dict[str, bool] = {}
        self.fail_next: list[str] = []
        self.calls: list[str] = []

    def new_namespace(self) -> int:
        number = max(self.namespaces) + 1
        self.namespaces[number] = FakeNamespace()
        return number

    def open(self, netns: int | None = None) -> FakeLinks:
        return FakeLinks(self, NODE if netns is None else netns)

    def drop(self, number: int) -> None:
        """What the end of a namespace does: its links go, and so do their peers."""
        for name in [key for key in self.namespaces[number].links if key != "lo"]:
            self.remove_link(number, name)
        del self.namespaces[number]

    def remove_link(self, number: int, name: str) -> None:
        space = self.namespaces[number]
        link = space.links.pop(name)
        space.addresses = [item for item in space.addresses if item[0] != link.index]
        space.routes = [item for item in space.routes if item.link != link.index]
        space.buckets.pop(link.index, None)
        space.redirects.pop(link.index, None)
        space.forwards = [item for item in space.forwards if item[0] != link.index]
        space.neighbours = [item for item in space.neighbours if item[0] != link.index]
        peer = self.peers.pop((number, name), None)
        if peer is not None and self.peers.pop(peer, None) is not None:
            self.remove_link(*peer)

    def dump(self) -> str:
        """Everything but loopback, sorted."""
        lines = []
        for number, space in sorted(self.namespaces.items()):
            for link in sorted(space.links.values(), key=lambda item: item.name):
                if link.name == "lo" and not link.up:
                    continue
                state = "up" if link.up else "down"
                lines.append(f"{number} link {link.name} {link.kind or '-'} mtu {link.mtu} {state}")
                lines += [f"{number} addr {item} dev {link.name}" for at, item in space.addresses if at == link.index]
            lines += sorted(f"{number} neighbour {one.address} at {one.mac} dev {at}" for at, one in space.neighbours)
            for route in sorted(space.routes, key=str):
                lines.append(f"{number} route {route.destination} via {route.gateway} proto {route.protocol}")
        return "\n".join(lines)


class FakeLinks:
    """One socket. Implements cni.ports.Links."""

    def __init__(self, kernel: FakeKernel, number: int) -> None:
        self._kernel = kernel
        self._number = number

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        return None

    @property
    def _space(self) -> FakeNamespace:
        return self._kernel.namespaces[self._number]

    def link(self, name: str) -> LinkFacts | None:
        return self._space.links.get(name)

    def links(self) -> list[LinkFacts]:
        return list(self._space.links.values())

    def addresses(self, index: int = 0) -> list[tuple[int, Interface]]:
        return [item for item in self._space.addresses if index in (0, item[0])]

    def routes(self) -> list[RouteFacts]:
        return list(self._space.routes)

    def add_bridge(self, name: str, mac: str, mtu: int) -> None:
        self._step("add_bridge")
        self._new(self._number, LinkFacts(0, name, "bridge", mac, mtu, up=True))

    def set_link(self, name: str, *, mtu: int | None = None, mac: str | None = None, up: bool = True) -> None:
        self._step("set_link")
        link = self._existing(name)
        self._space.links[name] = replace(link, mtu=mtu or link.mtu, mac=mac or link.mac, up=up or link.up)

    def add_veth(self, plan: LinkPlan, bridge: LinkFacts, netns: int) -> LinkFacts:
        self._step("add_veth")
        for number, name in ((self._number, plan.host_ifname), (netns, plan.ifname)):
            if name in self._kernel.namespaces[number].links:
                raise Conflict("File exists", obj=name, step="add veth pair")
        mac = plan.mac or "0a:00:00:00:00:01"
        self._new(netns, LinkFacts(0, plan.ifname, "veth", mac, plan.mtu, up=False))
        host = LinkFacts(0, plan.host_ifname, "veth", "0a:00:00:00:00:02", plan.mtu, up=True, master=bridge.index)
        made = self._new(self._number, host)
        ends = (self._number, plan.host_ifname), (netns, plan.ifname)
        self._kernel.peers |= {ends[0]: ends[1], ends[1]: ends[0]}
        self._kernel.hairpin[plan.host_ifname] = plan.hairpin
        return made

    def set_up_pod(self, plan: LinkPlan) -> LinkFacts:
        self._step("set_up_pod")
        space = self._space
        space.links["lo"] = replace(space.links["lo"], up=True)
        link = self._existing(plan.ifname)
        for address in plan.addresses:
            space.addresses.append((link.index, address))
            space.routes.append(RouteFacts(address.network, None, link.index, 2))
        space.links[plan.ifname] = replace(link, up=True)
        for route in plan.routes:
            self._add_route(route, link.index)
        space.neighbours += [(link.index, entry) for entry in plan.gateways]
        return link

    def delete_link(self, name: str) -> bool:
        self._step("delete_link")
        if name not in self._space.links:
            return False
        self._kernel.remove_link(self._number, name)
        return True

    def add_address(self, index: int, address: Interface) -> None:
        self._step("add_address")
        if (index, address) in self._space.addresses:
            raise Conflict("File exists", obj=str(address), step="add address")
        self._space.addresses.append((index, address))
        if self._number == NODE:
            self.restore_route(index, address)

    def delete_address(self, index: int, address: Interface) -> None:
        self._step("delete_address")
        self._space.addresses.remove((index, address))
        self._space.routes = [
            item for item in self._space.routes if (item.destination, item.link) != (address.network, index)
        ]

    def restore_route(self, index: int, address: Interface) -> None:
        self._step("restore_route")
        self._space.routes.append(RouteFacts(address.network, None, index, 2))

    def replace_route(self, route: NodeRoute, protocol: int) -> None:
        self._step("replace_route")
        at = self._existing(route.link).index if route.link else self._link_to(route.gateway)
        self._space.routes = [item for item in self._space.routes if item.destination != route.destination]
        self._space.routes.append(RouteFacts(route.destination, route.gateway, at, protocol))

    def delete_route(self, route: RouteFacts) -> bool:
        self._step("delete_route")
        if route not in self._space.routes:
            return False
        self._space.routes.remove(route)
        return True

    def add_tunnel(self, plan: OverlayPlan) -> None:
        self._step("add_tunnel")
        self._new(self._number, LinkFacts(0, plan.name, "vxlan", plan.mac, plan.mtu, up=True, tunnel=plan.tunnel))

    def forwards(self, index: int) -> list[Forward]:
        return [item for at, item in self._space.forwards if at == index]

    def neighbours(self, index: int) -> list[Neighbour]:
        return [item for at, item in self._space.neighbours if at == index]

    def replace_forward(self, index: int, entry: Forward) -> None:
        self._step("replace_forward")
        self._space.forwards.append((index, entry))

    def delete_forward(self, index: int, entry: Forward) -> bool:
        self._step("delete_forward")
        self._space.forwards.remove((index, entry))
        return True

    def replace_neighbour(self, index: int, entry: Neighbour) -> None:
        self._step("replace_neighbour")
        others = [item for item in self._space.neighbours if (item[0], item[1].address) != (index, entry.address)]
        self._space.neighbours = [*others, (index, entry)]

    def delete_neighbour(self, index: int, entry: Neighbour) -> bool:
        self._step("delete_neighbour")
        there = (index, entry) in self._space.neighbours
        self._space.neighbours = [item for item in self._space.neighbours if item != (index, entry)]
        return there

    def add_ifb(self, name: str, mtu: int) -> None:
        self._step("add_ifb")
        self._new(self._number, LinkFacts(0, name, "ifb", "0a:00:00:00:00:03", mtu, up=True))

    def set_bucket(self, index: int, bucket: Bucket) -> None:
        self._step("set_bucket")
        self._space.buckets[index] = bucket

    def redirect(self, index: int, to: int) -> None:
        self._step("redirect")
        self._space.redirects[index] = to

    def buckets(self) -> list[tuple[int, int]]:
        return [(index, bucket.rate) for index, bucket in self._space.buckets.items()]

    def _new(self, number: int, link: LinkFacts) -> LinkFacts:
        space = self._kernel.namespaces[number]
        if link.name in space.links:
            raise Conflict("File exists", obj=link.name, step="add link")
        made = replace(link, index=space.next_index)
        space.next_index += 1
        space.links[link.name] = made
        return made

    def _existing(self, name: str) -> LinkFacts:
        link = self._space.links.get(name)
        if link is None:
            raise NotFound("No such device", obj=name)
        return link

    def _add_route(self, route: Route, index: int) -> None:
        if route.gateway is not None:
            self._link_to(route.gateway)
        self._space.routes.append(RouteFacts(route.destination, route.gateway, index, 3))

    def _link_to(self, gateway: Address) -> int:
        for index, address in self._space.addresses:
            if gateway.version == address.version and gateway in address.network:
                return index
        raise Permanent("Network is unreachable", obj=str(gateway), step="set route")

    def _step(self, name: str) -> None:
        self._kernel.calls.append(name)
        if name in self._kernel.fail_next:
            self._kernel.fail_next.remove(name)
            raise NodewrightError(f"made to fail (errno {errno.EIO})", step=name)


OpenFake = Callable[[int | None], FakeLinks]


class FakePorts:
    """The ports of the node's own processes."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners

    def listeners(self) -> tuple[Listener, ...]:
        return self._listeners

    def clients_ports(self) -> tuple[int, int]:
        return 32768, 60999
