"""Pods with users of their own (`hostUsers: false`): which of the host's user and group IDs each of them gets.

Upstream: pkg/kubelet/userns. Open plan.py for the rules, then work.py, which remembers who has what. The runtime does
the rest: a pod's containers are in a user namespace with these IDs, and its volumes are mounted with the same mapping,
so that files keep the owners that they have for all other pods.
"""
