"""A node daemon's Events in the API (events.k8s.io/v1), so that `kubectl describe` shows what went wrong."""

from __future__ import annotations

import hashlib
import logging

from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from nodelib.kube.errors import ApiError
from nodelib.kube.times import format_micro

log = logging.getLogger(__name__)

_LONGEST_NAME = 230  # of an object in an event's own name, which has 253 characters at most


class Events:
    """Best effort: an event that cannot be written is logged and dropped."""

    def __init__(self, client: KubeClient, node: str, clock: Clock, controller: str) -> None:
        self._client = client
        self._node = node
        self._clock = clock
        self._controller = controller

    async def record(
        self,
        kind: str,
        namespace: str,
        name: str,
        *,
        reason: str,
        action: str,
        note: str,
        warning: bool,
        api_version: str = "v1",
        uid: str = "",
        once: str = "",
    ) -> None:
        """`uid`: without it `kubectl describe` shows the event of no object but a Node.

        `once`: an event that another process or node has already written for this key is not written again.
        """
        now = self._clock.now()
        where = namespace or "default"
        suffix = hashlib.sha256(f"{uid} {reason} {once}".encode()).hexdigest()[:16] if once else f"{int(now * 1e9):x}"
        about = {"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name}
        body: Json = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{name[:_LONGEST_NAME].rstrip('-.')}.{suffix}", "namespace": where},
            "eventTime": format_micro(now),
            "reportingController": self._controller,
            "reportingInstance": f"{self._controller}-{self._node}"[:128],
            "action": action,
            "reason": reason,
            "regarding": about | ({"uid": uid} if uid else {}),
            "note": note[:1024],
            "type": "Warning" if warning else "Normal",
        }
        try:
            await self._client.post(f"/apis/events.k8s.io/v1/namespaces/{where}/events", body)
        except NodewrightError as error:
            if once and isinstance(error, ApiError) and error.is_already_exists:
                return
            log.warning("event %s of %s %s/%s was not written: %s", reason, kind, namespace, name, error)
