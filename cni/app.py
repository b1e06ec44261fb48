"""One node's pod network, put together: the CNI server, the node's half, and the collection of orphaned addresses.

The caller passes values and callables only: nothing here knows the Kubernetes API or the container runtime.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_network

from cni import install
from cni.connection_guard import ConnectionBounds, ConnectionGuard, OnCrowding
from cni.daemon import NodeNetwork
from cni.edge import listeners, route_events
from cni.edge.connections import KernelConnections
from cni.edge.netlink import Netlink
from cni.edge.netns import check_namespace
from cni.edge.store import DiskStore
from cni.firewall import FORMS, Rules, remove_form, rules_for
from cni.model import Attachment, AttachmentKey, FirewallFacts, Network, NodeFacts, PodAddresses
from cni.node_links import NodeLinks
from cni.operations import Operations
from cni.plan import connection_rules, orphans
from cni.ports import Store
from cni.server import CniServer, OnCall, SpanOf
from cni.settings import CniSettings
from cni.spec.configuration import NetConf
from cni.spec.errors import CNIError
from cni.spec.versions import CURRENT
from nodelib.clock import Clock, SystemClock
from nodelib.nft.edge import NftError, NftTable
from nodelib.runner import BoundedFrequencyRunner
from nodelib.tasks import side_by_side

log = logging.getLogger(__name__)

LiveSandboxes = Callable[[], Awaitable[frozenset[str] | None]]

_COLLECT_SECONDS = 300.0


class CniNode:
    """The pod network of one node.

    live_sandboxes: IDs of every sandbox that the runtime knows, ready or not; None: it cannot be asked now.
    on_call: called after every CNI call for a pod; span_of: what such a call is part of (see cni.server).
    on_crowding: called with whose connections are bounded, whenever that changes.
    """

    def __init__(
        self,
        settings: CniSettings,
        *,
        live_sandboxes: LiveSandboxes,
        clock: Clock | None = None,
        on_call: OnCall | None = None,
        span_of: SpanOf = lambda uid: "",
        on_crowding: OnCrowding = lambda now: None,
    ) -> None:
        self._settings = settings
        self._live_sandboxes = live_sandboxes
        self._clock = clock or SystemClock()
        self._stores = Stores()
        self._rules: Rules | None = None
        self._unlisted: Mapping[AttachmentKey, float] | None = None
        self.network = NodeNetwork(
            settings,
            links=NodeLinks(settings, Netlink),
            attachments=lambda: self._store().attachments(),
            apply_rules=self._apply_rules,
            publish=self._publish,
            clock=self._clock,
            published=install.load_published(settings.data_dir, settings.network),
        )
        self.operations = Operations(Netlink, self._stores.of, check_namespace, self._clock.now, listeners)
        self.server = CniServer(
            settings.socket,
            self.operations,
            sync_ports=self.network.firewall.sync,
            waiting=self.network.status,
            adopt=self.network.adopt,
            on_call=on_call,
            span_of=span_of,
        )
        tables = [NftTable(family, connection_rules.TABLE) for family in connection_rules.VERSIONS]
        self._bounds = ConnectionBounds(tables, settings.bridge)
        self._guard = ConnectionGuard(
            KernelConnections(),
            self._bounds,
            self._clock,
            names=self._pods_by_address,
            pods=self._pod_addresses,
            limit=settings.connection_limit,
            report=on_crowding,
        )
        self._collector = BoundedFrequencyRunner(
            "collect addresses",
            self.collect,
            min_interval=10,
            retry_interval=60,
            max_interval=_COLLECT_SECONDS,
            clock=self._clock,
        )

    def set_nodes(self, nodes: Iterable[NodeFacts]) -> None:
        """Take all Node objects as they are now, this node's among them."""
        self.network.set_nodes(nodes)

    async def run(self) -> None:
        """Listen, then keep everything in order until cancelled. Raises Permanent when the socket cannot be opened."""
        self.server.listen()
        self._collector.poke()
        try:
            await side_by_side(
                cni_server=self.server.serve(),
                cni_network=self.network.run(),
                cni_collector=self._collector.run(),
                cni_losses=route_events.watch(self.network.lost),
                **({"cni_connections": self._guard.run()} if self._settings.share_connections else {}),
            )
        finally:
            await self.server.close()

    async def collect(self) -> None:
        """Release addresses of sandboxes that the runtime no longer knows, after a crash between its steps."""
        wall, monotonic = self._clock.now(), self._clock.monotonic()
        live = await self._live_sandboxes()
        if live is None:
            return
        attachments = await asyncio.to_thread(self._attachments)
        self._unlisted = orphans.unlisted_since(self._unlisted, attachments, live, wall, monotonic)
        orphaned = orphans.to_release(attachments, live, self._unlisted, monotonic)
        failures: list[CNIError] = []
        for attachment in orphaned:
            try:
                await asyncio.to_thread(self.operations.delete, self._conf(), attachment.key)
            except CNIError as error:  # the others are still released
                failures.append(error)
                continue
            log.warning("%s (%s) is unknown to the runtime: its address is free again", attachment.key, attachment.pod)
        if any(item.port_mappings for item in orphaned):
            await self.network.firewall.sync()
        if failures:
            raise failures[0]

    async def uninstall(self, *, remove_store: bool = False) -> None:
        """Remove all that this network made on the node, in either firewall form. Running pods lose their network."""
        install.withdraw(self._settings)
        await self.network.remove()
        with suppress(NftError):  # a kernel without nftables never had any
            await self._bounds.remove()
        for form in FORMS:
            await remove_form(form, self._settings.network, self._settings.bridge)
        if remove_store:
            for attachment in self._attachments():
                self._store().release(attachment.key)

    def _pods_by_address(self) -> dict[str, str]:
        return {str(address): one.pod for one in self._store().attachments() for address in one.addresses}

    def _pod_addresses(self) -> PodAddresses:
        names = self._pods_by_address()
        with Netlink() as links:
            own = frozenset(str(address.ip) for _, address in links.addresses())
        cidrs = self.network.pod_cidrs
        # Pods from before a change of the ranges.
        more = [one for one in map(ip_network, names) if not any(one.network_address in cidr for cidr in cidrs)]
        return PodAddresses((*cidrs, *more), names, own)

    def _attachments(self) -> list[Attachment]:
        store = self._store()
        store.refresh()
        return store.attachments()

    def _store(self) -> Store:
        return self._stores.of(self._conf())

    def _conf(self) -> NetConf:
        return NetConf(CURRENT, self._settings.network, self._settings.bridge, data_dir=self._settings.data_dir)

    async def _apply_rules(self, facts: tuple[FirewallFacts, ...], everything: bool) -> None:
        if self._rules is not None:
            await self._rules.apply(facts, everything)
            return
        rules = await rules_for(self._settings.firewall)
        await rules.apply(facts, everything)
        self._rules = rules
        # Only once our rules are in place. If the node used the other form before, packets would pass both.
        for form in FORMS:
            if form != self._settings.firewall:
                await remove_form(form, self._settings.network, self._settings.bridge)

    async def _publish(self, pod_cidrs: tuple[Network, ...], non_masquerade: tuple[Network, ...]) -> None:
        if not self.server.listening:
            return
        if await asyncio.to_thread(install.publish, self._settings, pod_cidrs, non_masquerade):
            shown = ", ".join(map(str, pod_cidrs))
            log.info("%s written: pods of network %s get %s", self._settings.conf_file, self._settings.network, shown)


class Stores:
    """The stores of this process: one for each network."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[str, str], DiskStore] = {}

    def of(self, conf: NetConf) -> Store:
        key = (conf.data_dir, conf.name)
        with self._lock:
            if key not in self._open:
                self._open[key] = DiskStore(*key)
            return self._open[key]
