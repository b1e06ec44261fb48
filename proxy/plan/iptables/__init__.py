"""The iptables mode: chains and rules named, worded and ordered as upstream's pkg/proxy/iptables."""
