"""The order in which pods that are told of together are taken (HandlePodAdditions of pkg/kubelet/kubelet.go)."""

from __future__ import annotations

from collections.abc import Container, Iterable

from agent.common.model.pods import Pod
from nodelib.kube.times import parse_rfc3339


def in_order(pods: Iterable[Pod], known: Container[str]) -> list[Pod]:
    """Those that the runtime has already (`known`, UIDs), so that what is new gets only what they leave; of both the
    older ones first."""
    return sorted(pods, key=lambda pod: (pod.uid not in known, _created_at(pod)))


def _created_at(pod: Pod) -> float:
    text = pod.meta.get("creationTimestamp")
    return parse_rfc3339(text) if text else 0.0
