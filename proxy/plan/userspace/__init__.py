"""The userspace mode: the kernel redirects to sockets of the proxy, which passes the traffic on itself.

Upstream's counterpart is pkg/proxy/userspace of Kubernetes 1.25, the last release that had it.
Start with `portals.py` (the chains, and the sockets behind them); `roundrobin.py` chooses an endpoint.
"""
