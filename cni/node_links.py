"""Keeps the node's own links in order: bridge, overlay, routes to other nodes, and one MTU for all pods.

Blocking (netlink, and a measurement of the paths), so the daemon runs it in a thread. It touches only what is ours:
our routes carry our protocol number, the bridge and the VXLAN link have our names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cni.edge import netns, pathmtu, sysctl
from cni.model import Address, Attachment, BridgePlan, Interface, LinkFacts, Network, NodeFacts, OverlayPlan, Tunnel
from cni.plan import node, overlay, pod_cidrs, routes
from cni.plan.links import OF_PODS, neighbours
from cni.plan.names import host_ifname
from cni.ports import KernelSettings, Links, OpenLinks, OpenNamespace, PathMtus
from cni.settings import CniSettings
from cni.spec.configuration import address_range
from cni.sysctls import ensure_bridge_filtered, ensure_forwarding, ensure_guarded
from nodelib.errors import Invalid, NodewrightError, Permanent

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Synced:
    """What a sync came to. `problems`: what could not be done, one sentence each; `refused`: the kernel did not do
    something for another node, and may later. `believed`: the podCIDRs of other nodes that are theirs, None while no
    Nodes are known.
    """

    problems: tuple[str, ...] = ()
    believed: tuple[Network, ...] | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class NodeLinks:
    """Repairs the links of one node, with the edges that it needs."""

    settings: CniSettings
    open_links: OpenLinks
    kernel: KernelSettings = sysctl
    path_mtus: PathMtus = pathmtu.measure
    open_namespace: OpenNamespace = netns.opened

    def sync(
        self, cidrs: tuple[Network, ...], nodes: tuple[NodeFacts, ...] | None, attachments: Sequence[Attachment]
    ) -> Synced:
        """Compare and repair. `nodes` None: not known yet."""
        own = self._own(nodes)
        versions = sorted({cidr.version for cidr in cidrs})
        problems = [ensure_bridge_filtered(version, self.kernel) for version in versions]
        with self.open_links(None) as links:
            every = links.links()  # read once: with a hundred pods this takes a fifth of the whole sync
            for version in versions:
                ensure_forwarding(version, self._trusted(every), self.kernel)
            device = links.link(overlay.LINK)
            bridge = links.link(self.settings.bridge)
            ours = {link.index for link in (device, bridge) if link is not None}
            connected = node.connected(links.addresses(), ours)
            self._refuse_takeover(cidrs, connected)
            plan = routes.plan(
                own,
                nodes or (),
                connected,
                links.routes(),
                cidrs,
                mode=self.settings.overlay,
                overlay_index=device.index if device else 0,
                neighbours=links.neighbours(device.index) if device else (),
                cluster_cidrs=self.settings.cluster_cidrs,
            )
            uplink = node.uplink_mtu(every, links.addresses(), links.routes(), own.internal_ips)
            tunnel, narrow = self._overlay(own, cidrs, plan.peers, uplink) if nodes is not None else (None, [])
            inner = tunnel.mtu if tunnel else device.mtu if device and nodes is None else 0
            mtu, problem = overlay.pod_mtu(uplink, inner, cidrs)
            # Measuring the paths to other nodes takes long: there may be new pods.
            present = links.links() if tunnel else every
            self._bridge(links, cidrs, self.settings.mtu or mtu, attachments, present)
            problems.append(ensure_guarded(self.settings.bridge, self.kernel))
            refused: list[str] = []
            if nodes is not None:  # otherwise routes and tunnels stay as they are
                self._apply_routes(links, plan, tunnel, device, refused)
        found = (*plan.skipped, *(text for text in (problem, *narrow, *problems, *refused) if text))
        return Synced(found, plan.believed if nodes is not None else None, bool(refused))

    def tunnel(self) -> Tunnel | None:
        """That of the overlay, as the kernel has it now."""
        with self.open_links(None) as links:
            link = links.link(overlay.LINK)
        return link.tunnel if link is not None else None

    def remove(self) -> None:
        """Remove routes, overlay and bridge."""
        with self.open_links(None) as links:
            for route in links.routes():
                if route.protocol == routes.PROTOCOL:
                    links.delete_route(route)
            links.delete_link(overlay.LINK)
            links.delete_link(self.settings.bridge)

    def _own(self, nodes: Iterable[NodeFacts] | None) -> NodeFacts:
        name = self.settings.node_name
        return next((item for item in nodes or () if item.name == name), NodeFacts(name))

    def _trusted(self, every: Iterable[LinkFacts]) -> list[LinkFacts]:
        """The links that no pod can send through."""
        bridge = next((link.index for link in every if link.name == self.settings.bridge), 0)
        ours = (self.settings.bridge, overlay.LINK)
        return [link for link in every if link.name not in ours and not (bridge and link.master == bridge)]

    def _refuse_takeover(self, cidrs: Iterable[Network], connected: Sequence[Interface]) -> None:
        """Raises Invalid when the bridge's route to a podCIDR would take this node off its own network."""
        for cidr in cidrs:
            if reason := pod_cidrs.takeover(cidr, connected):
                raise Invalid(
                    f"podCIDR {cidr} {reason}",
                    obj=f"node {self.settings.node_name}",
                    step="make the node's bridge",
                    action="Give the cluster's pods a range of their own (--cluster-cidr of the controller manager), "
                    "and make the Node object again.",
                )

    def _overlay(
        self, own: NodeFacts, cidrs: tuple[Network, ...], peers: Sequence[overlay.Peer], uplink: int
    ) -> tuple[OverlayPlan | None, list[str]]:
        """The overlay, None if no node needs it, and what is wrong with the paths through it."""
        if not peers:
            return None, []
        port = self.settings.vxlan_port
        paths = self.path_mtus([peer.underlay for peer in peers], port, uplink)
        mtu = overlay.link_mtu(uplink, own, peers, paths, cidrs)
        return overlay.plan(own, cidrs, port, mtu), overlay.narrow_paths(mtu, own, peers, paths)

    def _bridge(
        self,
        links: Links,
        cidrs: Iterable[Network],
        mtu: int,
        attachments: Sequence[Attachment],
        present: Iterable[LinkFacts],
    ) -> None:
        ranges = [address_range({"subnet": str(cidr)}) for cidr in cidrs]
        in_use = [address for item in attachments for address in item.addresses]
        plan, before = node.bridge(self.settings.bridge, ranges, mtu), links.link(self.settings.bridge)
        bridge = ensure_bridge(links, plan, in_use)
        _ensure_neighbours(links, bridge.index, attachments)
        if before is not None and before.mac != plan.mac:
            for item in attachments:
                self._inside(item, lambda pod, link: _moved_gateways(pod, link.index, before.mac, plan.mac))
        names = {host_ifname(self.settings.network, item.key): item for item in attachments}
        for link in present:
            if link.name in names and link.mtu != mtu:
                log.info("%s: MTU %d -> %d", names[link.name].pod or link.name, link.mtu, mtu)
                self._inside(names[link.name], lambda pod, link: pod.set_link(link.name, mtu=mtu))
                links.set_link(link.name, mtu=mtu)

    def _inside(self, attachment: Attachment, change: Callable[[Links, LinkFacts], None]) -> None:
        """Change the pod's end; a pod that is being deleted has none, and one that may change it itself can refuse."""
        try:
            with self.open_namespace(attachment.netns) as inside, self.open_links(inside) as pod:
                link = pod.link(attachment.key.ifname)
                # The path may belong to another pod's namespace by now.
                if link is not None and any(item.ip in attachment.addresses for _, item in pod.addresses(link.index)):
                    change(pod, link)
        except NodewrightError as error:
            log.info("the link of %s stays as it is: %s", attachment.pod or attachment.key, error)

    def _apply_routes(
        self,
        links: Links,
        plan: routes.RoutesPlan,
        tunnel: OverlayPlan | None,
        device: LinkFacts | None,
        refused: list[str],
    ) -> None:
        """Stale routes first, the overlay before the routes that lead into it.

        What the kernel does not do for one node is `refused`: each says itself where it is, and the others' routes must
        not wait for it.
        """
        for stale in plan.remove:
            links.delete_route(stale)
        if tunnel is not None:
            self._ensure_overlay(links, tunnel, plan.peers, refused)
        for route in plan.add:
            with _noted(refused, f"route to node {route.node}: {route.destination} via {route.gateway}"):
                links.replace_route(route, routes.PROTOCOL)
                log.info("route to node %s: %s via %s %s", route.node, route.destination, route.gateway, route.link)
        if tunnel is None and device is not None:
            links.delete_link(overlay.LINK)
            log.info("%s removed: every node is on a link of this one", overlay.LINK)

    def _ensure_overlay(
        self, links: Links, tunnel: OverlayPlan, peers: Sequence[overlay.Peer], refused: list[str]
    ) -> None:
        link = links.link(tunnel.name)
        if link is not None and link.kind != "vxlan":
            raise Invalid(
                f"there is a {link.kind or 'device'} with that name",
                obj=tunnel.name,
                step="make the overlay",
                action="Remove that link: the pod network needs the name.",
            )
        if link is not None and overlay.must_be_remade(tunnel, link):
            links.delete_link(tunnel.name)
            link = None
        if link is None:
            links.add_tunnel(tunnel)
            log.info("%s: VXLAN from %s, UDP port %d, MTU %d", tunnel.name, *_shown(tunnel))
            link = links.link(tunnel.name)
        elif link.mtu != tunnel.mtu or not link.up:
            links.set_link(tunnel.name, mtu=tunnel.mtu)
        if link is None:
            raise Permanent("it vanished while it was being made", obj=tunnel.name, step="make the overlay")
        add, remove = overlay.addresses_to_change(tunnel, [item for _, item in links.addresses(link.index)])
        for address in add:
            links.add_address(link.index, address)
        for address in remove:
            links.delete_address(link.index, address)
        _ensure_entries(links, link.index, peers, refused)


