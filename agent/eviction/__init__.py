"""Evicts pods, and before that frees disk, when the node runs out of memory, disk, inodes or PIDs.

Upstream: pkg/kubelet/eviction. Open work/eviction.py first: each round measures the node, sets its pressure conditions
and acts; plan/thresholds.py says which thresholds are met, plan/ranking.py which pod is evicted first.
"""
