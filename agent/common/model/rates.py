"""How often the agent may ask others, as the configuration says it.

Nothing is limited unless a field says so: upstream's defaults (50 requests a second after 100 at once, 5 pulls after
10) would slow a burst of pods down, and the API server has its own fairness (docs/decisions.md, 0066).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """So many a second (more than 0), after `burst` at once."""

    qps: float
    burst: int


def request_rate(qps: int | None, burst: int | None) -> Rate | None:
    """kubeAPIQPS and kubeAPIBurst; None if neither is set.

    A half that is not set is upstream's default. client-go takes 0 a second for 5 (rest.DefaultQPS).
    """
    if qps is None and not burst:
        return None
    return Rate(50 if qps is None else qps or 5, burst or 100)


def pull_rate(qps: int | None, burst: int | None) -> Rate | None:
    """registryPullQPS and registryBurst, likewise, but 0 a second is no limit (pkg/kubelet/images/helpers.go)."""
    if qps == 0 or (qps is None and not burst):
        return None
    return Rate(qps or 5, burst or 10)
