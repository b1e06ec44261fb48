"""Every metric that a daemon shows is counted or set by its code: one that never moves misleads whoever watches it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.metrics import MetricWrapperBase

from loadbalancer.edge.metrics import Metrics as LoadBalancerMetrics
from policy.edge.metrics import Metrics as PolicyMetrics

_ROOT = Path(__file__).resolve().parents[2]
_METRICS = {"loadbalancer": LoadBalancerMetrics, "policy": PolicyMetrics}


@pytest.mark.parametrize("package", _METRICS)
def test_every_metric_is_counted(package: str) -> None:
    names = [name for name, one in vars(_METRICS[package]()).items() if isinstance(one, MetricWrapperBase)]
    text = "".join(path.read_text(encoding="utf-8") for path in (_ROOT / package).rglob("*.py"))
    assert names
    assert [name for name in names if not re.search(rf"\.{name}\.(labels|inc|set|observe)\b", text)] == []
