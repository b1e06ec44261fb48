"""Usage of the node, its pods and containers, for /stats/summary, /metrics/{resource,cadvisor} and eviction.

Upstream: pkg/kubelet/stats and cAdvisor. Open work.py first: StatsProvider collects one Snapshot (model.py) from edge/,
and plan/summary.py and plan/resource_metrics.py turn it into the answers.
"""
