"""Usage of the node, its pods and containers, for /stats/summary, /metrics/{resource,cadvisor} and eviction.

Upstream: pkg/kubelet/stats and cAdvisor. Open work/provider.py first: StatsProvider shares one Snapshot (model.py),
which work/collector.py reads through edge/; plan/summary.py and plan/resource_metrics.py turn it into the answers.
"""
