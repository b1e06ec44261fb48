"""Decisions about refused packets. Pure."""
