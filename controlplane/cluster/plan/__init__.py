"""Addresses, certificates, command lines, files and API objects of a cluster, derived from its model. Pure."""
