"""Pods that may begin few connections only, because the node's table of connections is nearly full.

The pod network decides that (another program's part, see agent/app.py); here it is told: to the pod by an event, to
`why`, and to who scrapes.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.common.metrics import Metrics
from agent.common.model.pods import Pod
from agent.common.ports import Events
from agent.pods.work.registry import PodRegistry

REASON = "ConnectionsLimited"


class LimitedConnections:
    """What the pod network has said last."""

    def __init__(self, pods: PodRegistry, events: Events, metrics: Metrics) -> None:
        self._pods, self._events, self._metrics = pods, events, metrics
        self._limited: Mapping[str, str] = {}
        self._deleted = self._refused = 0

    def update(self, limited: Mapping[str, str], deleted: int, refused: int) -> None:
        """`limited`: what is said of each such pod, by namespace/name; connections deleted, packets refused so far."""
        for name, text in limited.items():
            pod = self._pods.pod(*_parts(name)) if name not in self._limited else None
            if pod is not None:
                self._events.emit(pod.raw, "Warning", REASON, text)
        self._metrics.limited_pods.set(len(limited))
        self._metrics.deleted_connections.inc(deleted - self._deleted)
        self._metrics.refused_connections.inc(refused - self._refused)
        self._limited, self._deleted, self._refused = dict(limited), deleted, refused

    def of(self, pod: Pod) -> str:
        """Why the pod may begin few connections; "" when it may begin any."""
        return self._limited.get(f"{pod.namespace}/{pod.name}", "")


def _parts(name: str) -> tuple[str, str]:
    namespace, _, pod = name.partition("/")
    return namespace, pod
