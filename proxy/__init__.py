"""The service proxy: watches Services and EndpointSlices and keeps the kernel's rules for them.

Upstream's counterpart is kube-proxy: cmd/kube-proxy and pkg/proxy in k8s.io/kubernetes. Each address family has one
`proxier.Proxier`, which takes what changed from `plan/tracker.py` and hands it to the backend of the mode.
Start with `proxier.py`, then read one mode: `backends/nftables.py` and `plan/nftables/sync.py`.
"""
