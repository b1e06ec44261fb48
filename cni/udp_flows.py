"""Deletes conntrack entries after a change of host ports, so that UDP clients reach the right pod soon.

They are found by reading a table that everybody's pods fill: a quarter of a million entries take seconds. So it is read
beside the writes of rules, for which pods that start wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial

from cni.model import HostPort
from cni.plan import hostports
from cni.ports import OpenLinks
from nodelib.clock import Clock
from nodelib.firewall.objects import Family
from nodelib.netlink.conntrack import Conntrack
from nodelib.runner import BoundedFrequencyRunner

log = logging.getLogger(__name__)

_RETRY, _NEVER = 2.0, 3600.0  # seconds
_REST, _LONGEST_REST = 1.0, 10.0  # half of the time at most, but not for long

Forget = Callable[[frozenset[HostPort], frozenset[HostPort]], None]  # added, removed


class FlowFollower:
    """`forget(added, removed)` is called in a thread for UDP host ports that have come and gone."""

    def __init__(self, forget: Forget, clock: Clock) -> None:
        self._forget = forget
        self._now: frozenset[HostPort] = frozenset()
        # Since the flows were right: which ones there have been at any time, and which ones came or went.
        self._seen: set[HostPort] = set()
        self._changed: set[HostPort] = set()
        self._runner = BoundedFrequencyRunner(
            "delete stale UDP flows of host ports",
            self._follow,
            min_interval=0.0,
            retry_interval=_RETRY,
            max_interval=_NEVER,
            clock=clock,
            rest_factor=_REST,
            longest_rest=_LONGEST_REST,
        )

    def note(self, old: Collection[HostPort], new: Collection[HostPort]) -> None:
        """The rules lead to `new` now, and led to `old`."""
        added, removed = hostports.udp_changes(old, new)
        self._now = frozenset(new)
        if added or removed:
            self._seen.update(added, removed)
            self._changed.update(added, removed)
            self._runner.poke()

    async def run(self) -> None:
        """Until cancelled."""
        await self._runner.run()

    async def _follow(self) -> None:
        if not self._changed:
            return
        seen, changed, now = self._seen, self._changed, self._now
        self._seen, self._changed = set(), set()
        try:
            await asyncio.to_thread(self._forget, frozenset(changed & now), frozenset(seen - now))
        except BaseException:
            self._seen |= seen
            self._changed |= changed
            raise


def follower(open_links: OpenLinks, clock: Clock) -> FlowFollower:
    return FlowFollower(partial(forget, open_links), clock)


def follow(open_links: OpenLinks, old: Collection[HostPort], new: Collection[HostPort]) -> None:
    """Delete the conntrack entries that a change from `old` to `new` made wrong. Blocking. Raises Permanent."""
    added, removed = hostports.udp_changes(old, new)
    if added or removed:
        forget(open_links, added, removed)


def forget(open_links: OpenLinks, added: Collection[HostPort], removed: Collection[HostPort]) -> None:
    """The same, of UDP host ports that have come and gone."""
    with open_links(None) as links:
        local = {address.ip for _, address in links.addresses()}
    for version in sorted({item.address.version for item in (*added, *removed)}):
        conntrack = Conntrack(Family.IPV4 if version == 4 else Family.IPV6)
        stale = hostports.stale_flows(conntrack.list_udp(), local, added, removed)
        if stale:
            log.info("host ports changed: %d IPv%d UDP flows deleted", conntrack.delete(stale), version)
