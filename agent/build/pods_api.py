"""Joins the pods API with the registry of pods, if its gate is on."""

from __future__ import annotations

from agent.build.base import Base
from agent.pods_api.edge.metrics import PodsApiMetrics
from agent.pods_api.edge.server import PodsApiServer
from agent.pods_api.work.answers import PodAnswers
from agent.pods_api.work.feed import PodFeed
from nodelib.upstream.pod_encoding import pod_encoding


def build_pods_api(base: Base) -> PodsApiServer | None:
    """None: gate PodsAPI is off."""
    if not base.settings.server.pods_api:
        return None
    encode = pod_encoding().encode
    metrics = PodsApiMetrics(base.metrics.registry)
    answers = PodAnswers(base.pods, PodFeed(encode, metrics.dropped), encode)
    answers.follow()
    socket = f"{base.settings.paths.root_dir}/pods-api/pods-api.sock"
    return PodsApiServer(socket, answers, metrics, monotonic=base.clock.monotonic)
