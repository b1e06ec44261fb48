"""The measurements of `bench`: each runs on a live cluster or network namespace and returns values.

`pods.py` measures a kubelet, `network.py` a CNI plugin, `services/` a kube-proxy; each runs with ours and with
upstream's. `report.py` makes the tables of docs/benchmarks.md, `plot.py` its plots. kubernetes/perf-tests is the
counterpart. Start with `pods.py`.
"""
