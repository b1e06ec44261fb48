"""Deletes conntrack entries after a change of host ports, so that UDP clients reach the right pod at once."""

from __future__ import annotations

import logging
from collections.abc import Collection

from cni.model import HostPort
from cni.plan import hostports
from cni.ports import OpenLinks
from nodelib.firewall.objects import Family
from nodelib.netlink.conntrack import Conntrack

log = logging.getLogger(__name__)


def follow(open_links: OpenLinks, old: Collection[HostPort], new: Collection[HostPort]) -> None:
    """Delete the conntrack entries that a change from `old` to `new` made wrong. Blocking. Raises Permanent."""
    added, removed = hostports.udp_changes(old, new)
    if not added and not removed:
        return
    with open_links(None) as links:
        local = {address.ip for _, address in links.addresses()}
    for version in sorted({item.address.version for item in (*added, *removed)}):
        conntrack = Conntrack(Family.IPV4 if version == 4 else Family.IPV6)
        stale = hostports.stale_flows(conntrack.list_udp(), local, added, removed)
        if stale:
            log.info("host ports changed: %d IPv%d UDP flows deleted", conntrack.delete(stale), version)
