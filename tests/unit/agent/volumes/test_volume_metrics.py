"""kubelet_volume_stats_* as a scrape shows them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from agent.stats.model import FsUsage
from agent.volumes.edge.volume_metrics import VolumeStatsCollector


def test_each_claim_once() -> None:
    usage = FsUsage(at=1, capacity=9, available=5, used=4, inodes=3, inodes_free=1, inodes_used=2)
    registry = CollectorRegistry()
    registry.register(VolumeStatsCollector(lambda: [(("shop", "data"), usage), (("shop", "data"), usage)]))
    text = generate_latest(registry).decode()
    labels = '{namespace="shop",persistentvolumeclaim="data"}'
    assert text.count(f"kubelet_volume_stats_used_bytes{labels} 4.0") == 1
    assert f"kubelet_volume_stats_inodes_free{labels} 1.0" in text
