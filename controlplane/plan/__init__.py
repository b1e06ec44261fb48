"""Decisions about a cluster: pure functions of facts."""
