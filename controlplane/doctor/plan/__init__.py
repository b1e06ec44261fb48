"""Judges the facts: of the machine in preflight, of a pod network in netcheck. Pure."""
