"""Reads the facts: of this machine, and of the pod network in a network namespace."""