def _ensure_neighbours(links: Links, index: int, attachments: Iterable[Attachment]) -> None:
    """The node finds each of its pods, and none that is gone, whatever becomes of the kernel's table."""
    wanted = {entry for item in attachments for entry in neighbours(item.addresses)}
    present = set(links.neighbours(index))
    for stale in present - wanted:
        if stale.mac.startswith(OF_PODS):
            links.delete_neighbour(index, stale)
    for missing in wanted - present:
        links.replace_neighbour(index, missing)


def _moved_gateways(pod: Links, index: int, old: str, new: str) -> None:
    for entry in pod.neighbours(index):
        if entry.mac == old:
            pod.replace_neighbour(index, replace(entry, mac=new))


@contextmanager
def _noted(refused: list[str], what: str) -> Iterator[None]:
    """Note what the kernel refuses. Raises Temporary: another try is worth while, of everything."""
    try:
        yield
    except Permanent as error:
        refused.append(f"{what}: {error}")


def _ensure_entries(links: Links, index: int, peers: Sequence[overlay.Peer], refused: list[str]) -> None:
    todo = overlay.entries(peers, links.forwards(index), links.neighbours(index))
    for stale in todo.stale_forward:
        links.delete_forward(index, stale)
    for gone in todo.stale_neighbours:
        links.delete_neighbour(index, gone)
    for forward in todo.forward:
        with _noted(refused, f"tunnel to {forward.remote}"):
            links.replace_forward(index, forward)
    for neighbour in todo.neighbours:
        with _noted(refused, f"entry for {neighbour.address}"):
            links.replace_neighbour(index, neighbour)


