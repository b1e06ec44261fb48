"""Frozen values: what volumes are made from, planned and mounted volumes, CSI drivers and their volumes."""
