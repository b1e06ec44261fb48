"""An agent's metrics for tests, and what was measured so far."""

from __future__ import annotations

from agent.common.metrics import Metrics


def metrics() -> Metrics:
    return Metrics("node-1", "v1.37.1")


def series(of: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Every series of a metric as /metrics or /metrics/probes names it: label values in their order -> value."""
    registry = of.probe_registry if name.startswith("prober_") else of.registry
    families = registry.restricted_registry([name]).collect()
    return {tuple(one.labels.values()): one.value for family in families for one in family.samples}
