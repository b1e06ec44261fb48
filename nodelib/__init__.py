"""What the node's programs share: errors, time, tasks, processes, the API client, iptables and nftables.

It knows none of its users, which are all packages beside it. Upstream's counterparts are k8s.io/client-go,
k8s.io/apimachinery and pkg/util of k8s.io/kubernetes. Start with `errors.py`, then `tasks.py` and `clock.py`. Folders:
`daemons` (start, log and ports of every daemon), `kube` (API server), `firewall` (iptables, packet tracing), `netlink`
(netfilter and connection tracking), `nft` (nftables over netlink), `traces` (spans and their way to a collector),
`plugin_apis` (gRPC of plugins), `upstream` (what upstream's kubelet and kube-proxy can be told).
"""
