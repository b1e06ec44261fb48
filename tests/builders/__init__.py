"""Builders that all tests share: pods.py, services.py (with EndpointSlices and Nodes) and metrics.py."""
