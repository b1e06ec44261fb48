"""Pods that are starting: what the start cost, told once each when the API shows it done."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.common.metrics import Metrics
from agent.common.model.pods import Pod
from agent.pods.plan.startup import has_started, start_times
from nodelib.clock import Clock


@dataclass(slots=True)
class _Start:
    """`pulls`: (began, ended) on the wall clock."""

    pulls: list[tuple[float, float]] = field(default_factory=list)


class StartupLatencyTracker:
    """Only pods that were seen before anything of them ran: a restarted agent measures nothing twice."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics, self._clock = metrics, clock
        self._starting: dict[str, _Start] = {}

    def appeared(self, pod: Pod) -> None:
        """A pod that is new to the agent."""
        if not pod.status.get("startTime") and not pod.is_deleted:
            self._starting[pod.uid] = _Start()

    def shown(self, pod: Pod) -> None:
        """The API shows it so."""
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
        """An image was pulled for it, or could not be (wall seconds)."""
        start = self._starting.get(uid)
        if start is not None:
            start.pulls.append((began, ended))

    def remove(self, uid: str) -> None:
        self._starting.pop(uid, None)
