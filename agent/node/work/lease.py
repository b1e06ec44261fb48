"""The node's Lease: the heartbeat that the node lifecycle controller listens to.

Renewed every quarter of its duration on a connection of its own, so that no slow list or large
upload delays it; a dead connection is dropped and dialled again within seconds
(k8s.io/component-helpers/apimachinery/lease/controller.go).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from agent.node.plan.node import lease_object
from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.kube.client import ApiError, ApiUnreachable, KubeClient
from nodelib.kube.times import format_micro

log = logging.getLogger(__name__)

_FOLDER = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0


class LeaseKeeper:
    """`node_uid()` gives the Node's UID, "" before it is registered. `duration` in seconds."""

    def __init__(
        self, client: KubeClient, node_name: str, node_uid: Callable[[], str], *, duration: int, clock: Clock
    ) -> None:
        self.last_renewed: float | None = None
        self.last_error = ""
        self._tried = 0.0
        self._unreachable = False
        self._client = client
        self._name = node_name
        self._node_uid = node_uid
        self._duration = duration
        self._clock = clock
        self._lease: Json | None = None

    @property
    def interval(self) -> float:
        return self._duration * 0.25

    def healthy(self) -> bool:
        """Whether the API server has taken a heartbeat within the Lease's duration."""
        return self.last_renewed is not None and self._clock.monotonic() - self.last_renewed < self._duration

    def problem(self) -> str:
        """What /healthz says: "" or why the heartbeat is not well, so that a restart may help.

        An API server that cannot be reached is no fault of ours: it is tried again in seconds. A heartbeat that has
        not even been tried, or that the API server refuses, is.
        """
        now = self._clock.monotonic()
        if self.last_renewed is None or self.healthy():
            return ""
        if self._unreachable and now - self._tried < self._duration:
            return ""
        return f"no heartbeat was taken for {now - self.last_renewed:.0f} s: {self.last_error or 'no try has ended'}"

    async def run(self) -> None:
        """Until cancelled. A failure is tried again soon, the connection made anew."""
        pause = Backoff(_FIRST_PAUSE, min(_LONGEST_PAUSE, self.interval))
        while True:
            if not self._node_uid():
                await self._clock.sleep(_FIRST_PAUSE)
                continue
            self._tried = self._clock.monotonic()
            try:
                await self.renew()
            except ApiError as error:
                self._failed(error)
                self._lease = None
                await self._clock.sleep(pause.next())
            except ApiUnreachable as error:
                self._failed(error)
                await self._client.reconnect()
                await self._clock.sleep(pause.next())
            else:
                self._well()
                pause.reset()
                await self._clock.sleep(self.interval)

    async def renew(self) -> None:
        """One heartbeat. Raises ApiError, ApiUnreachable."""
        lease = self._lease or await self._find()
        wanted = lease_object(self._name, self._node_uid(), self._duration)
        wanted["spec"]["renewTime"] = format_micro(self._clock.now())
        if lease is None:
            self._lease = await self._client.post(_FOLDER, wanted)
        else:
            wanted["metadata"] = {**lease["metadata"], "ownerReferences": wanted["metadata"]["ownerReferences"]}
            wanted["spec"] = {**(lease.get("spec") or {}), **wanted["spec"]}
            self._lease = await self._client.put(f"{_FOLDER}/{self._name}", wanted)
        self.last_renewed = self._clock.monotonic()

    async def _find(self) -> Json | None:
        try:
            return await self._client.get(f"{_FOLDER}/{self._name}")
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    def _failed(self, error: NodewrightError) -> None:
        self._unreachable = isinstance(error, ApiUnreachable)
        if str(error) != self.last_error:
            log.warning("Lease kube-node-lease/%s not renewed: %s", self._name, error)
        self.last_error = str(error)

    def _well(self) -> None:
        if self.last_error:
            log.info("Lease kube-node-lease/%s renewed again", self._name)
        self.last_error = ""
