"""Measurements of a service proxy with thousands of Services, in network namespaces and without a cluster.

`environment.py` prepares etcd, an API server and pods that answer; `subject.py` is the proxy under measurement,
`measure.py` takes the values, `results.py` keeps them with their targets. `churn.py` and `soak.py` compare over time.
kubernetes/perf-tests is the counterpart. Start with `measure.py`.
"""
