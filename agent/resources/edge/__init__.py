"""Cgroups of the kernel and slices of systemd. Start with `cgroups.py`."""
