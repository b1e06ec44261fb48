"""Keeps the Node, its Lease and the inhibitor lock."""
