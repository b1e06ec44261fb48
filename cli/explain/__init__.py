"""What `trace` and `service` explain: a packet's path through the rules of the nodes, a Service's endpoints and rules.

`read.py` and `live.py` read clusters and kernels; everything else is pure and works on `facts.Facts`. Decisions are
those of the proxy itself (`proxy/plan`). The closest counterparts are kube-proxy's packet tracer in
k8s.io/kubernetes/pkg/proxy/nftables/helpers_test.go and `kubectl describe service`. Start with `walk.py`.
"""
