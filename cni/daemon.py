"""The node's half of the pod network: bridge, forwarding, routes to other nodes, packet filter, .conflist.

Level-triggered: `sync()` compares what should be with what is and mends the difference, whatever led to it; nodelib's
runner calls it after every change, again soon after a failure, and every minute as the audit. It never touches
what is not ours: routes carry our protocol number, chains and tables our name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import ip_network

from cni import flows
from cni.edge import sysctl
from cni.firewall import Firewall
from cni.model import Address, Attachment, BridgePlan, HostPort, LinkFacts, Network, NodeFacts
from cni.plan import masq, node, routes
from cni.plan.masq import FirewallFacts
from cni.ports import KernelSettings, Links, OpenLinks
from cni.settings import CniSettings
from cni.spec import NetConf, address_range
from nodelib.clock import Clock
from nodelib.errors import Invalid, NodewrightError, Permanent
from nodelib.runner import BoundedFrequencyRunner

log = logging.getLogger(__name__)

_FORWARD = {4: "net/ipv4/ip_forward", 6: "net/ipv6/conf/all/forwarding"}
_AUDIT_SECONDS = 60.0
_FIRST_LOOK_SECONDS = 5.0
_FAILURES_TOLERATED = 5  # in a row, 2 s apart


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the last run published: enough to serve pods before the API server can be asked again."""

    pod_cidrs: tuple[Network, ...] = ()
    non_masquerade: tuple[Network, ...] = ()


class NodeNetwork:
    """Owns the node's half. `publish` is called whenever ADD can be served, `attachments` gives the store's."""

    def __init__(
        self,
        settings: CniSettings,
        *,
        open_links: OpenLinks,
        attachments: Callable[[], list[Attachment]],
        apply_rules: Callable[[FirewallFacts, bool], Awaitable[None]],
        publish: Callable[[tuple[Network, ...], tuple[Network, ...]], Awaitable[None]],
        clock: Clock,
        remembered: Remembered | None = None,
        kernel: KernelSettings = sysctl,
    ) -> None:
        self._settings = settings
        self._open_links = open_links
        self._attachments = attachments
        self._publish = publish
        self._kernel = kernel
        self._failures = 0
        self._remembered = remembered or Remembered()
        self._nodes: tuple[NodeFacts, ...] | None = None
        self._said: tuple[str, ...] = ()
        self._waiting = "the node's network has not been set up yet"
        self._looked = asyncio.Event()
        self.firewall = Firewall(self._firewall_facts, apply_rules, self._ports_changed)
        self._runner = BoundedFrequencyRunner(
            "pod network", self.sync, min_interval=0.2, retry_interval=2, max_interval=_AUDIT_SECONDS, clock=clock
        )

    def set_nodes(self, nodes: Iterable[NodeFacts]) -> None:
        """The Node objects as they are now, this node's among them. Cheap; the work follows in `run()`.

        Call it only with a complete list: routes to nodes that are not in it go away.
        """
        now = tuple(sorted(nodes, key=lambda item: item.name))
        if now != self._nodes:
            self._nodes = now
            self._runner.poke()

    def poke(self) -> None:
        """Ask for a sync soon."""
        self._runner.poke()

    async def run(self) -> None:
        """Until cancelled."""
        self._runner.poke()
        await self._runner.run()

    @property
    def waiting(self) -> str:
        """Why ADD cannot be served yet, "" when it can."""
        return self._waiting

    async def status(self) -> str:
        """`waiting`, but not before the first sync has ended: a restart must not make a good node look broken."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._looked.wait(), _FIRST_LOOK_SECONDS)
        return self._waiting

    @property
    def pod_cidrs(self) -> tuple[Network, ...]:
        """This node's ranges: the settings', its own Node object's, or until Nodes are known those of the last run."""
        if self._settings.pod_cidrs or self._nodes is None:
            return self._settings.pod_cidrs or self._remembered.pod_cidrs
        own = self._own()
        return own.pod_cidrs if own else ()

    def adopt(self, conf: NetConf) -> NetConf:
        """A runtime's configuration of this network with this node's ranges.

        The runtime may still have the file of before a change of podCIDR, or (two nodes that share
        /etc/cni/net.d by mistake) another node's: addresses of it would be unreachable or doubled.
        A configuration without any range stays as it is, and is refused as the error that it is.
        """
        if conf.name != self._settings.network or not self.pod_cidrs or not conf.ranges:
            return conf
        ranges = tuple((address_range({"subnet": str(cidr)}),) for cidr in self.pod_cidrs)
        if conf.ranges == ranges:
            return conf
        theirs = ", ".join(str(item.subnet) for chosen in conf.ranges for item in chosen)
        reason = (
            f"the runtime's configuration says {theirs}, this node has "
            f"{', '.join(map(str, self.pod_cidrs))}: the node's is used. Does another node write "
            f"{self._settings.conf_file}?"
        )
        if reason not in self._said:
            log.warning("%s", reason)
            self._said = (*self._said, reason)
        return replace(conf, ranges=ranges)

    async def sync(self) -> None:
        """One comparison and repair. Raises NodewrightError; `waiting` then says the same."""
        try:
            await self._sync()
        finally:
            self._looked.set()

    async def _sync(self) -> None:
        cidrs = self.pod_cidrs
        if not cidrs:
            self._waiting = f"node {self._settings.node_name} has no podCIDR yet"
            log.info("%s: pods cannot get an address before the controller-manager gives it one", self._waiting)
            return
        try:
            skipped = await asyncio.to_thread(self._sync_links, cidrs)
            await self.firewall.sync(audit=True)
            # After the rules: they guard the node's loopback against what this setting lets through.
            await asyncio.to_thread(ensure_route_localnet, self._settings.bridge, self._kernel)
            await self._publish(cidrs, self.non_masquerade)
        except NodewrightError as error:
            self._failures += 1
            # One audit that fails (a busy lock) must not take the node out of service: its pods are served as before.
            if self._waiting or self._failures >= _FAILURES_TOLERATED:
                self._waiting = str(error)
            raise
        self._failures = 0
        self._remembered = Remembered(cidrs, self.non_masquerade)
        self._waiting = ""
        self._report(skipped)

    @property
    def non_masquerade(self) -> tuple[Network, ...]:
        """Destinations that see pod addresses: the cluster's pods, its nodes, and what the settings add."""
        fixed = (*self._settings.cluster_cidrs, *self._settings.non_masquerade)
        if self._nodes is None:
            return tuple(dict.fromkeys((*fixed, *self._remembered.non_masquerade)))
        hosts = [ip_network(str(ip)) for item in self._nodes for ip in item.internal_ips]
        return tuple(dict.fromkeys((*fixed, *hosts)))

    async def remove(self) -> None:
        """Routes and bridge; pods that still run lose their network, so the caller asks first."""
        await asyncio.to_thread(self._remove_links)

    def _sync_links(self, cidrs: tuple[Network, ...]) -> tuple[str, ...]:
        ranges = [address_range({"subnet": str(cidr)}) for cidr in cidrs]
        for version in {cidr.version for cidr in cidrs}:
            ensure_forwarding(version, self._kernel)
        in_use = [address for item in self._attachments() for address in item.addresses]
        with self._open_links(None) as links:
            plan = node.bridge(self._settings.bridge, ranges, self._mtu(links))
            index = ensure_bridge(links, plan, in_use).index
            if self._nodes is None:
                return ()  # the other nodes are not known yet: their routes stay as they are
            there = node.connected(links.addresses(), index)
            changes = routes.plan(self._settings.node_name, self._nodes, there, links.routes(), cidrs)
            for stale in changes.remove:
                links.delete_route(stale)
            for route in changes.add:
                links.replace_route(route, routes.PROTOCOL)
                log.info("route to node %s: %s via %s", route.node, route.destination, route.gateway)
        return changes.skipped

    def _remove_links(self) -> None:
        with self._open_links(None) as links:
            for route in links.routes():
                if route.protocol == routes.PROTOCOL:
                    links.delete_route(route)
            links.delete_link(self._settings.bridge)

    def _mtu(self, links: Links) -> int:
        if self._settings.mtu:
            return self._settings.mtu
        own = self._own()
        ips = own.internal_ips if own else ()
        return node.uplink_mtu(links.links(), links.addresses(), links.routes(), ips)

    def _own(self) -> NodeFacts | None:
        return next((item for item in self._nodes or () if item.name == self._settings.node_name), None)

    def _firewall_facts(self) -> FirewallFacts:
        return FirewallFacts(
            network=self._settings.network,
            bridge=self._settings.bridge,
            # A Node made anew has no podCIDR for a moment; the pods that run keep their rules meanwhile.
            pod_cidrs=self.pod_cidrs or self._remembered.pod_cidrs,
            non_masquerade=self.non_masquerade,
            masquerade=self._settings.masquerade,
            host_ports=masq.host_ports(self._attachments()),
            bridge_filtered=bridge_filtered(self._kernel),
        )

    async def _ports_changed(self, old: tuple[HostPort, ...], new: tuple[HostPort, ...]) -> None:
        if old != new:
            await asyncio.to_thread(flows.follow, self._open_links, old, new)

    def _report(self, skipped: tuple[str, ...]) -> None:
        """Each reason once, not every minute."""
        for reason in skipped:
            if reason not in self._said:
                log.warning("%s", reason)
        self._said = skipped


