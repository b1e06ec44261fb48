"""Warning events about pods, each emitted once while the pod is on this node."""

from __future__ import annotations

from collections.abc import Callable

from agent.common.model.pods import Pod

Warn = Callable[[Pod, str, str], None]
"""warn(pod, reason, message) emits a Warning event."""


class PodWarnings:
    """Suppresses repetitions: pods are retried often, and each attempt finds the same problem again."""

    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self._sent: dict[str, set[tuple[str, str]]] = {}

    def warn_once(self, pod: Pod, reason: str, message: str) -> None:
        """Emit the event unless this pod has had the same one before."""
        sent = self._sent.setdefault(pod.uid, set())
        if (reason, message) not in sent:
            sent.add((reason, message))
            self._warn(pod, reason, message)

    def drop_pod(self, uid: str) -> None:
        """The pod is gone: a later pod of the same UID gets its warnings afresh."""
        self._sent.pop(uid, None)
