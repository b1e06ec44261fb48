"""Reads what a cluster publishes for machines that want to join it."""
