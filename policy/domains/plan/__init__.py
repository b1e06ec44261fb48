"""Decides what a DNS answer says and what of it counts. Pure."""
