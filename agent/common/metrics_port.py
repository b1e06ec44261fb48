"""What the parts of the agent measure, and a sink for those that nobody scrapes (build/metrics.py is the real one)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agent.common.model.pods import Kind


@dataclass(frozen=True, slots=True)
class ProbeLabels:
    """Which probe; `kind` as upstream writes it: Liveness, Readiness or Startup."""

    kind: str
    container: str
    pod: str
    namespace: str
    uid: str


class Figures(Protocol):
    """All times in seconds. No call blocks or raises."""

    def pod_running(self, seconds: float) -> None:
        """From the first sight of a pod to its phase Running."""
        ...

    def pod_started(self, total: float, sli: float | None) -> None:
        """From a pod's creation to the sight of all its containers started; `sli` None: a stateful pod."""
        ...

    def pod_synced(self, operation: str, seconds: float) -> None:
        """One plan of a pod and the steps in it; `operation`: create, sync or kill."""
        ...

    def status_sent(self, seconds: float) -> None:
        """From a status to the API that shows it."""
        ...

    def sandbox_begun(self) -> None: ...

    def container_begun(self, kind: Kind) -> None: ...

    def container_failed(self, kind: Kind, code: str) -> None:
        """`code`: the reason of the container's waiting state."""
        ...

    def image_pulled(self, seconds: float, size: int) -> None:
        """`size` in bytes, 0: not known. The time in the queue counts."""
        ...

    def relisted(self, seconds: float, now: float) -> None:
        """All pods were looked at, at `now` (wall)."""
        ...

    def pod_evicted(self, signal: str) -> None:
        """`signal`: the eviction signal, or the limit that the pod did not keep."""
        ...

    def images_collected(self, reason: str, count: int) -> None:
        """Images were removed; `reason`: age or space."""
        ...

    def shut_down(self, began: float, ended: float) -> None:
        """The last graceful shutdown of the machine (wall seconds); 0.0: none yet, or not over."""
        ...

    def probed(self, labels: ProbeLabels, result: str, seconds: float) -> None:
        """`result`: successful, failed or unknown."""
        ...

    def probe_gone(self, labels: ProbeLabels) -> None:
        """It will not run again: its series end."""
        ...


class Unmeasured:
    """Figures that go nowhere."""

    def pod_running(self, seconds: float) -> None:
        return

    def pod_started(self, total: float, sli: float | None) -> None:
        return

    def pod_synced(self, operation: str, seconds: float) -> None:
        return

    def status_sent(self, seconds: float) -> None:
        return

    def sandbox_begun(self) -> None:
        return

    def container_begun(self, kind: Kind) -> None:
        return

    def container_failed(self, kind: Kind, code: str) -> None:
        return

    def image_pulled(self, seconds: float, size: int) -> None:
        return

    def relisted(self, seconds: float, now: float) -> None:
        return

    def pod_evicted(self, signal: str) -> None:
        return

    def images_collected(self, reason: str, count: int) -> None:
        return

    def shut_down(self, began: float, ended: float) -> None:
        return

    def probed(self, labels: ProbeLabels, result: str, seconds: float) -> None:
        return

    def probe_gone(self, labels: ProbeLabels) -> None:
        return
