"""Pods that no API server asks for: their sources, their lives beside each other, and their mirror pods."""
