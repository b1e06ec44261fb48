"""Joins the pods' timelines with the exporter of spans."""

from __future__ import annotations

from agent.build.base import Base
from agent.pods.work.tracing import PodTracing


def pod_tracing(base: Base) -> PodTracing | None:
    """None: no spans are exported."""
    if base.traces is None:
        return None
    settings = base.settings
    return PodTracing(base.traces.add_later, settings.tracing.per_million, base.clock, has_api=not settings.standalone)
