"""A CNI call without a server, in one process: makes the node's half too, as far as it is missing."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from functools import cached_property

from cni import dispatch, udp_flows
from cni.dispatch import Answer, Call
from cni.edge import listeners
from cni.edge.netlink import Netlink
from cni.edge.netns import check_namespace, open_namespace
from cni.edge.policy import protect
from cni.edge.store import DiskStore
from cni.firewall import rules_for
from cni.install import load_published
from cni.model import Attachment, FirewallFacts, HostPort
from cni.node_links import ensure_bridge
from cni.operations import Operations
from cni.plan import hostports, node, overlay
from cni.spec.configuration import NetConf
from cni.spec.errors import KERNEL_REFUSED, TRY_AGAIN_LATER, CNIError
from cni.sysctls import bridge_filtered, ensure_forwarding, ensure_guarded, ensure_route_localnet
from nodelib.errors import NodewrightError

log = logging.getLogger(__name__)


def perform(call: Call, conf: NetConf) -> Answer:
    """Carry out ADD, DEL, CHECK or GC. Raises CNIError."""
    here = _Node(conf)
    operations = Operations(Netlink, lambda _: here.store, check_namespace, time.time, listeners)
    netns = open_namespace(call.args.netns) if call.args.command in ("ADD", "CHECK") else None
    try:
        if call.args.command == "ADD" and netns is not None:
            check_namespace(netns, call.args.netns)
            here.prepare()
        before = here.host_ports()
        done = dispatch.perform(call, operations, netns)
        if done.added is not None:
            _protect(done.added, operations, call, conf)
        if done.ports_changed:
            _follow_ports(here, operations, call)
            udp_flows.follow(Netlink, before, here.host_ports())
        return done.answer
    finally:
        if netns is not None:
            os.close(netns)


def _protect(added: Attachment, operations: Operations, call: Call, conf: NetConf) -> None:
    """A pod whose network policies are not in force must not run."""
    try:
        asyncio.run(protect(conf.policy_socket, call.args, added))
    except NodewrightError as error:
        operations.delete(conf, call.args.key)
        raise CNIError(
            TRY_AGAIN_LATER, error.message, obj=str(call.args.key), step="network policies", details=error.action
        ) from error


def _follow_ports(here: _Node, operations: Operations, call: Call) -> None:
    try:
        here.write_rules()
    except CNIError:
        if call.args.command == "ADD":
            operations.delete(here.conf, call.args.key)
        raise


class _Node:
    def __init__(self, conf: NetConf) -> None:
        self.conf = conf

    @cached_property
    def store(self) -> DiskStore:
        return DiskStore(self.conf.data_dir, self.conf.name)

    def host_ports(self) -> tuple[HostPort, ...]:
        attachments = self.store.attachments()
        return (*hostports.host_ports(attachments, 4), *hostports.host_ports(attachments, 6))

    def prepare(self) -> None:
        """Create bridge and forwarding. A new bridge also gets its rules; afterwards the node's daemon keeps them."""
        if not self.conf.ranges:
            return  # ADD refuses it with a better message
        ranges = [chosen[0] for chosen in self.conf.ranges]
        used = self.store.taken()
        try:
            with Netlink() as links:
                for version in {item.subnet.version for item in ranges}:
                    ensure_forwarding(version, links.links())
                mtu = self.conf.mtu or node.uplink_mtu(links.links(), links.addresses(), links.routes(), ())
                created = links.link(self.conf.bridge) is None
                ensure_bridge(links, node.bridge(self.conf.bridge, ranges, mtu), used)
        except NodewrightError as error:
            raise CNIError(
                KERNEL_REFUSED, error.message, obj=error.obj, step=error.step, details=error.action
            ) from error
        if created:
            if problem := ensure_guarded(self.conf.bridge):
                log.warning("%s", problem)
            self.write_rules()
            ensure_route_localnet(self.conf.bridge)

    def write_rules(self) -> None:
        try:
            asyncio.run(self._write_rules())
        except NodewrightError as error:
            raise CNIError(
                KERNEL_REFUSED, error.message, obj=error.obj, step=error.step, details=error.action
            ) from error

    async def _write_rules(self) -> None:
        self.store.refresh()
        rules = await rules_for(self.conf.firewall)
        await rules.apply(self._facts(), True)

    def _facts(self) -> tuple[FirewallFacts, ...]:
        conf = self.conf
        subnets = [item.subnet for chosen in conf.ranges for item in chosen]
        outside = (*conf.non_masquerade, *load_published(conf.data_dir, conf.name).non_masquerade)
        attachments = self.store.attachments()
        with Netlink() as links:
            link = links.link(overlay.LINK)
        tunnel = link.tunnel if link is not None else None
        return tuple(
            FirewallFacts(
                version=version,
                network=conf.name,
                bridge=conf.bridge,
                pod_cidrs=tuple(cidr for cidr in subnets if cidr.version == version),
                non_masquerade=tuple(cidr for cidr in outside if cidr.version == version),
                masquerade=conf.masquerade,
                host_ports=hostports.host_ports(attachments, version),
                bridge_filtered=bridge_filtered(version),
                guard=overlay.guard(tunnel, version, subnets),
            )
            for version in sorted({4, *(cidr.version for cidr in subnets), tunnel.local.version if tunnel else 4})
        )
