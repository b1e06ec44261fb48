"""A node daemon's Events in the API (events.k8s.io/v1), so that `kubectl describe` shows what went wrong."""

from __future__ import annotations

import logging

from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from nodelib.kube.times import format_micro

log = logging.getLogger(__name__)


class Events:
    """Best effort: an event that cannot be written is logged and dropped."""

    def __init__(self, client: KubeClient, node: str, clock: Clock, controller: str) -> None:
        self._client = client
        self._node = node
        self._clock = clock
        self._controller = controller

    async def record(
        self, kind: str, namespace: str, name: str, *, reason: str, action: str, note: str, warning: bool, uid: str = ""
    ) -> None:
        """`uid`: of the object; kubectl describe shows only events that have it."""
        now = self._clock.now()
        where = namespace or "default"
        body: Json = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{int(now * 1e9):x}", "namespace": where},
            "eventTime": format_micro(now),
            "reportingController": self._controller,
            "reportingInstance": f"{self._controller}-{self._node}"[:128],
            "action": action,
            "reason": reason,
            "regarding": {"apiVersion": "v1", "kind": kind, "namespace": namespace, "name": name, "uid": uid},
            "note": note[:1024],
            "type": "Warning" if warning else "Normal",
        }
        try:
            await self._client.post(f"/apis/events.k8s.io/v1/namespaces/{where}/events", body)
        except NodewrightError as error:
            log.warning("event %s of %s %s/%s was not written: %s", reason, kind, namespace, name, error)
