"""The Leases by which the daemons of the nodes know of each other: one of each node, and one of the leader.

Upstream's counterparts are component-helpers' Lease controller and client-go's leader election. While no Service needs
an address they are renewed seldom.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from loadbalancer.plan.liveness import Liveness
from nodelib.clock import Clock, at_most
from nodelib.errors import NodewrightError
from nodelib.json_values import Json, object_or_empty
from nodelib.kube.errors import ApiError, ApiUnreachable
from nodelib.kube.times import format_micro

log = logging.getLogger(__name__)

DURATION = 2.0  # seconds without a renewal after which a node or a leader is dead
RENEW = 0.5
IDLE = 10.0  # seconds between two renewals while no Service needs an address
IDLE_DURATION = 30.0
LEADER = "leader"
_MARGIN = 0.5  # a leader stops to be one so long before others may begin
_EARLY = 0.05  # seconds; whoever asks comes in steps of about that
_SECONDS = 2  # leaseDurationSeconds, which takes whole ones


def member(node: str) -> str:
    """The name of a node's Lease."""
    return f"node-{node}"


def holder(lease: Json) -> str:
    return str(object_or_empty(lease.get("spec")).get("holderIdentity") or "")


def version(obj: Json) -> int:
    """An order of the versions of one object, as the API server gives them out."""
    text = str(object_or_empty(obj.get("metadata")).get("resourceVersion") or "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0


class LeaseApi(Protocol):
    """nodelib/kube/client.py KubeClient. All raise ApiError or ApiUnreachable."""

    async def get(self, path: str) -> Json: ...

    async def post(self, path: str, body: Json) -> Json: ...

    async def put(self, path: str, body: Json) -> Json: ...

    async def patch(self, path: str, body: Json) -> Json: ...

    async def reconnect(self) -> None: ...


class Membership:
    """Renews the Lease of this node. `folder`: the path of the Leases."""

    def __init__(self, client: LeaseApi, folder: str, node: str, clock: Clock) -> None:
        self.last_error = ""
        self._client, self._folder, self._node, self._clock = client, folder, node, clock
        self._busy = self._able = False
        self._node_uid = ""
        self._woken = asyncio.Event()

    def of_node(self, uid: str) -> None:
        """The Lease belongs to this Node, and goes with it."""
        self._node_uid = uid

    def set(self, *, busy: bool, able: bool) -> None:
        """`busy`: Services need addresses; `able`: this node may announce them."""
        if (busy, able) != (self._busy, self._able):
            self._busy, self._able = busy, able
            self._woken.set()

    async def run(self) -> None:
        """Until cancelled. A failure is logged once per cause."""
        while True:
            try:
                await self.renew()
                self.last_error = ""
            except NodewrightError as error:
                if str(error) != self.last_error:
                    log.warning("Lease %s is not renewed: %s", member(self._node), error)
                self.last_error = str(error)
                if isinstance(error, ApiUnreachable):
                    await self._client.reconnect()
                await self._clock.sleep(RENEW)
                continue
            await at_most(self._clock, RENEW if self._busy else IDLE, self._woken)
            self._woken.clear()

    async def renew(self) -> None:
        """Once. Raises ApiError, ApiUnreachable."""
        name = member(self._node)
        body = _lease(name, self._node if self._able else "", self._clock.now())
        if self._node_uid:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._node_uid}
            body["metadata"]["ownerReferences"] = [owner]
        try:
            await self._client.patch(f"{self._folder}/{name}", {"metadata": body["metadata"], "spec": body["spec"]})
        except ApiError as error:
            if not error.is_not_found:
                raise
            await self._client.post(self._folder, body)


class Election:
    """Which of the daemons is the leader. `identity` is of this process, and no other ever has it."""

    def __init__(self, client: LeaseApi, folder: str, identity: str, liveness: Liveness, clock: Clock) -> None:
        self._client, self._folder, self._identity = client, folder, identity
        self._liveness, self._clock = liveness, clock
        self._lease: Json = {}
        self._until = self._tried = float("-inf")
        self.term = 0  # counts how often this process became the leader

    @property
    def leads(self) -> bool:
        return self._clock.monotonic() < self._until

    def observe(self, lease: Json) -> None:
        """The leader's Lease as the watch brought it, {} when it was deleted."""
        if not lease or version(lease) >= version(self._lease):
            self._lease = lease
        if holder(self._lease) != self._identity:
            self._until = float("-inf")

    async def step(self, *, busy: bool) -> None:
        """Renew, or become the leader if there is none. Raises ApiError, ApiUnreachable."""
        now = self._clock.monotonic()
        duration = DURATION if busy else IDLE_DURATION
        self._until = min(self._until, self._tried + duration - _MARGIN)
        own = holder(self._lease) == self._identity
        if now - self._tried < (IDLE if own and self.leads and not busy else RENEW) - _EARLY:
            return
        if not own and holder(self._lease) and not self._liveness.expired(LEADER, now):
            return
        if not self._liveness.fresh(now):
            return
        self._tried = now
        self._lease = await self._take()
        self._until = now + duration - _MARGIN
        if not own:  # nobody else led meanwhile, however late this renewal was
            self.term += 1
            log.info("this daemon leads: it gives addresses to Services")

    async def _take(self) -> Json:
        wanted = _lease(LEADER, self._identity, self._clock.now())
        if not self._lease:
            return await self._client.post(self._folder, wanted)
        wanted["metadata"]["resourceVersion"] = str(version(self._lease))
        try:
            return await self._client.put(f"{self._folder}/{LEADER}", wanted)
        except ApiError as error:
            if error.is_not_found:
                self._lease = {}
            elif error.is_conflict:
                self._lease = await self._client.get(f"{self._folder}/{LEADER}")
            raise


def _lease(name: str, identity: str, now: float) -> Json:
    spec = {"holderIdentity": identity, "leaseDurationSeconds": _SECONDS, "renewTime": format_micro(now)}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": spec,
    }
