"""How long pods take to start, observed once for each when the API shows it running."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.common.metrics import Metrics
from agent.common.model.pods import Pod
from agent.pods.plan.startup_latency import has_started, start_times
from nodelib.clock import Clock


@dataclass(slots=True)
class _Start:
    """`pulls`: (began, ended) in wall seconds."""

    pulls: list[tuple[float, float]] = field(default_factory=list)


class StartupLatencyTracker:
    """Measures only pods that are new to the node, so that a restarted agent measures none twice."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics, self._clock = metrics, clock
        self._starting: dict[str, _Start] = {}

    def appeared(self, pod: Pod) -> None:
        """The agent has admitted this pod."""
        if not pod.status.get("startTime") and not pod.is_deleted:
            self._starting[pod.uid] = _Start()

    def shown(self, pod: Pod) -> None:
        """The pod as the API shows it now."""
        start = self._starting.get(pod.uid)
        if start is None:
            return
        if pod.status.get("phase") in ("Succeeded", "Failed"):
            self.remove(pod.uid)
        elif has_started(pod):
            self.remove(pod.uid)
            total, sli = start_times(pod, self._clock.now(), start.pulls)
            self._metrics.pod_start_total_duration.observe(total)
            if sli is not None:
                self._metrics.pod_start_sli_duration.observe(sli)

    def pulled(self, uid: str, began: float, ended: float) -> None:
        """The pull of an image for the pod has succeeded or failed (wall seconds)."""
        start = self._starting.get(uid)
        if start is not None:
            start.pulls.append((began, ended))

    def remove(self, uid: str) -> None:
        self._starting.pop(uid, None)
