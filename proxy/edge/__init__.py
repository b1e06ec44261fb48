"""What touches the world for the proxy: sockets, sysctls, counters, metrics, events. Decides nothing.

Upstream's counterparts are pkg/proxy/metrics, pkg/proxy/healthcheck, pkg/proxy/util and, for `relays.py`, the
proxysocket.go of the old pkg/proxy/userspace. The edges to iptables, nftables and conntrack are in `nodelib`.
Start with `servers.py`.
"""
