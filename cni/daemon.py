"""The node's half of the pod network: bridge, forwarding, routes to other nodes, packet filter, .conflist.

Level-triggered: `sync()` compares what should be with what is and repairs every difference. nodelib's runner calls it
after every change, when the kernel tells of a loss, soon again after a failure, and every minute as an audit. It
touches only what is ours: our routes carry our protocol number, our chains and tables our name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from ipaddress import ip_network

from cni import udp_flows
from cni.firewall import ApplyRules, Firewall
from cni.model import Attachment, FirewallFacts, HostPort, Loss, Network, NodeFacts, Tunnel
from cni.node_links import NodeLinks
from cni.plan import hostports, overlay, pod_cidrs, routes
from cni.settings import CniSettings
from cni.spec.configuration import NetConf, address_range
from cni.sysctls import bridge_filtered, ensure_route_localnet
from nodelib.backoff import Backoff
from nodelib.clock import Clock, at_most
from nodelib.errors import NodewrightError
from nodelib.runner import BoundedFrequencyRunner
from nodelib.tasks import side_by_side

log = logging.getLogger(__name__)

_AUDIT_SECONDS = 60.0
_FIRST_SYNC_SECONDS = 5.0
_TAKE_OVER_SECONDS = 30.0  # a runtime that does not answer for so long counts as down (agent/runtime/plan.py)
_REST, _LONGEST_REST = 4.0, 5.0  # a fifth of the time: any node may change what it says of itself without end
_REFUSED_PAUSES = (2.0, _AUDIT_SECONDS)
_FAILURES_TOLERATED = 5  # in a row, 2 s apart


@dataclass(frozen=True, slots=True)
class Published:
    """What was published to the runtime last: enough to serve pods before the API server answers again."""

    pod_cidrs: tuple[Network, ...] = ()
    non_masquerade: tuple[Network, ...] = ()


class NodeNetwork:
    """Owns the node's half. `publish` is called after each sync that succeeds; `attachments` lists the store's."""

    def __init__(
        self,
        settings: CniSettings,
        *,
        links: NodeLinks,
        attachments: Callable[[], list[Attachment]],
        apply_rules: ApplyRules,
        publish: Callable[[tuple[Network, ...], tuple[Network, ...]], Awaitable[None]],
        clock: Clock,
        published: Published | None = None,
    ) -> None:
        self._settings = settings
        self._links = links
        self._attachments = attachments
        self._publish, self._clock = publish, clock
        self._failures = 0
        self._again = Backoff(*_REFUSED_PAUSES)
        self._retry: asyncio.TimerHandle | None = None
        self._published = published or Published()
        self._nodes: tuple[NodeFacts, ...] | None = None
        self._tunnel: Tunnel | None = None
        self._believed: tuple[Network, ...] = ()  # podCIDRs of other nodes
        self._reported: tuple[str, ...] = ()
        self._adopted: set[str] = set()
        self._waiting = "the node's network has not been set up yet"
        self._synced_once = asyncio.Event()
        self._flows = udp_flows.follower(links.open_links, clock)
        self.firewall = Firewall(self._firewall_facts, apply_rules, self._ports_changed)
        self._runner = BoundedFrequencyRunner(
            "pod network",
            self.sync,
            min_interval=0.2,
            retry_interval=2,
            max_interval=_AUDIT_SECONDS,
            clock=clock,
            rest_factor=_REST,
            longest_rest=_LONGEST_REST,
        )

    def set_nodes(self, nodes: Iterable[NodeFacts]) -> None:
        """Take the Node objects as they are now, this node's among them. Cheap: the work is done in `run()`.

        The list must be complete: routes to nodes that are not in it are removed.
        """
        now = tuple(sorted(nodes, key=lambda item: item.name))
        if now != self._nodes:
            self._nodes = now
            self._runner.poke()

    def poke(self) -> None:
        """Ask for a sync soon."""
        self._runner.poke()

    def lost(self, loss: Loss | None) -> None:
        """Repair what somebody removed, if it was ours; None: nobody knows what."""
        if loss is None or loss.protocol == routes.PROTOCOL or loss.link in (self._settings.bridge, overlay.LINK):
            self._runner.poke()

    async def run(self) -> None:
        """Until cancelled."""
        self._runner.poke()
        await side_by_side(network=self._runner.run(), flows_of_host_ports=self._flows.run())

    @property
    def waiting(self) -> str:
        """Why ADD cannot be served yet, "" when it can."""
        return self._waiting

    async def status(self) -> str:
        """`waiting`, after the first sync has ended: a restart must not make a working node look broken.

        A network that the last run has published stands, however long the first look takes on a busy machine.
        """
        stands = bool(self._published.pod_cidrs)
        await at_most(self._clock, _TAKE_OVER_SECONDS if stands else _FIRST_SYNC_SECONDS, self._synced_once)
        return self._waiting

    @property
    def pod_cidrs(self) -> tuple[Network, ...]:
        """This node's ranges: from the settings, else its Node object, or the last run's until Nodes are known."""
        if self._settings.pod_cidrs or self._nodes is None:
            return self._settings.pod_cidrs or self._published.pod_cidrs
        own = self._own()
        return own.pod_cidrs if own else ()

    def adopt(self, conf: NetConf) -> NetConf:
        """A configuration from the runtime, with this node's ranges if it is of this network.

        The runtime may have a file from before a change of podCIDR, or another node's when two nodes share
        /etc/cni/net.d by mistake: its addresses would be unreachable or in use twice. A configuration without any
        range is left alone, and refused later.
        """
        if conf.name != self._settings.network:
            return conf
        conf = replace(conf, policy_socket=self._settings.policy_socket)
        if not self.pod_cidrs or not conf.ranges:
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
        if reason not in self._adopted:
            log.warning("%s", reason)
            self._adopted.add(reason)
        return replace(conf, ranges=ranges)

    async def sync(self) -> None:
        """Compare and repair once. Raises NodewrightError; `waiting` then has the same text."""
        try:
            await self._sync()
        finally:
            self._synced_once.set()

    async def _sync(self) -> None:
        cidrs = self.pod_cidrs
        if not cidrs:
            waiting = f"node {self._settings.node_name} has no podCIDR yet"
            if waiting != self._waiting:
                log.info("%s: pods cannot get an address before the controller-manager gives it one", waiting)
            self._waiting = waiting
            return
        try:
            synced = await asyncio.to_thread(self._links.sync, cidrs, self._nodes, self._attachments())
            self._believed = self._believed if synced.believed is None else synced.believed
            self._tunnel = await asyncio.to_thread(self._links.tunnel)
            await self.firewall.sync(audit=True)
            # After the rules: they guard the node's loopback against what this setting lets in.
            await asyncio.to_thread(ensure_route_localnet, self._settings.bridge, self._links.kernel)
            await self._publish(cidrs, self.non_masquerade)
        except NodewrightError as error:
            self._failures += 1
            # A single failed audit (a busy lock) must not take the node out of service: its pods are still served.
            if self._waiting or self._failures >= _FAILURES_TOLERATED:
                self._waiting = str(error)
            raise
        self._failures = 0
        self._published = Published(cidrs, self.non_masquerade)
        self._waiting = ""
        self._report(synced.problems)
        self._refused(synced.refused)

    @property
    def non_masquerade(self) -> tuple[Network, ...]:
        """Destinations that see pods' own addresses: the cluster's pods, its nodes, and what the settings add."""
        fixed = (*self._settings.cluster_cidrs, *self._settings.non_masquerade)
        if self._nodes is None:
            return tuple(dict.fromkeys((*fixed, *self._published.non_masquerade)))
        hosts = [ip_network(str(ip)) for item in self._nodes for ip in pod_cidrs.main_addresses(item)]
        return tuple(dict.fromkeys((*fixed, *hosts)))

    async def remove(self) -> None:
        """Remove routes, overlay and bridge. Running pods lose their network, so the caller asks first."""
        await asyncio.to_thread(self._links.remove)

    def _own(self) -> NodeFacts | None:
        return next((item for item in self._nodes or () if item.name == self._settings.node_name), None)

    def _firewall_facts(self) -> tuple[FirewallFacts, ...]:
        """Facts for each address family of pods, and always for IPv4: an earlier run's rules may have to be removed."""
        # A recreated Node has no podCIDR for a moment: running pods keep their rules meanwhile.
        cidrs = self.pod_cidrs or self._published.pod_cidrs
        attachments, tunnel = self._attachments(), self._tunnel
        # Not what any node claims: what counts as pods sends nothing through the overlay.
        pods = (*cidrs, *self._settings.cluster_cidrs, *self._believed)
        return tuple(
            FirewallFacts(
                version=version,
                network=self._settings.network,
                bridge=self._settings.bridge,
                pod_cidrs=tuple(cidr for cidr in cidrs if cidr.version == version),
                non_masquerade=tuple(item for item in self.non_masquerade if item.version == version),
                masquerade=self._settings.masquerade,
                host_ports=hostports.host_ports(attachments, version),
                bridge_filtered=bridge_filtered(version, self._links.kernel),
                guard=overlay.guard(tunnel, version, pods),
            )
            for version in sorted({4, *(cidr.version for cidr in cidrs), tunnel.local.version if tunnel else 4})
        )

    async def _ports_changed(self, old: tuple[HostPort, ...], new: tuple[HostPort, ...]) -> None:
        if old != new:
            self._flows.note(old, new)

    def _refused(self, refused: bool) -> None:
        """Try again later what the kernel refused, once: else each sync of a burst would lead to another, for ever."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if refused:
            self._retry = asyncio.get_running_loop().call_later(self._again.next(), self._runner.poke)
        else:
            self._again.reset()

    def _report(self, skipped: tuple[str, ...]) -> None:
        """Log each reason once, not every minute."""
        for reason in skipped:
            if reason not in self._reported:
                log.warning("%s", reason)
        self._reported = skipped
