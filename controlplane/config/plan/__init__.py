"""Reads, checks and prints the file of a cluster. Pure."""
