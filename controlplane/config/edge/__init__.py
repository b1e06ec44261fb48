"""Reads the file, and what it names on this machine."""
