"""agent.common.metrics_port.Figures that remembers all it is told, by method."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from agent.common.metrics_port import ProbeLabels
from agent.common.model.pods import Kind


class FakeFigures:
    def __init__(self) -> None:
        self.told: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)

    def pod_running(self, seconds: float) -> None:
        self.told["pod_running"].append((seconds,))

    def pod_started(self, total: float, sli: float | None) -> None:
        self.told["pod_started"].append((total, sli))

    def pod_synced(self, operation: str, seconds: float) -> None:
        self.told["pod_synced"].append((operation, seconds))

    def status_sent(self, seconds: float) -> None:
        self.told["status_sent"].append((seconds,))

    def sandbox_begun(self) -> None:
        self.told["sandbox_begun"].append(())

    def container_begun(self, kind: Kind) -> None:
        self.told["container_begun"].append((kind,))

    def container_failed(self, kind: Kind, code: str) -> None:
        self.told["container_failed"].append((kind, code))

    def image_pulled(self, seconds: float, size: int) -> None:
        self.told["image_pulled"].append((seconds, size))

    def relisted(self, seconds: float, now: float) -> None:
        self.told["relisted"].append((seconds, now))

    def pod_evicted(self, signal: str) -> None:
        self.told["pod_evicted"].append((signal,))

    def images_collected(self, reason: str, count: int) -> None:
        self.told["images_collected"].append((reason, count))

    def shut_down(self, began: float, ended: float) -> None:
        self.told["shut_down"].append((began, ended))

    def probed(self, labels: ProbeLabels, result: str, seconds: float) -> None:
        self.told["probed"].append((labels, result, seconds))

    def probe_gone(self, labels: ProbeLabels) -> None:
        self.told["probe_gone"].append((labels,))
