"""iptables as values: objects, their text, the restore edge, an interpreting fake, a packet tracer.

Users describe chains and jumps as frozen values (`objects`), send one `Change` a transaction through
`iptables.Iptables` and never build rule text themselves. Each user owns its chain names (KUBE-*,
NODEWRIGHT-*) and its jumps from the built-in chains, and touches nothing else.
"""
