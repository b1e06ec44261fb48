"""The file of a cluster."""
