"""Measurements of a service proxy with thousands of Services, in network namespaces and without a cluster.

`environment.py` prepares etcd, an API server and pods that answer; `subject.py` is the proxy under measurement,
`measure.py` takes the values, `figures.py` keeps them. `churn.py` and `soak.py` look for differences over time.
kubernetes/perf-tests is the counterpart. Start with `measure.py`.
"""
