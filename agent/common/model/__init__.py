"""Frozen values: pods, containers, labels, evictions, errors."""
