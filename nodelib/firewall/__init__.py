"""iptables as values: objects, their text, the edge that writes them, an interpreting fake, and a packet tracer.

Upstream's counterpart is pkg/util/iptables in k8s.io/kubernetes. Users describe chains and jumps as frozen values
(`objects.py`) and send one `Change` per transaction through `iptables.Iptables`; they never build rule text. Each user
owns its chain names (KUBE-*, NODEWRIGHT-*) and its jumps from the built-in chains, and touches nothing else. Start with
`objects.py`; `trace.py` follows a packet through iptables and nftables rules.
"""
