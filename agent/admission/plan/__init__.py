"""Predicates, preemption, node selectors and sysctls."""