def ensure_bridge(links: Links, plan: BridgePlan, in_use: Collection[Address] = ()) -> LinkFacts:
    """Make the bridge what `plan` says. Raises Invalid when the name is another link's."""
    link = links.link(plan.name)
    if link is not None and link.kind != "bridge":
        raise Invalid(
            f"there is a {link.kind or 'device'} of that name",
            obj=plan.name,
            step="make the node's bridge",
            action="Remove that link or choose another bridge name.",
        )
    present = [item for _, item in links.addresses(link.index)] if link else []
    todo = node.changes(plan, link, present, in_use)
    if todo.create:
        links.add_bridge(plan.name, plan.mac, plan.mtu)
        link = links.link(plan.name)
    elif todo.bring_up or todo.set_mtu or todo.set_mac:
        links.set_link(plan.name, mtu=todo.set_mtu or None, mac=todo.set_mac or None)
    if link is None:
        raise Permanent("it vanished while it was made", obj=plan.name, step="make the node's bridge")
    for address in todo.add:
        links.add_address(link.index, address)
    for address in todo.remove:
        links.delete_address(link.index, address)
    return link


def bridge_filtered(kernel: KernelSettings = sysctl) -> bool:
    """Whether frames between two ports of a bridge pass iptables (br_netfilter), which translates answers back."""
    return kernel.read("net/bridge/bridge-nf-call-iptables") == "1"


def ensure_forwarding(version: int, kernel: KernelSettings = sysctl) -> None:
    """Without it the kernel drops every packet that is not for the node itself. Raises Permanent."""
    _ensure(kernel, _FORWARD[version], "1")


def ensure_route_localnet(bridge: str, kernel: KernelSettings = sysctl) -> None:
    """Lets 127.0.0.1:hostPort reach a pod; only after the rules that guard the loopback. Raises Permanent."""
    _ensure(kernel, f"net/ipv4/conf/{bridge.replace('/', '.')}/route_localnet", "1")


def _ensure(kernel: KernelSettings, name: str, value: str) -> None:
    if kernel.read(name) not in (value, None):
        kernel.write(name, value)
