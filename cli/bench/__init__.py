"""Measurements: each runs on a cluster that stands, ours or one of upstream's parts, and returns values."""
