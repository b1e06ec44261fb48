"""Walks the plans: raises, inspects and removes a cluster."""
