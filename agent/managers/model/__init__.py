"""Frozen values: the topology of the machine, sets of CPUs, NUMA memory and counts for metrics."""
