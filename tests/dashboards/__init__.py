"""The figures that people have dashboards for, asked of a real Prometheus that scrapes a node.

The dashboards are those of kubernetes-mixin (https://github.com/kubernetes-monitoring/kubernetes-mixin) for kubelet,
pods, proxy and nodes: `queries.py` has a query of ours for each of their panels and rules. `python -m tests.dashboards`
asks them of a cluster of ours or of upstream's, and `docs/metrics.md` has what came out.
"""