def _shown(tunnel: OverlayPlan) -> tuple[Address, int, int]:
    return tunnel.tunnel.local, tunnel.tunnel.port, tunnel.mtu


def ensure_bridge(links: Links, plan: BridgePlan, in_use: Collection[Address] = ()) -> LinkFacts:
    """Make or repair the bridge as `plan` says. Raises Invalid when another kind of link has its name."""
    link = links.link(plan.name)
    if link is not None and link.kind != "bridge":
        raise Invalid(
            f"there is a {link.kind or 'device'} with that name",
            obj=plan.name,
            step="make the node's bridge",
            action="Remove that link or choose another bridge name.",
        )
    present = [item for _, item in links.addresses(link.index)] if link else []
    todo = node.changes(plan, link, present, in_use, links.routes() if link else ())
    if todo.create:
        links.add_bridge(plan.name, plan.mac, plan.mtu)
        link = links.link(plan.name)
    elif todo.bring_up or todo.set_mtu or todo.set_mac:
        links.set_link(plan.name, mtu=todo.set_mtu or None, mac=todo.set_mac or None)
    if link is None:
        raise Permanent("it vanished while it was being made", obj=plan.name, step="make the node's bridge")
    for address in todo.add:
        links.add_address(link.index, address)
    for address in todo.remove:
        links.delete_address(link.index, address)
    for address in todo.route:
        links.restore_route(link.index, address)
        log.warning("%s: the route to this node's own pods %s was gone: restored", plan.name, address.network)
    return link
