"""The node's Lease: the heartbeat that the node lifecycle controller watches.

It is renewed every quarter of its duration over a connection of its own, so that no slow list or large upload delays
it. A dead connection is dropped and dialled again within seconds
(k8s.io/component-helpers/apimachinery/lease/controller.go).
"""

from __future__ import annotations

import logging
from typing import Protocol

from agent.common.work.observable import Observable, until
from agent.node.plan.registration import lease_object
from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.kube.client import ApiError, ApiUnreachable
from nodelib.kube.times import format_micro

log = logging.getLogger(__name__)

_FOLDER = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0


class LeaseApi(Protocol):
    """nodelib/kube/client.py KubeClient. get, post and put raise ApiError or ApiUnreachable."""

    async def get(self, path: str) -> Json: ...

    async def post(self, path: str, body: Json) -> Json: ...

    async def put(self, path: str, body: Json) -> Json: ...

    async def reconnect(self) -> None: ...


class LeaseController:
    """`own_node` is this Node, None before it is registered and after it was deleted. `duration` in seconds."""

    def __init__(
        self, client: LeaseApi, node_name: str, own_node: Observable[Json | None], *, duration: int, clock: Clock
    ) -> None:
        self.last_renewed: float | None = None
        self.last_error = ""
        self._tried = 0.0
        self._unreachable = False
        self._client = client
        self._name = node_name
        self._own_node = own_node
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
        """What /healthz says: why the heartbeat fails although a restart might help; "" when there is no such reason.

        An API server that cannot be reached is not a problem of ours: it is tried again in seconds. A heartbeat that
        has not even been tried, or that the API server refuses, is.
        """
        now = self._clock.monotonic()
        if self.last_renewed is None or self.healthy():
            return ""
        if self._unreachable and now - self._tried < self._duration:
            return ""
        return f"no heartbeat was taken for {now - self.last_renewed:.0f} s: {self.last_error or 'no try has ended'}"

    async def run(self) -> None:
        """Until cancelled. After a failure it tries again soon, over a new connection if there was no answer."""
        pause = Backoff(_FIRST_PAUSE, min(_LONGEST_PAUSE, self.interval))
        while True:
            await until(self._own_node, lambda node: node is not None)
            self._tried = self._clock.monotonic()
            try:
                await self.renew()
            except ApiError as error:
                self._failed(error)
                self._lease = None
                await self._clock.sleep(pause.next(min(error.retry_after or 0.0, self.interval)))
            except ApiUnreachable as error:
                self._failed(error)
                await self._client.reconnect()
                await self._clock.sleep(pause.next())
            else:
                self._succeeded()
                pause.reset()
                await self._clock.sleep(self.interval)

    async def renew(self) -> None:
        """One heartbeat. Raises ApiError, ApiUnreachable."""
        lease = self._lease or await self._find()
        wanted = lease_object(self._name, self._node_uid, self._duration)
        wanted["spec"]["renewTime"] = format_micro(self._clock.now())
        if lease is None:
            self._lease = await self._client.post(_FOLDER, wanted)
        else:
            wanted["metadata"] = {**lease["metadata"], "ownerReferences": wanted["metadata"]["ownerReferences"]}
            wanted["spec"] = {**(lease.get("spec") or {}), **wanted["spec"]}
            self._lease = await self._client.put(f"{_FOLDER}/{self._name}", wanted)
        self.last_renewed = self._clock.monotonic()

    @property
    def _node_uid(self) -> str:
        node = self._own_node.now
        return str(node["metadata"]["uid"]) if node is not None else ""

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

    def _succeeded(self) -> None:
        if self.last_error:
            log.info("Lease kube-node-lease/%s renewed again", self._name)
        self.last_error = ""
