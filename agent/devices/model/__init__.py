"""Frozen values: devices, plugins, allocations and prepared claims."""
